"""The optimisation guide's checklist: each answer follows from source, remarks or cubin, and changes when they do."""

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.fixtures.command_line import run_here
from tilewatch.kernels.__main__ import main
from tilewatch.kernels.catalog import catalog, description
from tilewatch.kernels.checklist.checklist import checklist
from tilewatch.kernels.checklist.source_facts import source_facts
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.cubin import read_threads_per_block
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.results import Compiled, StaticFacts
from tilewatch.mechanisms.occupancy import occupancy

CONFIG = {"tile_m": 64, "tile_n": 128, "tile_k": 128, "num_ctas": 1, "occupancy": 1, "group_size_m": 8}
FACTS = StaticFacts(128, 0, 100_000, 9_000, 100_000, 2, 2, 1, 1, ())
COMPILED = Compiled("ok", "tileiras", "sm_90", 1.0, 1.0, reused=False, content_key="k", facts=FACTS)
DESCRIBED = catalog.describe(LIBRARY, arch="sm_90", kernel="gemm_fp8", problem="320x32576x7168", config=CONFIG)

SOURCE = """
import cuda.tile as ct

@ct.kernel
def entry(a, d, tile: ct.Constant[int], group: ct.Constant[int], turned: ct.Constant[int]):
    tiles = ct.num_tiles(a, axis=0, shape=(tile, tile))
    per_group = group * tiles
    for each in range(ct.bid(0), tiles * tiles, ct.num_blocks(0)):
        i, j = each // per_group, each % per_group
        acc = ct.zeros((tile, tile), dtype=ct.float16)
        acc = ct.mma(part(a, i, tile, turned), part(a, j, tile, 0), acc)
        ct.store(d, index=(i, j), tile=ct.maximum(acc, 0.0, flush_to_zero=True))

def part(a, i, side, turned):
    return ct.load(a, index=(i, 0), shape=(side, side), order=(1, 0) if turned == 1 else (0, 1), latency=side)
"""


def answers(described: description.Description = DESCRIBED, compiled: Compiled = COMPILED) -> dict[str, str]:
    return {line.item: line.answer for line in checklist(described, compiled, 256)}


def test_a_source_is_followed_into_the_functions_it_calls() -> None:
    facts = source_facts(SOURCE, "entry", {"tile": 32, "group": 4, "turned": 1})
    assert {shape for _, operation, shape in facts.shapes if operation == "load"} == {(32, 32)}
    assert [kind for _, kind in facts.accumulators] == ["float16"]
    assert len(facts.persistent) == 1
    assert {group for _, group in facts.swizzles} == {4}
    assert len(facts.turned_loads) == 1, "the second operand is loaded as it lies"
    assert {latency for _, latency in facts.latencies} == {32}
    assert len(facts.flushing) == len(facts.flushable) == 1


class LetsOthersIn:
    """Garbage that the collector alone can free. Freeing it runs Python code, in which another thread may go on."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        sum(range(100))


@pytest.fixture
def busy_collector() -> Iterator[None]:
    threshold, interval_s = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("busy_collector")
def test_sources_are_read_in_several_threads_at_once() -> None:
    source = SOURCE + "\n".join(f"def unused_{i}(a):\n    return [(a + {i}) * (b - 1) for b in a]" for i in range(200))

    def read(_: int) -> int:
        for _ in range(10):
            LetsOthersIn()
        return len(source_facts(source, "entry", {"tile": 32, "group": 4, "turned": 1}).persistent)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(100))) == [1] * 100


def test_an_accumulator_s_type_is_followed_through_calls_and_arithmetic() -> None:
    source = """
import cuda.tile as ct

@ct.kernel
def entry(a, b, d, tile: ct.Constant[int]):
    total = ct.full((tile, tile), 0.0, dtype=ct.float32)
    for k in range(4):
        total = step(a, b, total, 0.5)
    d = ct.mma(a, b, mystery(a))

def step(a, b, total, kept):
    return ct.mma(ct.astype(a, ct.bfloat16), b, total * kept)
"""
    assert sorted(kind for _, kind in source_facts(source, "entry", {"tile": 16}).accumulators) == ["", "float32"]


def test_a_kernel_is_understood_as_other_people_write_it() -> None:
    """The number of blocks has a name, the swizzle is in a function that is given its group, constants rule a branch
    out, and the accumulator is a keyword. So NVIDIA's TileGym writes its persistent product."""
    source = """
import cuda.tile as ct

def place(tile, per_group, first):
    return first + tile // per_group, tile % per_group

@ct.kernel
def entry(a, b, d, side: ct.Constant[int], group: ct.Constant[int], latency: ct.Constant[int]):
    programs = ct.num_blocks(0)
    tiles = ct.cdiv(a.shape[0], side)
    for tile in range(ct.bid(0), tiles * tiles, programs):
        per_group = group * tiles
        i, j = place(tile, per_group, 0)
        total = ct.full((side, side), 0.0, dtype=ct.float32)
        if latency >= 1:
            x = a.tiled_view((side, group)).load((i, 0), latency=latency)
        else:
            x = ct.load(a, index=(i, 0), shape=(side, side))
        total = ct.mma(x, x, acc=total)
"""
    facts = source_facts(source, "entry", {"side": 64, "group": 8, "latency": -1})
    assert len(facts.persistent) == 1
    assert {group for _, group in facts.swizzles} == {8}
    assert (len(facts.loads), facts.latencies) == (1, [])
    assert [kind for _, kind in facts.accumulators] == ["float32"]
    of_view = source_facts(source, "entry", {"side": 64, "group": 8, "latency": 4})
    assert [latency for _, latency in of_view.latencies] == [4]
    assert [shape for _, operation, shape in of_view.shapes if operation == "tiled_view"] == [(64, 8)]


def test_counters_answer_what_only_a_gpu_knows() -> None:
    def answer(**counters: float) -> dict[str, str]:
        return {line.item: line.answer for line in checklist(DESCRIBED, COMPILED, 256, counters)}

    good = answer(warps_active_pct=51.0, l2_hit_pct=81.0, bank_conflicts=900.0, instructions=1e5)
    bad = answer(warps_active_pct=49.0, l2_hit_pct=79.0, bank_conflicts=1100.0, instructions=1e5)
    for item in ("more than 50% of the warps", "more than 80% L2 hits", "no bank conflicts"):
        assert (good[item], bad[item]) == ("yes", "no")
    assert not {"more than 80% L2 hits", "no bank conflicts"} & answers().keys()


@pytest.mark.parametrize(
    ("counters", "memory", "tensor"),
    [
        ({"dram_pct": 61.0, "tensor_pipe_pct": 70.0}, "yes", "yes"),
        ({"dram_pct": 59.0, "tensor_pipe_pct": 58.0}, "no", "yes"),
        ({"dram_pct": 59.0, "tensor_pipe_pct": 60.0}, "does not apply", "yes"),
        ({"dram_pct": 59.0, "tensor_pipe_pct": 0.0}, "no", "no"),
        ({"dram_pct": 59.0}, "no", None),
        ({}, None, None),
    ],
)
def test_a_kernel_uses_the_memory_or_the_tensor_cores(
    counters: dict[str, float], memory: str | None, tensor: str | None
) -> None:
    found = {line.item: line.answer for line in checklist(DESCRIBED, COMPILED, 256, counters)}
    assert found.get("more than 60% of the memory throughput") == memory
    assert found.get("Tensor Cores at work") == tensor


def test_a_kernel_without_a_product_needs_no_tensor_cores() -> None:
    source = """
import cuda.tile as ct

@ct.kernel
def entry(a, d):
    ct.store(d, index=(0,), tile=ct.load(a, index=(0,), shape=(16,)))
"""
    described = replace(DESCRIBED, source=source, entry="entry", constants={})
    found = {
        line.item: line.answer
        for line in checklist(described, COMPILED, 256, {"dram_pct": 59.0, "tensor_pipe_pct": 60.0})
    }
    assert found["more than 60% of the memory throughput"] == "no"
    assert "Tensor Cores at work" not in found


@pytest.mark.parametrize("value", [None, "auto", 2.5, "(64, 128)"])
def test_a_tile_of_a_config_may_be_no_number(value: object) -> None:
    found = answers(replace(DESCRIBED, config={**DESCRIBED.config, "tile_m": value}))
    assert found["powers of two"] == "yes"


def test_the_grid_of_host_code_is_not_known_so_the_loop_decides() -> None:
    assert answers(replace(DESCRIBED, grid_follows_gpu=None))["persistent grid"] == "yes"
    assert answers(replace(DESCRIBED, grid_follows_gpu=False))["persistent grid"] == "no"


def test_the_story_s_kernel_keeps_to_the_guide() -> None:
    found = answers()
    assert found["2-D swizzle"] == found["persistent grid"] == found["float32 accumulation"] == "yes"
    assert found["powers of two"] == found["K aligned"] == found["rows start on 16 bytes"] == "yes"
    assert found["TMA loads"] == found["Tensor Core code"] == found["no spills"] == "yes"
    assert found["tile sizes of the table"] == "yes"
    assert found["transposed loads"] == found["flush to zero"] == "does not apply"


@pytest.mark.parametrize(
    ("old", "new", "item"),
    [
        ("dtype=ct.float32)\n        for k", "dtype=ct.float16)\n        for k", "float32 accumulation"),
        ("range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0))", "range(0, tiles_m * tiles_n, 1)", "persistent grid"),
        ("tiles_per_group = group_size_m * tiles_n", "tiles_per_group = tiles_n", "2-D swizzle"),
    ],
)
def test_a_change_of_the_source_changes_its_answer(old: str, new: str, item: str) -> None:
    assert old in DESCRIBED.source
    assert answers(replace(DESCRIBED, source=DESCRIBED.source.replace(old, new)))[item] == "no"


def test_what_the_compiler_and_the_cubin_say_changes_its_answer() -> None:
    bad = replace(FACTS, stack_bytes=8, tma_loads=1, tensor_core_mmas=0)
    found = answers(compiled=replace(COMPILED, facts=bad))
    assert found["no spills"] == found["TMA loads"] == found["Tensor Core code"] == "no"
    failed = Compiled("timeout", "tileiras", "sm_90", 60.0, 60.0, reused=False, failure="not compiled within 60 s")
    found = answers(compiled=failed)
    assert found["no spills"] == found["TMA loads"] == "unknown"


def test_a_grid_of_one_block_per_tile_is_not_persistent_whatever_the_source() -> None:
    described = {
        persistent: catalog.describe(
            LIBRARY,
            arch="sm_90",
            kernel="residual_add",
            problem="16384x4096",
            config={"tile_rows": 1, "tile_columns": 1024, "persistent": persistent, "occupancy": 2},
        )
        for persistent in (0, 1)
    }
    assert [answers(described[each])["persistent grid"] for each in (0, 1)] == ["no", "yes"]


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks", "share", "limit"),
    [
        ("sm_90", 256, 255, 0, 1, 0.125, "registers"),
        ("sm_90", 128, 32, 0, 16, 1.0, "registers"),
        ("sm_90", 128, 32, 100 << 10, 2, 0.125, "shared memory"),
        ("sm_120", 256, 32, 0, 6, 1.0, "threads"),
        ("sm_90", 32, 16, 0, 32, 0.5, "blocks"),
    ],
)
def test_occupancy_is_what_runs_out_first(
    arch: str, threads: int, registers: int, shared: int, blocks: int, share: float, limit: str
) -> None:
    found = occupancy(arch, threads, registers, shared)
    assert found is not None
    assert (found.blocks, found.warps_share, found.limited_by) == (blocks, share, limit)


def test_a_cubin_tells_its_threads(tmp_path: Path) -> None:
    with Compiler(folder(tmp_path)) as compiler:
        outcome = compiler.compile(LIBRARY, "gemm_fp8", "320x32576x7168", CONFIG, "sm_90")
    assert outcome.content_key is not None
    threads = read_threads_per_block(CubinStore(folder(tmp_path)).cubin(outcome.content_key))
    assert threads is not None
    assert threads % 32 == 0
    assert 128 <= threads <= 1024


def test_the_command_prints_every_line_with_its_evidence() -> None:
    def run(config: str) -> subprocess.CompletedProcess[str]:
        command = ("checklist", "residual_add", "--config", config, "--json")
        return run_here(*command, environment={}, folder=LIBRARY.parents[1], program=main)

    report = json.loads(run("tile_rows=4").stdout)
    assert report["config"]["tile_rows"] == 4
    assert report["status"] == "ok"
    assert len(report["lines"]) == 15
    assert all(line["evidence"] for line in report["lines"])
    unknown = run("tile_z=4")
    assert unknown.returncode == 2
    assert "tile_z" in unknown.stderr
