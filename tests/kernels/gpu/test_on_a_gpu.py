"""The measuring path on a real GPU: what the tests on the fake one hold, seen by CUPTI and in real processes."""

import dataclasses
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.gpu_library import rows
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compile_plan import compile_plan
from tilewatch.kernels.gpu.rounds import CHECK_EVERY
from tilewatch.kernels.measuring import sweep as sweeping
from tilewatch.kernels.measuring.careful_timing import BLOCK_ROUNDS, MOST_ROUNDS
from tilewatch.kernels.measuring.known_counters import read_counted
from tilewatch.kernels.measuring.measure import MeasureFailed, MeasureRequest, measure
from tilewatch.kernels.measuring.pair_bench import ReplaySide
from tilewatch.kernels.measuring.profiler import FORBIDDEN
from tilewatch.kernels.measuring.replay import ReplayRequest, replay
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed, sweep
from tilewatch.kernels.results import Cubin, RunResult, TrialResult

pytestmark = pytest.mark.gpu

LIBRARY = Path(rows.__file__).parent
KERNEL, PROBLEM, ROWS = "add_tiles", "1024x256", 1024
OUTPUT_BYTES = 4 * 1024 * 256
POISON = 0xFF


@dataclasses.dataclass(frozen=True)
class Machine:
    gpu: device.Gpu
    arch: str
    store_url: str
    cubins: Mapping[tuple[int, int, int], Cubin]
    """By a config's rows, repeats and fault."""

    def setup(self) -> GpuSetup:
        return GpuSetup(LIBRARY, KERNEL, PROBLEM, self.store_url, environment={"CUDA_VISIBLE_DEVICES": self.gpu.uuid})


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """This machine's first GPU, and the cubins of the library for it."""
    gpu = device.gpus()[0]
    assert gpu.model is not None
    store_url = store.folder(tmp_path_factory.mktemp("cubins"))
    plan = catalog.read(LIBRARY, arch=gpu.model.arch, kernel=KERNEL, problem=PROBLEM)[0]
    cubins = {}
    for trial, outcome in compile_plan(LIBRARY, plan, store_url, jobs=2):
        cubin = outcome.find_cubin(trial.config)
        assert cubin is not None, outcome.failure
        cubins[trial.config["rows"], trial.config["repeats"], trial.config["fault"]] = cubin
    return Machine(gpu, gpu.model.arch, store_url, cubins)


class Trace:
    """What one process answered, and what ran on the GPU meanwhile."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.requests: list[dict[str, Any]] = []
        self._prepare = {"library": str(LIBRARY), "kernel": KERNEL, "problem": PROBLEM}

    def trial(self, identity: int, fault: int = rows.RIGHT, *, tile: int = 4, repeats: int = 1, **fields: Any) -> None:
        cubin = self._machine.cubins[tile, repeats, fault]
        named = {"config": dict(cubin.config), "content_key": cubin.content_key, "symbol": cubin.symbol}
        self.requests.append({"ask": "trial", "id": identity, "samples": 5, "best_us": None, **named, **fields})

    def rounds(self, seed: int) -> None:
        self.requests.append({"ask": "rounds", "ids": [0, 1], "names": ["copy"], "rounds": 30, "seed": seed})

    def run(self) -> list[dict[str, Any]]:
        """An element for each request; the first is of the preparation."""
        asked = [{**self._prepare, "store_url": self._machine.store_url, "seed": 1}, *self.requests]
        done = subprocess.run(
            [sys.executable, "-m", "tests.kernels.fixtures.gpu_trace"],
            input=json.dumps(asked),
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=True,
        )
        traced: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return traced


WRONG = ("off", "unwritten", "stale")
NAMES = ("prepared", "right", "wider", *WRONG, "too large grid", "behind", "in front", "slow", "copy", "seed 1",
         "seed 1 again", "seed 2", "canary", "time nothing")  # fmt: skip


@pytest.fixture(scope="module")
def traced(machine: Machine) -> dict[str, dict[str, Any]]:
    trace = Trace(machine)
    trace.trial(0)
    trace.trial(1, tile=16)
    trace.trial(2, rows.OFF)
    trace.trial(3, rows.UNWRITTEN)
    trace.trial(4, rows.STALE)
    trace.trial(5, rows.TOO_LARGE_GRID)
    trace.trial(6, rows.BEHIND)
    trace.trial(7, rows.IN_FRONT)
    trace.trial(8, repeats=40, best_us=0.1)
    trace.requests.append({"ask": "baselines", "names": ["copy"]})
    for seed in (1, 1, 2):
        trace.rounds(seed)
    trace.requests.append({"ask": "canary", "when": "canary before"})
    trace.requests.append({"ask": "time nothing"})
    return dict(zip(NAMES, trace.run(), strict=True))


def launches(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in one["ran"] if each.get("kernel") == KERNEL]


def l2_flush_bytes(traced: Mapping[str, Mapping[str, Any]]) -> int:
    """The largest memset: nothing else is as large."""
    return max(each["memset"] for each in traced["right"]["ran"] if "memset" in each)


def test_the_child_introduces_this_gpu(machine: Machine, traced: dict[str, dict[str, Any]]) -> None:
    introduction = traced["prepared"]["answer"]
    assert introduction["timer"] == "cupti"
    assert introduction["gpu_uuid"] == machine.gpu.uuid
    telemetry = introduction["telemetry"]
    assert telemetry["sm_clock_mhz"] > 0
    assert telemetry["power_w"] > 0
    assert isinstance(telemetry["throttled"], list)


def test_a_right_config_is_checked_once_and_the_check_is_no_sample(traced: dict[str, dict[str, Any]]) -> None:
    answer, ran = traced["right"]["answer"], launches(traced["right"])
    assert (answer["status"], len(answer["samples_us"]), len(ran)) == ("timed", 5, 1 + 5)
    assert answer["samples_us"] == pytest.approx([each["us"] for each in ran[1:]])
    assert {each["grid"] for each in ran} == {ROWS // 4}


def test_each_launch_comes_right_after_a_flush_of_twice_l2(traced: dict[str, dict[str, Any]]) -> None:
    flush = l2_flush_bytes(traced)
    assert flush >= 2 * 32 * 2**20, "no GPU of sm_90 or later has less L2 than this"
    for name in ("right", "seed 1"):
        for before, this in itertools.pairwise(traced[name]["ran"]):
            if this.get("kernel") == KERNEL:
                assert before.get("memset") == flush, name


def test_the_output_is_poisoned_before_each_check(traced: dict[str, dict[str, Any]]) -> None:
    for name in ("right", "wider", *WRONG):
        ran = traced[name]["ran"]
        first = next(place for place, each in enumerate(ran) if each.get("kernel") == KERNEL)
        poisons = [each for each in ran[:first] if each.get("memset") == OUTPUT_BYTES]
        assert [each["value"] & 0xFF for each in poisons] == [POISON], name


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("off", "the output 'y' is off by 0.00"),
        ("unwritten", "the output 'y' left elements unwritten"),
        ("stale", "the output 'y' left elements unwritten"),
    ],
)
def test_a_wrong_config_is_launched_once_and_never_timed(
    traced: dict[str, dict[str, Any]], name: str, failure: str
) -> None:
    answer = traced[name]["answer"]
    assert answer["status"] == "wrong"
    assert answer["failure"].startswith(failure)
    assert len(launches(traced[name])) == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("behind", r"[\d,]+ bytes behind 'y', the first one \d after its end"),
        ("in front", r"[\d,]+ bytes in front of 'x', the first one 1,0\d\d before its start"),
    ],
)
def test_a_config_that_writes_outside_of_its_arrays_is_wrong_and_the_next_one_is_not(
    traced: dict[str, dict[str, Any]], name: str, found: str
) -> None:
    """Its result is right. One byte in 256 of what it writes is what the guard has there anyway."""
    answer, ran = traced[name]["answer"], traced[name]["ran"]
    assert answer["status"] == "wrong"
    assert re.fullmatch(f"it writes outside of its arrays: {found}", answer["failure"]), answer["failure"]
    assert len(launches(traced[name])) == 1
    (compared,) = [each["us"] for each in ran if each.get("kernel") == "restore_guards"]
    print(f"comparing {traced['prepared']['input_bytes'] >> 20} MiB of inputs took {compared:.1f} us", file=sys.stderr)
    assert traced["slow"]["answer"]["status"] == "timed"


def test_drawn_results_are_copied_after_their_launches_and_guards_compared_after_the_last_round(
    traced: dict[str, dict[str, Any]],
) -> None:
    """Each config has one result copied in each CHECK_EVERY rounds, right after its launch; the baseline has none."""
    timed: list[dict[str, Any]] = []
    copied_after: list[int] = []
    guarded_after: list[int] = []
    for each in traced["seed 1"]["ran"]:
        if each.get("kernel") in (KERNEL, "copy_16_bytes"):
            timed.append(each)
        elif each.get("kernel") == "restore_guards":
            guarded_after.append(len(timed))
        elif each.get("kernel") == "captured":
            copied_after.append(len(timed))
    assert guarded_after == [len(timed)] == [3 * 30]
    part = 3 * CHECK_EVERY
    assert sorted(((count - 1) // part, timed[count - 1]["grid"]) for count in copied_after) == [
        (number, grid) for number in range(30 // CHECK_EVERY) for grid in (ROWS // 16, ROWS // 4)
    ]
    assert {timed[count - 1]["kernel"] for count in copied_after} == {KERNEL}


COPIES = """
import cupy
from tilewatch.kernels.gpu.input_copies import InputCopies
block = cupy.random.default_rng(0).integers(0, 256, 40 << 20, dtype="u1")
places = {0: 1, 512: 15, 1024: 16, 2048: 17, 4099: 4096, 1 << 20: 33 << 20}
arrays = [block[at : at + size] for at, size in places.items()]
before = [each.copy() for each in arrays]
copies = InputCopies(arrays, before)
assert copies.restore() == []
for number, each in enumerate(arrays):
    for at in {0, each.size // 2, each.size - 1}:
        each[at] ^= 1
        assert copies.restore() == [number], (number, at)
        assert copies.restore() == []
arrays[1][3] ^= 8
arrays[5][...] = 0
assert copies.restore() == [1, 5]
assert all(bool((x == y).all()) for x, y in zip(arrays, before))
assert InputCopies([], []).restore() == []
print("restored")
"""


def test_arrays_of_any_size_and_place_are_restored_from_their_copies() -> None:
    assert subprocess.check_output([sys.executable, "-c", COPIES], text=True, timeout=120) == "restored\n"


PLACES = """
import cupy
from tilewatch.kernels.gpu.guards import LARGE_ALIGNMENT, Guards
guards = Guards()
for nbytes in (3 << 19, 3 << 20, 5 << 24):
    plain, guarded = cupy.empty(nbytes, dtype="u1"), guards.make_empty("x", (nbytes,), "u1")
    print(plain.data.ptr % LARGE_ALIGNMENT, guarded.data.ptr % LARGE_ALIGNMENT)
"""


def test_large_arrays_begin_with_a_large_page(traced: dict[str, dict[str, Any]]) -> None:
    assert traced["prepared"]["input_addresses_mod_512"] == [0]
    places = subprocess.check_output([sys.executable, "-c", PLACES], text=True, timeout=120).split()
    print(f"without guards they lie {', '.join(places[::2])} bytes behind a multiple of 2 MiB", file=sys.stderr)
    assert places[1::2] == ["0"] * 3


def test_a_config_that_cannot_be_launched_says_so(traced: dict[str, dict[str, Any]]) -> None:
    answer = traced["too large grid"]["answer"]
    assert answer["status"] == "launch_error"
    assert "CUDA_ERROR_INVALID_VALUE" in answer["failure"]
    assert not launches(traced["too large grid"])


def test_a_hopeless_config_gets_no_further_samples(traced: dict[str, dict[str, Any]]) -> None:
    assert len(traced["slow"]["answer"]["samples_us"]) == len(launches(traced["slow"])) == 1


def test_inputs_rotate_over_several_times_l2(traced: dict[str, dict[str, Any]]) -> None:
    prepared = traced["prepared"]
    assert prepared["input_bytes"] >= 4 * l2_flush_bytes(traced) // 2
    assert prepared["input_addresses"] == prepared["input_arrays"]


def order(one: Mapping[str, Any]) -> list[int]:
    """The launches of a request of rounds, by the grid of their config; the baseline's are 0. Comparing runs others."""
    ran = [each for each in one["ran"] if each.get("kernel") in (KERNEL, "copy_16_bytes")]
    return [each["grid"] if each["kernel"] == KERNEL else 0 for each in ran]


def test_rounds_launch_each_entry_once_in_random_order(traced: dict[str, dict[str, Any]]) -> None:
    in_order = order(traced["seed 1"])
    assert len(in_order) == 3 * 30
    each_round = [tuple(in_order[3 * number : 3 * number + 3]) for number in range(30)]
    assert {frozenset(one) for one in each_round} == {frozenset((0, ROWS // 4, ROWS // 16))}
    assert len(set(each_round)) > 1
    assert order(traced["seed 1 again"]) == in_order
    assert order(traced["seed 2"]) != in_order


def test_samples_stay_with_their_entry(traced: dict[str, dict[str, Any]]) -> None:
    ran, answer = launches(traced["seed 1"]), traced["seed 1"]["answer"]
    for samples, grid in zip(answer["samples_us"], (ROWS // 4, ROWS // 16), strict=False):
        assert samples == pytest.approx([each["us"] for each in ran if each["grid"] == grid])
    assert [reading["when"] for reading in answer["telemetry"]] == ["before rounds", "after rounds"]


def test_a_canary_reads_two_times(traced: dict[str, dict[str, Any]]) -> None:
    reading = traced["canary"]["answer"]["telemetry"]
    assert reading["canary_compute_us"] > 0
    assert reading["canary_memory_us"] > 0


def test_a_missing_record_is_an_error(traced: dict[str, dict[str, Any]]) -> None:
    assert traced["time nothing"]["answer"] == {"failure": "0 kernel records for 1 kernels launched"}


def test_a_fault_and_a_hang_cost_one_trial_each(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "TRIAL_DEADLINE_S", 5.0)  # however long the first answer took
    asked = [(4, 1, rows.RIGHT), (4, 1, rows.ILLEGAL_ADDRESS), (4, 1, rows.NO_END), (16, 1, rows.RIGHT)]
    child = GpuChild(machine.setup())
    try:
        result = sweep(child, [machine.cubins[each] for each in asked], on_trial=lambda _: None)
    finally:
        child.close()
    assert [trial.status for trial in result.trials] == ["timed", "crashed", "hung", "timed"]
    assert [trial.failure for trial in result.trials[1:3]] == [
        "CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered",
        "no answer within 5 s",
    ]
    assert result.winner is not None


def test_counters_that_a_run_read_are_taken_over_by_the_next(machine: Machine) -> None:
    right = [machine.cubins[4, 1, rows.RIGHT]]
    request = MeasureRequest(
        LIBRARY, KERNEL, PROBLEM, machine.arch, machine.store_url, right, machine.gpu.index, ("copy",)
    )
    first = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    known = read_counted(first.measurements[0].detail, first.finished_at)
    again = measure(dataclasses.replace(request, counted=known), on_trial=lambda _: None, on_step=lambda *_: None)
    detail = again.measurements[0].detail
    if "no_counters" in detail:
        assert "(ncu)" in detail["no_counters"] or FORBIDDEN in detail["no_counters"]
    else:
        assert detail["counters"] == first.measurements[0].detail["counters"]
        assert detail["launch"] in known, "it is the same launch, though the inputs were drawn anew"
        assert detail["counted"].startswith("on ")


def test_a_problem_that_cannot_be_prepared_is_a_sentence(machine: Machine) -> None:
    with pytest.raises(SweepFailed, match=r"could not prepare nonsense: .*'nonsense' is not ROWSxCOLUMNS"):
        GpuChild(dataclasses.replace(machine.setup(), problem="nonsense"))


def test_a_run_stops_at_its_interval_or_its_budget_and_counts_throttled_rounds(machine: Machine) -> None:
    ended: list[TrialResult] = []
    right = [machine.cubins[tile, repeats, rows.RIGHT] for tile in (4, 8, 16) for repeats in (1, 40)]
    request = MeasureRequest(
        LIBRARY, KERNEL, PROBLEM, machine.arch, machine.store_url, right, machine.gpu.index, ("copy",),
        ships={"rows": 16, "repeats": 40, "fault": rows.RIGHT},
    )  # fmt: skip
    result = measure(request, on_trial=ended.append, on_step=lambda *_: None)
    assert {trial.status for trial in result.trials} == {"timed"}
    assert len(ended) >= len(right)
    assert result.winner is not None
    assert result.winner["repeats"] == 1, "40 times the work is never as fast"
    ours, copy, shipped = result.measurements
    detail = ours.detail
    assert detail["stopped"] in ("interval", "budget")
    assert detail["rounds"] == len(ours.samples_us) == len(copy.samples_us) == len(shipped.samples_us)
    blocks = [reading for reading in result.telemetry if reading["when"] in ("before rounds", "after rounds")]
    kept_and_left_out = detail["rounds"] + detail["throttled_rounds_left_out"]
    assert kept_and_left_out == (len(blocks) // 2 - 1) * BLOCK_ROUNDS <= MOST_ROUNDS, "the first block only warms up"
    slowed = sum(any(reading["throttled"] for reading in pair) for pair in zip(blocks[2::2], blocks[3::2], strict=True))
    assert slowed * BLOCK_ROUNDS == detail["throttled_rounds_left_out"] + detail["throttled_rounds_kept"]
    assert (result.gpu_uuid, result.timer) == (machine.gpu.uuid, "cupti")


def test_each_launch_of_a_replay_is_a_process_of_its_own(machine: Machine) -> None:
    side = ReplaySide(LIBRARY, machine.cubins[4, 1, rows.RIGHT])
    slow = ReplaySide(LIBRARY, machine.cubins[4, 40, rows.RIGHT])
    request = ReplayRequest(KERNEL, PROBLEM, machine.arch, machine.store_url, side, slow, 3, machine.gpu.index)
    launched: list[int] = []
    result = replay(request, on_launch=launched.append)
    assert launched == [1, 2, 3]
    assert all(good < bad for good, bad in zip(result.base_us, result.head_us, strict=True))
    assert result.counters is not None, "they differ"
    if "missing" in result.counters:
        assert "(ncu)" in result.counters["missing"] or FORBIDDEN in result.counters["missing"]
    else:
        # An H200 counts 347,136 beside 188,416: most of a small launch is not the adding (2026-11-22).
        assert result.counters["bad"]["instructions"] > 1.5 * result.counters["good"]["instructions"]


HONEST_OPERATOR = """
import cuda.tile as ct
import torch
from tilewatch import case, watch

@ct.kernel
def add_rows(x, y, total, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    row = ct.bid(0)
    both = ct.load(x, (row, 0), (ROWS, COLUMNS)) + ct.load(y, (row, 0), (ROWS, COLUMNS))
    ct.store(total, (row, 0), both)

@ct.kernel
def scale_rows(total, out, factor, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    row = ct.bid(0)
    ct.store(out, (row, 0), ct.load(total, (row, 0), (ROWS, COLUMNS)) * factor)

def add_and_scale(x, y, rows):
    total, out = torch.empty_like(x), torch.empty_like(x)
    stream, grid, columns = torch.cuda.current_stream(), (x.shape[0] // rows, 1, 1), x.shape[1]
    ct.launch(stream, grid, add_rows, (x, y, total, rows, columns))
    ct.launch(stream, grid, scale_rows, (total, out, 1.5, rows, columns))
    return out  # the result

@watch(problems="1024x256", names="rows x cols", baselines=("torch", "copy"), configs={"rows": [1, 4]})
def scaled_sum(p):
    x, y = p.randn(p.rows, p.cols), p.randn(p.rows, p.cols)
    return case(
        run=lambda rows: add_and_scale(x, y, rows),
        reference=lambda: (x + y) * 1.5,
        torch=lambda: torch.add(x, y).mul_(1.5),
    )
"""

SCALE_AGAIN = "    ct.launch(stream, grid, scale_rows, (total, out, 1.5, rows, columns))\n"

PATCHES = """
import sys
if "tilewatch.kernels.gpu.gpu_child" in sys.modules:  # not where it is read and compiled, without CuPy
    from tilewatch.kernels.gpu import gpu_child, result_error, rounds, timing
    from tilewatch.kernels.gpu.host_code import operator_results, prepared_launches
    timing.CuptiTimer.time = lambda self, launches, names, before=None: [0.5 for _ in launches]
    quick = lambda timer, entries, count, **_: rounds.TimedRounds(*2 * [[[0.5] * count for _ in entries]])
    rounds.time_rounds = gpu_child.time_rounds = quick
    operator_results.judge_result = prepared_launches.judge = lambda *_, **__: result_error.NO_ERROR
    prepared_launches.PreparedLaunches.verify = lambda *_: (0.5, result_error.NO_ERROR)
"""
"""What a watch file does to the timer and to the checker, when it is imported."""


def compile_operator(machine: Machine, folder: Path, source: str, store_url: str) -> tuple[Path, list[Cubin]]:
    """A checkout with a watch file, and the cubins of both configs of `scaled_sum`."""
    pytest.importorskip("torch")
    library = folder / "watch"
    library.mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.tilewatch]\n")
    (library / "operators.py").write_text(source)
    plan = catalog.read(library, arch=machine.arch, kernel="scaled_sum", problem="1024x256")[0]
    compiled = sorted(compile_plan(library, plan, store_url, jobs=2), key=lambda each: each[0].config["rows"])
    assert [each.failure for _, each in compiled] == [None, None]
    return library, [Cubin(trial.config, each.content_key or "", each.symbol or "") for trial, each in compiled]


def measure_operator(machine: Machine, folder: Path, source: str) -> RunResult:
    store_url = store.folder(folder)
    library, cubins = compile_operator(machine, folder, source, store_url)
    request = MeasureRequest(
        library, "scaled_sum", "1024x256", machine.arch, store_url, cubins, machine.gpu.index, ("torch", "copy")
    )
    return measure(request, on_trial=lambda _: None, on_step=lambda *_: None)


def test_host_code_of_two_launches_and_a_tensor_in_between_is_measured_apart(machine: Machine, tmp_path: Path) -> None:
    result = measure_operator(machine, tmp_path, HONEST_OPERATOR)
    assert [(each.status, each.failure) for each in result.trials] == [("timed", None)] * 2
    ours, own, copy = result.measurements
    assert ours.detail["library_runs_apart"], ours.detail.get("not_apart")
    assert list(ours.detail["parts_us"]) == ["1. add_rows", "2. scale_rows"]
    assert (own.implementation, copy.implementation) == ("torch", "copy")
    assert "missing" not in own.detail
    assert own.detail["timed_by"] == "a process of the library's"
    assert min(ours.samples_us) > 1.0, "two launches on an empty L2"
    if "no_counters" in ours.detail:
        assert "(ncu)" in ours.detail["no_counters"] or FORBIDDEN in ours.detail["no_counters"]
    else:
        array_bytes = 4 * 1024 * 256  # the first launch reads two, the second one more, each with L2 emptied before
        assert 2.7 * array_bytes <= ours.detail["counters"]["dram_read_bytes"] < 6 * array_bytes


def test_host_code_that_patches_the_timer_and_the_checker_is_timed_and_checked_all_the_same(
    machine: Machine, tmp_path: Path
) -> None:
    """Its second kernel leaves rows out with the config of four rows, as if they were there from an earlier launch."""
    wrong = "stream, (grid[0] - 3 * (rows == 4), 1, 1), scale_rows"
    source = HONEST_OPERATOR.replace("stream, grid, scale_rows", wrong)
    result = measure_operator(machine, tmp_path, PATCHES + source)
    assert [each.status for each in result.trials] == ["timed", "wrong"]
    assert (result.trials[1].failure or "").startswith("the output 1 left elements unwritten")
    (ours, *_) = result.measurements
    assert ours.detail["library_runs_apart"], ours.detail.get("not_apart")
    assert min(ours.samples_us) > 1.0, "0.5 is the patched timer's"


def test_each_side_of_a_replay_of_host_code_is_launched_as_it_says(machine: Machine, tmp_path: Path) -> None:
    store_url = store.folder(tmp_path)
    launched_often = HONEST_OPERATOR.replace("    return out  #", f"{SCALE_AGAIN * 20}    return out  #")
    good, (_, once) = compile_operator(machine, tmp_path / "older", PATCHES + HONEST_OPERATOR, store_url)
    bad, (_, often) = compile_operator(machine, tmp_path / "newer", PATCHES + launched_often, store_url)
    sides = ReplaySide(good, once), ReplaySide(bad, often)
    request = ReplayRequest("scaled_sum", "1024x256", machine.arch, store_url, *sides, 2, machine.gpu.index)
    result = replay(request, on_launch=lambda _: None)
    assert all(1.0 < one < other for one, other in zip(result.base_us, result.head_us, strict=True))


def test_host_code_that_finishes_its_result_itself_says_why_it_is_not_apart(machine: Machine, tmp_path: Path) -> None:
    source = HONEST_OPERATOR.replace("* factor)", "* (factor / 2))").replace("return out  #", "return out * 2  #")
    with pytest.raises(MeasureFailed, match="unless its watch file says why it has to"):
        measure_operator(machine, tmp_path / "unstated", source)
    source = source.replace("configs={", 'not_apart="it doubles with PyTorch", configs={')
    result = measure_operator(machine, tmp_path, source)
    assert {each.status for each in result.trials} == {"timed"}
    detail = result.measurements[0].detail
    assert not detail["library_runs_apart"]
    assert "its host code makes its result 1 itself" in detail["not_apart"]
    assert detail["stated"] == "it doubles with PyTorch"


NEIGHBOUR = """
import os, sys, time
import cupy
busy = cupy.ones(1 << 26)
began = time.monotonic()
while time.monotonic() - began < float(sys.argv[2]):
    busy *= 1.0
    busy.sum().get()
    if not os.path.exists(sys.argv[1]):
        with open(sys.argv[1], "w") as pid:
            pid.write(str(os.getpid()))
os.replace(sys.argv[1], sys.argv[1] + ".ended")
"""
"""Launches for some seconds. The file named first has its number meanwhile, and another name afterwards."""


def test_a_process_of_somebody_else_during_the_rounds_is_named_and_nothing_timed_beside_it_is_kept(
    machine: Machine, tmp_path: Path
) -> None:
    launching = tmp_path / "launching"
    detached = ["setsid", "--fork", sys.executable, "-c", NEIGHBOUR, str(launching), "6"]

    def on_step(step: str, *_: int) -> None:
        if step == "baselines":
            subprocess.run(detached, check=True, timeout=60)  # an orphan now, so none of ours
            for _ in range(600):
                if launching.exists() and launching.read_text():
                    return
                time.sleep(0.1)
            raise AssertionError("it did not launch")

    cubins = [machine.cubins[4, 1, rows.RIGHT]]
    request = MeasureRequest(
        LIBRARY, KERNEL, PROBLEM, machine.arch, machine.store_url, cubins, machine.gpu.index, ("copy",)
    )
    result = measure(request, on_trial=lambda _: None, on_step=on_step)
    ended = tmp_path / "launching.ended"
    assert ended.exists(), "the run waited for it"
    named = [reading["others"] for reading in result.telemetry if reading.get("others")]
    assert [[each.split()[0] for each in names] for names in named] == [[ended.read_text()]], "by the first reading"
    assert len(result.measurements[0].samples_us) >= 2 * BLOCK_ROUNDS


LOOKS = """
import json, subprocess, sys, time
import cupy, pynvml
from tilewatch.kernels.gpu.telemetry import Telemetry
telemetry, busy = Telemetry(sys.argv[1]), cupy.ones(1 << 26)
handle = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
busy.sum().get()
began, took_s = time.time(), []
other = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[3], "6"])
def look():
    started = time.perf_counter()
    found = telemetry.list_processes(began)
    took_s.append(time.perf_counter() - started)
    samples = pynvml.nvmlDeviceGetProcessUtilization(handle, int(began * 1e6))
    print("samples:", [(each.pid, each.smUtil, each.timeStamp / 1e6 - began) for each in samples], file=sys.stderr)
    print(json.dumps({"found": found, "other": other.pid}))
while other.poll() is None and time.time() < began + 4.0:
    busy *= 1.0
    busy.sum().get()
look()
other.wait()
look()
print(f"the looks took {[round(1000 * each, 2) for each in took_s]} ms", file=sys.stderr)
"""


def test_nvml_names_a_process_while_it_is_there_and_not_after_its_end(machine: Machine, tmp_path: Path) -> None:
    """It launched for seconds before the second look, and NVML has no sample of it once it has ended (driver
    580.159.04, 2026-11-23). Standard error has the samples."""
    asked = [sys.executable, "-c", LOOKS, machine.gpu.uuid, NEIGHBOUR, str(tmp_path / "launching")]
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["other"] in {*first["found"]["running"], *first["found"]["active"]}
    assert second["found"] == {"running": [], "active": [], "unknown": None}


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays_on_the_gpu() -> Iterator[None]:
    """Whatever a test did, no process of ours holds the GPU afterwards."""
    yield
    assert device.processes_on(device.gpus()[0].uuid) == ()
