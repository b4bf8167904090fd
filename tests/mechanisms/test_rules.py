"""Both sides of each bound from which a quantity explains a slower version, and which of two quantities decides."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tilewatch.mechanisms.pairs import Moved, Number, Pair, WinnerFacts
from tilewatch.mechanisms.rules import RULES

TILES = {"tile_m": 64, "tile_n": 128, "tile_k": 64}
SIZES = (4096, 4096, 4096)


def apply(
    kind: str,
    fast: Mapping[str, Any],
    slow: Mapping[str, Any],
    moved: Sequence[Moved] = (),
    *,
    sizes: tuple[int, ...] = SIZES,
    arch: str = "sm_90",
) -> list[Number]:
    """What a rule finds between two versions, given by what differs from a version of which nothing is known."""
    versions = [WinnerFacts(**{"params": TILES, "facts": {}, **each}) for each in (fast, slow)]
    return RULES[kind](Pair(*versions, tuple(moved), sizes, arch))


def facts(**values: int | None) -> dict[str, Any]:
    return {"facts": values}


def counters(**values: float) -> dict[str, Any]:
    return {"counters": values}


def params(**values: int) -> dict[str, Any]:
    return {"params": {**TILES, **values}}


def moved(*numbers: tuple[str, int, int], in_loop: bool = True) -> list[Moved]:
    return [Moved(kind, in_loop, base, head) for kind, base, head in numbers]


@pytest.mark.parametrize(
    ("kind", "part", "whole", "label"),
    [
        ("tensor_cores", "tensor_core_mmas", "mmas", "% of products on Tensor Cores"),
        ("tma", "tma_loads", "loads", "% of loads by TMA"),
    ],
)
def test_a_smaller_share_of_what_the_hardware_does_is_lost(kind: str, part: str, whole: str, label: str) -> None:
    def share(parts: int | None, all_of_them: int | None) -> dict[str, Any]:
        return facts(**{part: parts, whole: all_of_them})

    assert apply(kind, share(4, 8), share(2, 8)) == [Number(label, 50.0, 25.0)]
    assert apply(kind, share(8, 8), share(0, 8)) == [Number(label, 100.0, 0.0)]
    for fast, slow in (((2, 8), (4, 8)), ((2, 4), (4, 8)), ((None, 8), (0, 8)), ((8, 8), (0, 0)), ((8, None), (0, 8))):
        assert apply(kind, share(*fast), share(*slow)) == []


@pytest.mark.parametrize(
    ("fast", "slow", "arithmetic", "is_lost"),
    [
        (8, 7, (0, 3), True),
        (8, 7, (0, 2), False),
        (8, 7, (1, 3), True),
        (8, 7, (10, 21), True),
        (8, 7, (10, 20), False),
        (8, 8, (0, 900), False),
        (7, 8, (0, 900), False),
        (8, 7, None, False),
    ],
)
def test_tensor_cores_are_lost_if_more_than_twice_the_arithmetic_takes_their_place(
    fast: int, slow: int, arithmetic: tuple[int, int] | None, is_lost: bool
) -> None:
    others = [] if arithmetic is None else [("float arithmetic", *arithmetic)]
    found = apply("tensor_cores", {}, {}, moved(("Tensor Core", fast, slow), *others))
    assert [each.label for each in found] == ["Tensor Core instructions", "float arithmetic"] * is_lost


@pytest.mark.parametrize("kind", ["loads", "stores"])
@pytest.mark.parametrize(
    ("tma", "instead", "is_lost"),
    [((8, 7), (0, 1), True), ((8, 8), (0, 1), False), ((7, 8), (0, 1), False), ((8, 7), (1, 1), False),
     ((8, 7), (1, 0), False)],
)  # fmt: skip
def test_tma_is_lost_if_plain_accesses_take_its_place(
    kind: str, tma: tuple[int, int], instead: tuple[int, int], is_lost: bool
) -> None:
    found = apply("tma", {}, {}, moved((f"TMA {kind}", *tma), (f"global {kind}", *instead)))
    assert [(each.label, each.base, each.head) for each in found] == (
        [(f"TMA {kind}", *tma), (f"global {kind}", *instead)] if is_lost else []
    )
    assert apply("tma", {}, {}, moved(("TMA loads", 8, 7), ("global stores", 0, 1))) == []


@pytest.mark.parametrize(("base", "head", "is_named"), [(0, 64, False), (0, 65, True), (1000, 1164, False),
                                                        (1000, 1165, True), (1165, 1000, False)])  # fmt: skip
def test_spilled_bytes_grow_by_a_tenth_and_sixty_four(base: float, head: float, is_named: bool) -> None:
    found = apply("spills", counters(spilled_bytes=base), counters(spilled_bytes=head))
    assert found == [Number("spilled bytes", base, head)] * is_named


@pytest.mark.parametrize(
    ("base", "head", "is_named"),
    [(0, 63, False), (0, 64, True), (60, 64, False), (58, 64, True), (100, 110, False), (100, 111, True)],
)
def test_the_stack_grows_by_a_tenth_to_sixty_four_bytes(base: int, head: int, is_named: bool) -> None:
    stack = Number("bytes of stack a thread", base, head)
    assert apply("spills", facts(stack_bytes=base), facts(stack_bytes=head)) == [stack] * is_named
    instructions = moved(("spills", 1, 5))
    with_instructions = apply("spills", facts(stack_bytes=base), facts(stack_bytes=head), instructions)
    assert with_instructions == [stack, Number("instructions that spill", 1, 5)] * is_named
    assert apply("spills", facts(), facts(stack_bytes=head)) == []


@pytest.mark.parametrize(("head", "is_named"), [(103.9, False), (104.0, True), (96.0, False)])
def test_padding_is_four_per_cent_more_tensor_core_operations(head: float, is_named: bool) -> None:
    found = apply("quantisation", counters(tensor_operations=100.0), counters(tensor_operations=head))
    assert found == [Number("Tensor Core operations", 100.0, head)] * is_named


@pytest.mark.parametrize("base", [{}, {"counters": {"tensor_operations": 0.0}}])
def test_padding_is_computed_from_tiles_if_no_operations_were_counted(base: dict[str, Any]) -> None:
    """A tile of 128 rows over 4160 has 33 rows of tiles: 4224 / 4160 is 1.5 % more; one of 256 has 17: 4.6 % more."""
    sizes = (4160, 4096, 4096)
    same = apply("quantisation", {**params(), **base}, {**params(tile_m=128), **base}, sizes=sizes)
    more = apply("quantisation", {**params(), **base}, {**params(tile_m=256), **base}, sizes=sizes)
    assert same == []
    assert more == [Number("work with padding / without", 1.0, pytest.approx(4352 / 4160))]
    counted = {"counters": {"tensor_operations": 100.0}}
    assert apply("quantisation", {**params(), **counted}, {**params(tile_m=256), **counted}, sizes=sizes) == []


@pytest.mark.parametrize(("head", "is_named"), [(80.0, False), (79.9, True), (125.0, False)])
def test_less_than_four_fifths_of_the_warps_is_less_occupancy(head: float, is_named: bool) -> None:
    found = apply("occupancy", counters(warps_active_pct=100.0), counters(warps_active_pct=head))
    assert found == [Number("% of warps at work", 100.0, head)] * is_named


@pytest.mark.parametrize(
    ("fast", "slow", "shares"),
    [
        ({"registers": 128}, {"registers": 160}, (25.0, 18.75)),
        ({"registers": 96}, {"registers": 128}, None),
        ({"registers": 96}, {"registers": 160}, (31.25, 18.75)),
        ({"registers": 160}, {"registers": 96}, None),
        ({"registers": None}, {"registers": 160}, None),
        ({"registers": 96}, {"registers": 160, "shared_bytes": None}, None),
        ({"shared_bytes": 100_000}, {"shared_bytes": 120_000}, (12.5, 6.25)),
        ({"shared_bytes": 100_000, "tma_loads": 1}, {"shared_bytes": 120_000, "tma_loads": 1}, (25.0, 12.5)),
        ({"shared_bytes": 100_000, "tensor_core_mmas": 1}, {"shared_bytes": 120_000, "loads": 1}, (25.0, 6.25)),
        ({"shared_bytes": 100_000, "threads_per_block": 512}, {"shared_bytes": 120_000}, (50.0, 6.25)),
    ],
)
def test_fewer_warps_that_fit_are_less_occupancy(
    fast: dict[str, int | None], slow: dict[str, int | None], shares: tuple[float, float] | None
) -> None:
    """A multiprocessor has room for 64 warps. A block has 4, and 4 more if it loads by TMA or uses Tensor Cores."""
    versions = [facts(**{"registers": 32, "shared_bytes": 1024, **each}) for each in (fast, slow)]
    found = apply("occupancy", *versions)
    assert found == ([Number("% of warps that fit", *shares)] if shares else [])
    assert apply("occupancy", *versions, arch="sm_999") == []


@pytest.mark.parametrize(
    ("workers", "share"), [({}, 25.0), ({"num_worker_warps": 4}, 25.0), ({"num_worker_warps": 8}, 37.5)]
)
def test_a_config_says_how_many_warps_a_block_adds(workers: dict[str, int], share: float) -> None:
    fast = {**facts(registers=32, shared_bytes=100_000, tma_loads=1), **params(**workers)}
    (number,) = apply("occupancy", fast, facts(registers=32, shared_bytes=200_000))
    assert (number.base, number.head) == (share, 6.25)


@pytest.mark.parametrize(
    ("base", "head", "instructions", "is_named"),
    [
        (0.0, 10.0, 1000.0, False),
        (0.0, 11.0, 1000.0, True),
        (0.0, 1.0, 0.0, True),
        (100.0, 125.0, 1000.0, False),
        (100.0, 126.0, 1000.0, True),
        (100.0, 126.0, 12_600.0, False),
        (126.0, 100.0, 1000.0, False),
    ],
)
def test_bank_conflicts_grow_by_a_quarter_and_reach_a_hundredth_of_the_instructions(
    base: float, head: float, instructions: float, is_named: bool
) -> None:
    fast, slow = (
        counters(bank_conflicts=base, instructions=1.0),
        counters(bank_conflicts=head, instructions=instructions),
    )
    assert apply("bank_conflicts", fast, slow) == [Number("bank conflicts", base, head)] * is_named
    assert apply("bank_conflicts", {}, slow) == []


@pytest.mark.parametrize(
    ("hits", "read", "is_named"),
    [(76.9, 111.0, True), (77.0, 111.0, False), (76.9, 110.0, False), (83.1, 111.0, False), (76.9, 90.0, False)],
)
def test_l2_is_reused_less_if_hits_fall_by_three_points_and_a_tenth_more_is_read(
    hits: float, read: float, is_named: bool
) -> None:
    fast = {**counters(l2_hit_pct=80.0, dram_read_bytes=100.0), "is_swizzled": True}
    slow = {**counters(l2_hit_pct=hits, dram_read_bytes=read), "is_swizzled": False}
    numbers = [Number("% of L2 hits", 80.0, hits), Number("bytes read from memory", 100.0, read)]
    assert apply("l2", fast, slow) == (numbers if is_named else [])


@pytest.mark.parametrize(
    ("tile_n", "loaded"), [(99, None), (98, (23.4375, pytest.approx(1000 / 64 + 1000 / 98))), (256, None)]
)
def test_tiles_that_load_a_tenth_more_reuse_l2_less(tile_n: int, loaded: tuple[float, float] | None) -> None:
    """A tile of 64 x 128 loads 1 / 64 + 1 / 128 elements a product."""
    found = apply("l2", params(), params(tile_n=tile_n))
    assert found == ([Number("elements loaded per 1,000 products", *loaded)] if loaded else [])
    assert apply("l2", params(), params(tile_n=None)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fast", "slow", "is_named"),
    [(True, False, True), (True, None, False), (None, False, False), (False, True, False), (True, True, False)],
)
def test_a_source_without_a_swizzle_shares_less(fast: bool | None, slow: bool | None, is_named: bool) -> None:
    found = apply("l2", {"is_swizzled": fast}, {"is_swizzled": slow})
    assert found == [Number("2-D swizzle (1: yes)", 1, 0)] * is_named


@pytest.mark.parametrize(
    ("fast", "slow", "together"),
    [
        ({"group_size_m": 8}, {"group_size_m": 4}, None),
        ({"group_size_m": 8}, {"group_size_m": 2}, (8 * 64 + 132 / 8 * 128, 2 * 64 + 132 / 2 * 128)),
        ({"group_size_m": 2}, {"group_size_m": 8}, None),
        ({"group_size_m": 8}, {"group_size_m": 2, "tile_k": 128}, None),
        ({"group_size_m": 8}, {}, None),
    ],
)
def test_groups_of_which_blocks_read_twice_as_much_share_less(
    fast: dict[str, int], slow: dict[str, int], together: tuple[float, float] | None
) -> None:
    found = apply("l2", params(**fast), params(**slow))
    assert found == ([Number("rows and columns that blocks read at a time", *together)] if together else [])


@pytest.mark.parametrize(("fast", "slow", "is_named"), [(2, 3, False), (2, 4, True), (3, 5, False), (3, 6, True)])
def test_clusters_cost_time_from_four_blocks_and_twice_as_many(fast: int, slow: int, is_named: bool) -> None:
    found = apply("clusters", params(num_ctas=fast), params(num_ctas=slow))
    assert found == [Number("blocks of a cluster", fast, slow)] * is_named
    assert apply("clusters", {}, params(num_ctas=slow)) == apply("clusters", params(num_ctas=fast), {}) == []


@pytest.mark.parametrize(
    ("name", "label"),
    [("stalled_on_memory", "warps that wait for memory"), ("stalled_on_mma", "warps that wait for Tensor Cores")],
)
@pytest.mark.parametrize(
    ("base", "head", "instructions", "is_named"),
    [
        (0.0, 0.1, 100.0, False),
        (0.0, 0.11, 100.0, True),
        (1.0, 1.35, 100.0, False),
        (1.0, 1.36, 100.0, True),
        (1.36, 1.0, 100.0, False),
        (1.0, 1.36, 102.9, True),
        (1.0, 1.36, 103.0, False),
        (1.0, 1.36, None, False),
    ],
)
def test_more_warps_that_wait_are_less_overlap_unless_there_are_more_instructions(
    name: str, label: str, base: float, head: float, instructions: float | None, is_named: bool
) -> None:
    slow = {name: head} | ({} if instructions is None else {"instructions": instructions})
    found = apply("overlap", counters(**{name: base, "instructions": 100.0}), counters(**slow))
    assert found == [Number(label, base, head)] * is_named


@pytest.mark.parametrize(
    ("head", "tile_k", "is_named"), [(85, 64, False), (84, 64, True), (84, 128, False), (118, 64, False)]
)
def test_less_shared_memory_for_the_same_tiles_is_less_overlap(head: int, tile_k: int, is_named: bool) -> None:
    found = apply("overlap", facts(shared_bytes=100), {**facts(shared_bytes=head), **params(tile_k=tile_k)})
    assert found == [Number("bytes of shared memory", 100, head)] * is_named


@pytest.mark.parametrize(
    ("barriers", "products", "in_loop", "is_named"),
    [
        ((10, 12), (3, 3), True, True),
        ((10, 11), (3, 3), True, False),
        ((10, 12), (3, 4), True, False),
        ((10, 12), (3, 3), False, False),
        ((12, 10), (3, 3), True, False),
    ],
)
def test_more_barriers_in_loops_of_as_many_products_are_less_overlap(
    barriers: tuple[int, int], products: tuple[int, int], in_loop: bool, is_named: bool
) -> None:
    found = apply("overlap", {}, {}, moved(("barriers", *barriers), ("Tensor Core", *products), in_loop=in_loop))
    assert found == [Number("barriers", *barriers)] * is_named
    outside = moved(("Tensor Core", 3, 4), in_loop=False)
    assert len(apply("overlap", {}, {}, [*moved(("barriers", 10, 12)), *outside])) == 1


@pytest.mark.parametrize(("head", "is_named"), [(103.0, False), (103.1, True), (97.0, False)])
def test_instructions_grow_by_three_per_cent(head: float, is_named: bool) -> None:
    slow = {**counters(instructions=head), **facts(code_bytes=9000)}
    found = apply("instructions", {**counters(instructions=100.0), **facts(code_bytes=10)}, slow)
    assert found == [Number("instructions", 100.0, head)] * is_named


@pytest.mark.parametrize(
    ("head", "tile_k", "is_named"), [(114, 64, False), (116, 64, True), (116, 128, False), (87, 64, False)]
)
def test_code_of_the_same_tiles_grows_by_fifteen_per_cent(head: int, tile_k: int, is_named: bool) -> None:
    slow = {**facts(code_bytes=head), **params(tile_k=tile_k)}
    assert apply("instructions", facts(code_bytes=100), slow) == [Number("bytes of code", 100, head)] * is_named
    assert apply("instructions", facts(code_bytes=100), slow, moved(("conversions", 1, 1))) == []


@pytest.mark.parametrize(
    ("in_loop", "outside", "where"),
    [
        ((0, 3), (0, 0), None),
        ((0, 4), (0, 0), ("in loops", 0, 4)),
        ((10, 14), (0, 90), ("in loops", 10, 14)),
        ((10, 13), (5, 9), ("outside loops", 5, 9)),
        ((14, 10), (5, 8), None),
        ((14, 10), (9, 5), None),
    ],
)
def test_differing_instructions_grow_by_three_per_cent_of_all(
    in_loop: tuple[int, int], outside: tuple[int, int], where: tuple[str, int, int] | None
) -> None:
    """The faster version has a hundred, of 16 bytes each."""
    both = [*moved(("conversions", *in_loop)), *moved(("conversions", *outside), in_loop=False)]
    found = apply("instructions", facts(code_bytes=1600), facts(code_bytes=9000), both)
    assert found == ([Number(f"instructions that differ {where[0]}", *where[1:])] if where else [])


def test_any_more_instructions_count_if_the_size_of_the_code_is_not_known() -> None:
    assert apply("instructions", {}, {}, moved(("conversions", 3, 4))) == [
        Number("instructions that differ in loops", 3, 4)
    ]
    assert apply("instructions", {}, {}, moved(("conversions", 4, 4))) == []


@pytest.mark.parametrize(
    ("fast", "slow", "is_named"),
    [(2000.0, 1970.0, False), (2000.0, 1969.0, True), (1969.0, 2000.0, False), (None, 1000.0, False),
     (2000.0, None, False)],
)  # fmt: skip
def test_a_clock_is_lower_by_one_and_a_half_per_cent(fast: float | None, slow: float | None, is_named: bool) -> None:
    assert apply("clocks", {"sm_clock_mhz": fast}, {"sm_clock_mhz": slow}) == [Number("MHz", fast, slow)] * is_named  # type: ignore[arg-type]
