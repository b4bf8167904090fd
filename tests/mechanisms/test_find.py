"""By what mechanism a build is slower follows from its rule, with the numbers that decided."""

from dataclasses import replace

import pytest

from tilewatch.mechanisms.find import KINDS, NOT_KNOWN, find_mechanisms, write_mechanisms
from tilewatch.mechanisms.pairs import Moved, WinnerFacts, read_swizzled

CONFIG = {"tile_m": 64, "tile_n": 128, "tile_k": 128, "num_worker_warps": 4}
FACTS = {
    "registers": 128,
    "stack_bytes": 0,
    "shared_bytes": 100_000,
    "code_bytes": 16_000,
    "tma_loads": 2,
    "loads": 2,
    "tensor_core_mmas": 1,
    "mmas": 1,
}
COUNTERS = {
    "warps_active_pct": 25.0,
    "tensor_operations": 149e9,
    "dram_read_bytes": 250e6,
    "l2_hit_pct": 80.0,
    "bank_conflicts": 0.0,
    "instructions": 1e6,
    "spilled_bytes": 0.0,
    "stalled_on_memory": 1.0,
    "stalled_on_mma": 2.0,
}
BUILD = WinnerFacts(CONFIG, FACTS, sm_clock_mhz=1980)
COUNTED = replace(BUILD, counters=COUNTERS)


def find(
    base: WinnerFacts, head: WinnerFacts, *moved: Moved, is_slower: bool = True, problem: str = "320x32576x7168"
) -> list[str]:
    found = find_mechanisms(base, head, moved, is_slower=is_slower, problem=problem, arch="sm_90")
    return [str(each) for each in found]


def other(build: WinnerFacts, **facts: int) -> WinnerFacts:
    return replace(build, facts={**build.facts, **facts})


def counted(**counters: float) -> WinnerFacts:
    return replace(COUNTED, counters={**COUNTERS, **counters})


@pytest.mark.parametrize(
    ("head", "moved", "expected"),
    [
        (other(BUILD, tensor_core_mmas=0), (), "lost Tensor Cores (% of products on Tensor Cores 100 -> 0)"),
        (
            BUILD,
            (Moved("Tensor Core", True, 8, 0), Moved("float arithmetic", True, 0, 900)),
            "lost Tensor Cores (Tensor Core instructions 8 -> 0, float arithmetic 0 -> 900)",
        ),
        (other(BUILD, tma_loads=1), (), "lost TMA (% of loads by TMA 100 -> 50)"),
        (
            BUILD,
            (Moved("TMA loads", True, 2, 1), Moved("global loads", True, 0, 8)),
            "lost TMA (TMA loads 2 -> 1, global loads 0 -> 8)",
        ),
        (
            other(BUILD, stack_bytes=7432),
            (Moved("spills", True, 0, 90),),
            "spills (bytes of stack a thread 0 -> 7,432, instructions that spill 0 -> 90)",
        ),
        (
            replace(BUILD, params={**CONFIG, "tile_m": 256}),
            (),
            "tile quantisation (work with padding / without 1 -> 1.6)",
        ),
        (
            replace(BUILD, params={**CONFIG, "tile_n": 64}),
            (),
            "worse L2 reuse (elements loaded per 1,000 products 23.4 -> 31.2)",
        ),
        (other(BUILD, code_bytes=19_000), (), "more instructions (bytes of code 16,000 -> 19,000)"),
        (other(BUILD, registers=255), (), "lower occupancy (% of warps that fit 25 -> 12.5)"),
        (other(BUILD, shared_bytes=80_000), (), "less overlap (bytes of shared memory 100,000 -> 80,000)"),
        (BUILD, (Moved("barriers", True, 3, 9),), "less overlap (barriers 3 -> 9)"),
        (
            BUILD,
            (Moved("conversions", True, 0, 31), Moved("conversions", False, 90, 0)),
            "more instructions (instructions that differ in loops 0 -> 31)",
        ),
        (replace(BUILD, sm_clock_mhz=1755), (), "lower clocks (MHz 1,980 -> 1,755)"),
    ],
)
def test_each_rule_without_counters(head: WinnerFacts, moved: tuple[Moved, ...], expected: str) -> None:
    assert find(BUILD, head, *moved)[0] == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (
            counted(tensor_operations=179e9),
            "tile quantisation (Tensor Core operations 149,000,000,000 -> 179,000,000,000)",
        ),
        (counted(spilled_bytes=8e6), "spills (spilled bytes 0 -> 8,000,000)"),
        (counted(warps_active_pct=12.0), "lower occupancy (% of warps at work 25 -> 12)"),
        (counted(bank_conflicts=2e4), "bank conflicts (bank conflicts 0 -> 20,000)"),
        (
            counted(l2_hit_pct=70.0, dram_read_bytes=400e6),
            "worse L2 reuse (% of L2 hits 80 -> 70, bytes read from memory 250,000,000 -> 400,000,000)",
        ),
        (counted(stalled_on_memory=1.5), "less overlap (warps that wait for memory 1 -> 1.5)"),
        (counted(instructions=1.1e6), "more instructions (instructions 1,000,000 -> 1,100,000)"),
    ],
)
def test_each_rule_of_the_counters(head: WinnerFacts, expected: str) -> None:
    assert find(COUNTED, head) == [expected]


@pytest.mark.parametrize(
    ("base", "head", "is_named"), [(1, 4, True), (2, 4, True), (4, 8, True), (1, 2, False), (4, 1, False)]
)
def test_clusters_of_four_and_more_cost_time(base: int, head: int, is_named: bool) -> None:
    sides = [replace(BUILD, params={**CONFIG, "num_ctas": each}) for each in (base, head)]
    assert find(*sides) == ([f"larger clusters (blocks of a cluster {base} -> {head})"] if is_named else [])


@pytest.mark.parametrize(
    ("name", "base", "head", "problem", "together"),
    [
        ("group_size_m", 8, 1, "4096x4096x7168", "2,624 -> 16,960"),
        ("GROUP_SIZE_M", 8, 1, "192x4096x7168", "5,824 -> 16,960"),
        ("group_size_m", 16, 8, "4096x4096x7168", ""),
        ("group_size_m", 8, 1, "64x4096x7168", ""),
    ],
)
def test_blocks_that_share_fewer_tiles_reuse_less(name: str, base: int, head: int, problem: str, together: str) -> None:
    sides = [replace(BUILD, params={**CONFIG, name: each}) for each in (base, head)]
    text = f"worse L2 reuse (rows and columns that blocks read at a time {together})"
    assert find(*sides, problem=problem) == ([text] if together else [])


def test_a_source_that_swizzles_no_more_reuses_less_unless_counters_say_otherwise() -> None:
    base, head = (replace(BUILD, is_swizzled=each) for each in (True, False))
    assert find(base, head) == ["worse L2 reuse (2-D swizzle (1: yes) 1 -> 0)"]
    assert find(head, base) == []
    assert find(replace(base, counters=COUNTERS), replace(head, counters=COUNTERS)) == []


@pytest.mark.parametrize(
    ("checklist", "is_swizzled"),
    [
        ([{"item": "TMA loads", "answer": "no"}, {"item": "2-D swizzle", "answer": "yes"}], True),
        ([{"item": "2-D swizzle", "answer": "no"}], False),
        ([{"item": "2-D swizzle", "answer": "does not apply"}], None),
        (None, None),
    ],
)
def test_the_checklist_says_whether_a_source_swizzles(
    checklist: list[dict[str, str]] | None, is_swizzled: bool | None
) -> None:
    assert read_swizzled(checklist) is is_swizzled


def test_a_faster_head_has_the_opposite_and_numbers_stay_in_order() -> None:
    assert find(other(BUILD, stack_bytes=7432), BUILD, is_slower=False) == [
        "fewer spills (bytes of stack a thread 7,432 -> 0)"
    ]
    barriers = Moved("barriers", True, 9, 3)
    assert find(BUILD, BUILD, barriers, is_slower=False) == ["more overlap (barriers 9 -> 3)"]
    assert find(BUILD, BUILD, barriers) == []


def test_what_is_better_in_the_slower_build_explains_nothing() -> None:
    assert find(other(BUILD, stack_bytes=7432), BUILD) == []
    assert find(counted(l2_hit_pct=70.0, dram_read_bytes=400e6), COUNTED) == []


@pytest.mark.parametrize(
    "head",
    [
        other(BUILD, stack_bytes=48),
        other(BUILD, registers=120),
        other(BUILD, shared_bytes=95_000),
        replace(BUILD, sm_clock_mhz=1965),
        counted(l2_hit_pct=78.0, dram_read_bytes=400e6),
        counted(l2_hit_pct=70.0, dram_read_bytes=260e6),
        counted(stalled_on_memory=1.3),
        counted(instructions=1.02e6),
        counted(bank_conflicts=900.0),
        WinnerFacts({}, {}),
    ],
)
def test_too_little_is_not_known(head: WinnerFacts) -> None:
    base = COUNTED if head.counters else BUILD
    assert find(base, head) == []
    assert write_mechanisms(()) == NOT_KNOWN


def test_other_tiles_have_other_instructions_and_stages() -> None:
    head = replace(other(BUILD, shared_bytes=50_000, code_bytes=30_000), params={**CONFIG, "tile_n": 256})
    assert find(BUILD, head, Moved("conversions", True, 0, 900)) == []


def test_padding_accounts_for_no_more_than_itself() -> None:
    head = replace(BUILD, params={**CONFIG, "tile_m": 128})
    sides = {"is_slower": True, "problem": "320x32576x7168", "arch": "sm_90"}
    alone = find_mechanisms(BUILD, head, (), ratio=1.5, **sides)  # type: ignore[arg-type]
    text = "tile quantisation (work with padding / without 1 -> 1.2, 20% at most); the rest is not known"
    assert write_mechanisms(alone) == text
    both = find_mechanisms(BUILD, other(head, stack_bytes=900), (), ratio=1.5, **sides)  # type: ignore[arg-type]
    assert [each.kind for each in both] == ["spills", "quantisation"]
    enough = find_mechanisms(BUILD, head, (), ratio=1.3, **sides)  # type: ignore[arg-type]
    assert write_mechanisms(enough) == "tile quantisation (work with padding / without 1 -> 1.2)"


def test_tiles_are_known_by_other_people_s_names() -> None:
    base = WinnerFacts({"TILE_SIZE_M": 64, "BLOCK_N": 128, "TILE_K": 64}, {})
    head = WinnerFacts({"TILE_SIZE_M": 128, "BLOCK_N": 128, "TILE_K": 64}, {})
    assert find(base, head, problem="320x32576x7168:bf16") == [
        "tile quantisation (work with padding / without 1 -> 1.2)"
    ]


@pytest.mark.parametrize("problem", ["320x32576x7168", "0x32576x7168", "64x0"])
@pytest.mark.parametrize("value", [None, "auto", "128", 0, -1, 2.5, "(128, 64)"])
@pytest.mark.parametrize("name", ["tile_m", "tile_rows", "group_size_m", "num_ctas", "num_worker_warps"])
def test_a_config_may_hold_what_is_no_size(name: str, value: object, problem: str) -> None:
    head = replace(other(BUILD, tma_loads=1), params={**CONFIG, name: value})
    assert "lost TMA (% of loads by TMA 100 -> 50)" in find(BUILD, head, problem=problem)
    assert "TMA used (% of loads by TMA 50 -> 100)" in find(head, BUILD, is_slower=False, problem=problem)


def test_problems_of_another_form_have_no_padding() -> None:
    attention = WinnerFacts({"TILE_M": 64, "TILE_N": 64}, {}), WinnerFacts({"TILE_M": 64, "TILE_N": 128}, {})
    assert find(*attention, problem="2x16x1024") == []
    assert find(BUILD, replace(BUILD, params={**CONFIG, "tile_m": 256}), problem="4x32x8x4096x128") == []


def test_the_main_mechanism_comes_first_and_all_are_named() -> None:
    head = other(BUILD, tensor_core_mmas=0, stack_bytes=7432)
    found = find_mechanisms(BUILD, head, (), is_slower=True, problem="-", arch="sm_90")
    assert [each.kind for each in found] == [kind for kind in KINDS if kind in ("tensor_cores", "spills")]
    assert "; also spills (" in write_mechanisms(found)
