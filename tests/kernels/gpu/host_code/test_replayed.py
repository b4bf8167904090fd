"""Host code of a watched operator, measured by a process that does not run it: real child processes on a fake GPU."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import UUID, install_for_children
from tests.kernels.fixtures.fake_gpu.host_code import OPERATOR, PROBLEM, SOURCE, Repository
from tests.kernels.fixtures.ncu import HEADER, make_ncu, row
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.gpu.described_launch import TIMES
from tilewatch.kernels.measuring.measure import MeasureRequest, measure
from tilewatch.kernels.measuring.pair_bench import ReplaySide
from tilewatch.kernels.measuring.replay import ReplayFailed, ReplayRequest, replay
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed, SweepResult, sweep
from tilewatch.kernels.results import Cubin
from tilewatch.metrics import Metric

Make = Callable[..., Repository]
TIMES_US = {16: 2 * 36.0, 32: 2 * 52.0}
"""Of both launches, by the config's tile (the fixture's cubins)."""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A checkout with the honest operator, in whose source each pair of texts is replaced."""
    install_for_children(monkeypatch)

    def made(*changes: tuple[str, str], before: str = "") -> Repository:
        source = SOURCE
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        return Repository(tmp_path, before + source)

    return made


def run_sweep(
    repository: Repository, described: Mapping[str, Any], *parts: Mapping[str, Any]
) -> tuple[SweepResult, GpuChild]:
    """Sweeps both configs; `parts` change what the launches of the wider one do."""
    cubins = [repository.cubin(16, described), repository.cubin(32, described, *parts)]
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    child = GpuChild(setup)
    try:
        if child.introduction["library_runs_apart"]:
            assert child._child is not None
            assert child._child._library is None, "its process has ended"
        return sweep(child, cubins, on_trial=lambda _: None), child
    finally:
        child.close()


def test_two_launches_with_a_tensor_in_between_are_measured_apart(make: Make) -> None:
    repository = make()
    described = repository.describe()
    result, child = run_sweep(repository, described)
    assert child.introduction["library_runs_apart"]
    assert [(each.failure, each.median_us) for each in result.trials] == [(None, TIMES_US[16]), (None, TIMES_US[32])]
    sets = described["operator"]["sets"]
    assert len(sets) == len({handle for each in sets for handle in each}) / 2 == 4, "two inputs in each of four sets"


OF_CUPY = (
    ("import torch\n", "import cupy\nimport numpy as np\n"),
    ("torch.empty_like(x), torch.empty_like(x)", "cupy.empty_like(x), cupy.empty_like(x)"),
    ("torch.cuda.current_stream(), (x.shape[0],), add_rows", "0, (x.shape[0],), add_rows"),
    ("torch.cuda.current_stream(), (x.shape[0],), softmax_rows", "0, (x.shape[0],), softmax_rows"),
    ("p.randn(p.rows, p.cols), p.randn(p.rows, p.cols)", "draw(p, 0), draw(p, 1)"),
    ("(x + y).softmax(-1)", "softmax(np.asarray(x + y))"),
    ("torch.softmax(x + y, -1)", "cupy.asarray(softmax(np.asarray(x + y)))"),
)
DRAWN = """
def draw(p, number):
    values = cupy.random.default_rng(2 * p.seed + number).standard_normal(128, dtype=np.float32)
    return values.reshape(p.rows, p.cols)

def softmax(values):
    e = np.exp(values - values.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""


def test_arrays_of_cupy_are_measured_apart(make: Make) -> None:
    repository = make(*OF_CUPY, before=DRAWN)
    result, child = run_sweep(repository, repository.describe())
    assert child.introduction["library_runs_apart"]
    assert [(each.failure, each.median_us) for each in result.trials] == [(None, TIMES_US[16]), (None, TIMES_US[32])]


def test_an_output_of_cupy_that_a_kernel_leaves_unwritten_is_wrong(make: Make) -> None:
    repository = make(*OF_CUPY, before=DRAWN)
    result, _ = run_sweep(repository, repository.describe(), {}, {"fault": "last row unwritten"})
    assert [each.failure is None for each in result.trials] == [True, False]


UNCHECKED = (
    ('configs={"tile": [16, 32]})', 'configs={"tile": [16, 32]}, unchecked="the tile decides its shape")'),
    ("reference=lambda: (x + y).softmax(-1),", ""),
    ('baselines=("torch", "copy")', 'baselines=("copy",)'),
    ("torch=lambda: torch.softmax(x + y, -1),", ""),
)


def test_an_unchecked_result_is_timed_and_the_run_has_the_reason(make: Make) -> None:
    repository = make(*UNCHECKED)
    described = repository.describe()
    assert described["operator"]["reference"] == [[]] * len(described["operator"]["reference"])
    result, child = run_sweep(repository, described, {}, {"fault": "last row unwritten"})
    assert [(each.failure, each.median_us) for each in result.trials] == [(None, TIMES_US[16]), (None, TIMES_US[32])]
    assert (child.introduction["library_runs_apart"], child.introduction["unchecked"]) == (
        True,
        "the tile decides its shape",
    )


BY_EVENTS = (
    (', configs={"tile": [16, 32]}', ""),
    ("run=lambda tile: add_softmax_rows(x, y, tile)", "run=lambda y: add_softmax_rows(x, y, tune(x, y))"),
    ("return case(", "return case(before=lambda: y,"),
)
TUNE = """
def tune(x, y):
    times = {}
    for tile in (32, 16):
        start, end = torch.cuda.Event(), torch.cuda.Event()
        start.record()
        ct.launch(torch.cuda.current_stream(), (x.shape[0],), add_rows, (x, y, torch.empty_like(x), tile))
        end.record()
        times[start.elapsed_time(end)] = tile
    return times[min(times)]
"""


def test_launches_that_host_code_times_are_no_part_of_the_operator(make: Make) -> None:
    described = make(*BY_EVENTS, before=TUNE).describe()["operator"]["configs"]
    assert list(described) == ['{"TILE": 32}', '{"TILE": 16}']
    assert all(
        [each["symbol"] for each in config["launches"]] == ["add_rows", "softmax_rows"] for config in described.values()
    )
    assert len({config["launches"][0]["key"] for config in described.values()}) == 2


IN_PLACE = (
    ("add_rows, (x, y, total, tile)", "add_rows, (x, y, x, tile)"),
    ("softmax_rows, (total, out, tile)", "add_rows, (x, y, x, tile)"),
    ("return out", "return x"),
    ("reference=lambda: (x + y).softmax(-1)", "reference=lambda: x + y + y"),
)


def test_a_process_that_replaces_another_restores_what_its_configs_write_to(make: Make) -> None:
    repository = make(*IN_PLACE)
    cubin = repository.cubin(16, repository.describe())
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    child = GpuChild(setup)
    try:
        assert child.trial(0, cubin, 5).status == "timed"
        assert child._child is not None
        child._child.close()
        child._loaded.clear()
        assert len(child.time([0], 5, deadline_s=60.0)[0]) == 5, "every result is compared"
    finally:
        child.close()


def test_what_is_computed_in_place_starts_from_the_same_values_at_each_launch(make: Make) -> None:
    """Every timed result is compared; adding to what was added before would be wrong."""
    repository = make(*IN_PLACE)
    result, child = run_sweep(repository, repository.describe())
    assert child.introduction["library_runs_apart"]
    assert [(each.status, each.failure) for each in result.trials] == [("timed", None)] * 2


def test_a_watch_file_s_own_baseline_is_timed_by_its_own_process(make: Make) -> None:
    repository = make()
    described = repository.describe()
    request = MeasureRequest(
        repository.watch, OPERATOR, PROBLEM, "sm_90", repository.store_url,
        [repository.cubin(each, described) for each in (16, 32)], 0, ("torch", "copy"),
    )  # fmt: skip
    result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    ours, own, copy = result.measurements
    assert (ours.detail["library_runs_apart"], set(ours.samples_us)) == (True, {TIMES_US[16]})
    assert "not_apart" not in ours.detail
    assert ours.detail["parts_us"] == {"1. add_rows": 36.0, "2. softmax_rows": 36.0}
    assert ours.detail["span_us"] == [2 * 36.0 + 0.5] * len(ours.samples_us), "the GPU starts the second 0.5 us later"
    assert ours.detail["graph_us"] == [2 * 36.0 + 0.5] * 40
    assert (own.implementation, set(own.samples_us), own.detail["kernels"]) == ("torch", {90.0}, ["torch_softmax"])
    assert own.detail["timed_by"] == "a process of the library's"
    assert copy.implementation == "copy"
    assert ours.detail["stopped"] == "interval", "of the ratio to the main baseline, which is the watch file's own"
    assert len(ours.samples_us) == len(own.samples_us) == len(copy.samples_us)


def test_a_refused_graph_costs_a_run_no_more_than_the_graph_s_spans(make: Make) -> None:
    repository = make()
    cubin = repository.cubin(16, repository.describe(), {"fault": "no_graph"})
    request = MeasureRequest(repository.watch, OPERATOR, PROBLEM, "sm_90", repository.store_url, [cubin], 0, ())
    (ours,) = measure(request, on_trial=lambda _: None, on_step=lambda *_: None).measurements
    assert ours.detail["no_graph"] == "CUDADriverError: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    assert "graph_us" not in ours.detail
    assert len(ours.detail["span_us"]) == len(ours.samples_us)


def test_a_refused_graph_ends_a_replay_by_graph(make: Make, tmp_path: Path) -> None:
    good, bad = make_two(make, tmp_path)
    cubins = good.cubin(16, good.describe()), bad.cubin(16, bad.describe(), {"fault": "no_graph"})
    request = replace(start_replay(good, bad, cubins), metric="graph")
    with pytest.raises(ReplayFailed, match="no CUDA graph: CUDADriverError: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
        replay(request, on_launch=lambda _: None)


def test_counters_are_read_of_all_its_launches(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(row(number, "smsp__inst_executed.sum", str(100 + number % 2)) for number in range(2 * TIMES))
    monkeypatch.setenv("PATH", f"{make_ncu(tmp_path / 'bin', HEADER + rows)}:{os.environ['PATH']}")
    repository = make()
    cubin = repository.cubin(16, repository.describe())
    request = MeasureRequest(repository.watch, OPERATOR, PROBLEM, "sm_90", repository.store_url, [cubin], 0, ("copy",))
    result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    assert result.measurements[0].detail["counters"] == {"instructions": 201}
    (described,) = json.loads((tmp_path / "bin" / "launches").read_text())["described"]
    assert [each["symbol"] for each in described["launches"]] == ["add_rows", "softmax_rows"]


def start_replay(good: Repository, bad: Repository, cubins: tuple[Cubin, Cubin]) -> ReplayRequest:
    """Both sides' cubins are in one store."""
    sides = ReplaySide(good.watch, cubins[0]), ReplaySide(bad.watch, cubins[1])
    return ReplayRequest(OPERATOR, PROBLEM, "sm_90", bad.store_url, *sides, 1, 0)


def make_two(make: Make, tmp_path: Path, older: str = "", newer: str = "") -> tuple[Repository, Repository]:
    """An older commit of the operator and a newer one, with these in front of their sources."""
    bad = make(before=newer)
    (tmp_path / "older").mkdir()
    good = Repository(tmp_path / "older", older + SOURCE)
    good.store_url = bad.store_url
    return good, bad


REFUSES_THE_OTHER = """
from tilewatch.kernels.catalog import loading
from tilewatch.kernels.gpu import library_child
honest = loading.load
def load(library, *more):
    if ("older" in str(library)) != IS_OLDER: raise SystemExit("the other side was loaded here")
    return honest(library, *more)
library_child.load = loading.load = load
"""


def test_each_side_of_a_replay_is_described_by_its_own_process(make: Make, tmp_path: Path) -> None:
    older, newer = (f"IS_OLDER = {each}\n{PATCHES}{REFUSES_THE_OTHER}" for each in (True, False))
    good, bad = make_two(make, tmp_path, older, newer)
    cubins = good.cubin(16, good.describe()), bad.cubin(16, bad.describe(), {"time_us": 40.0})
    result = replay(start_replay(good, bad, cubins), on_launch=lambda _: None)
    assert (result.base_us, result.head_us) == ((TIMES_US[16],), (TIMES_US[16] + 4.0,))


@pytest.mark.parametrize("gap_us", [2.0, -10.0])
@pytest.mark.parametrize(("metric", "gap"), [("span", "gap_us"), ("graph", "graph_gap_us")])
def test_a_replay_by_span_sees_gaps_and_overlaps(
    make: Make, tmp_path: Path, metric: Metric, gap: str, gap_us: float
) -> None:
    good, bad = make_two(make, tmp_path)
    cubins = good.cubin(16, good.describe()), bad.cubin(16, bad.describe(), {}, {gap: gap_us})
    request = replace(start_replay(good, bad, cubins), metric=metric)
    result = replay(request, on_launch=lambda _: None)
    span_us = 2 * 36.0 + 0.5
    assert (result.base_us, result.head_us) == ((span_us,), (span_us + gap_us,))


def test_a_side_of_a_replay_whose_results_have_other_shapes_is_other_work(make: Make, tmp_path: Path) -> None:
    good, bad = make_two(make, tmp_path)
    source = (good.watch / "operators.py").read_text()
    halved = source.replace("return out", "return out[:4]").replace(".softmax(-1),", ".softmax(-1)[:4],")
    (good.watch / "operators.py").write_text(halved)
    cubins = good.cubin(16, good.describe()), bad.cubin(16, bad.describe())
    with pytest.raises(ReplayFailed, match=r"with the base it gives wrong results: .* has results of other shapes"):
        replay(start_replay(good, bad, cubins), on_launch=lambda _: None)


STAYS = {
    "it works on what a kernel wrote": ("# between", "total = total * 1.0", "looks at what a kernel wrote, or does"),
    "it writes between launches": ("# between", "total.mul_(2.0)", "writes between launches into memory"),
    "it finishes the result in place": ("# after", "out.mul_(1.0)\n    out.array[0, 0] = 7", "finishes its result 1"),
    "it makes the result itself": ("# after", "out = out * 1.0", "makes its result 1 itself"),
    "it gives a kernel a list": (
        "add_rows, (x, y, total, tile)",
        "add_rows, ([x], y, total, tile)",
        "gives a kernel a list",
    ),
    "it does something else each time": (
        "# between",
        "global TIMES\n    TIMES += 1\n    x = x * TIMES\n"
        "    ct.launch(0, (1,), add_rows, (x, y, torch.empty_like(x), tile))",
        "does something else each time",
    ),
}


STATED = ("configs={", 'not_apart="its kernels are not all of it", configs={')
"""What a watch file says of an operator that its own process has to measure."""


@pytest.mark.parametrize("case", STAYS)
def test_host_code_whose_launches_are_not_all_of_it_is_measured_by_its_own_process_and_says_so(
    make: Make, case: str
) -> None:
    old, new, reason = STAYS[case]
    repository = make((old, new), STATED, before="TIMES = 0\n")
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    child = GpuChild(setup)
    child.close()
    assert not child.introduction["library_runs_apart"]
    assert child.introduction["not_apart"].startswith("its host code ")
    assert reason in child.introduction["not_apart"]
    assert child.introduction["stated"] == "its kernels are not all of it"


@pytest.mark.parametrize("case", STAYS)
def test_host_code_that_would_measure_itself_is_refused_unless_its_watch_file_says_why(make: Make, case: str) -> None:
    old, new, reason = STAYS[case]
    repository = make((old, new), before="TIMES = 0\n")
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    with pytest.raises(SweepFailed, match=f"{reason}.*unless its watch file says why it has to: watch"):
        GpuChild(setup)


def test_whoever_runs_the_workers_may_allow_all_host_code_to_measure_itself(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.REQUIRE_APART, "0")
    old, new, _ = STAYS["it makes the result itself"]
    repository = make((old, new))
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    child = GpuChild(setup)
    child.close()
    assert not child.introduction["library_runs_apart"]


@pytest.mark.parametrize("own", [(), ("torch",)])
def test_who_runs_the_workers_may_refuse_host_code_that_would_measure_itself(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: tuple[str, ...]
) -> None:
    """What is in the commit does not choose: neither for its kernels nor for its own baselines."""
    monkeypatch.setenv(sandbox.REQUIRE_APART, "1")
    old, new, reason = STAYS["it makes the result itself"]
    stays = make((old, new), STATED)
    setup = GpuSetup(stays.watch, OPERATOR, PROBLEM, stays.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID})
    with pytest.raises(
        SweepFailed, match=f"{reason}.*, and TILEWATCH_REQUIRE_APART is set: no process measures the code"
    ):
        GpuChild(setup)
    apart = Repository(tmp_path / "apart", SOURCE)
    described = apart.describe()
    cubins = [apart.cubin(16, described, {}, {"fault": "off"}), apart.cubin(32, described)]
    request = MeasureRequest(apart.watch, OPERATOR, PROBLEM, "sm_90", apart.store_url, cubins, 0, (*own, "copy"))
    result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    assert [each.status for each in result.trials] == ["wrong", "timed"]
    assert "launched by what its host code said (TILEWATCH_REQUIRE_APART), the output" in (
        result.trials[0].failure or ""
    )
    assert result.measurements[0].detail["library_runs_apart"]
    missing = {each.implementation: each.detail["missing"] for each in result.measurements if not each.samples_us}
    assert list(missing) == list(own)
    assert all(
        "it times the watch file's own baselines, and TILEWATCH_REQUIRE_APART" in each for each in missing.values()
    )


RIGHT_BY_ITSELF = """
from tilewatch.kernels.gpu.host_code.prepared_operator import PreparedOperator
from tilewatch.kernels.gpu.result_error import NO_ERROR
PreparedOperator.verify = lambda *_: (50.0, NO_ERROR)
PreparedOperator.launch = lambda *_: None
"""
"""Makes its own process find that any host code is right."""


def test_launches_that_do_not_give_the_result_of_the_host_code_are_left_to_its_own_process(make: Make) -> None:
    repository = make(STATED, before=RIGHT_BY_ITSELF)
    described = repository.describe()
    wrong = repository.cubin(16, described, {}, {"fault": "off"})
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    child = GpuChild(setup)
    try:
        assert child.introduction["library_runs_apart"]
        child.trial(0, wrong, 1, best_us=1.0)
        assert not child.introduction["library_runs_apart"]
        assert child.introduction["not_apart"].startswith(
            "launching again what its host code launched does not give its result: the output 1 is off by "
        )
        child._child.close()  # type: ignore[union-attr]
        child.trial(1, wrong, 1, best_us=1.0)
        assert not child.introduction["library_runs_apart"], "of the process that replaces it, too"
    finally:
        child.close()


def test_a_failure_that_needs_no_second_opinion_does_not_spare_the_next_one_from_it(make: Make) -> None:
    repository = make(STATED, before=RIGHT_BY_ITSELF)
    described = repository.describe()
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    child = GpuChild(setup)
    try:
        writes = child.trial(0, repository.cubin(32, described, {}, {"writes": "behind"}), 1, best_us=1.0)
        assert (writes.status, child.introduction["library_runs_apart"]) == ("wrong", True)
        child.trial(1, repository.cubin(16, described, {}, {"fault": "off"}), 1, best_us=1.0)
        assert not child.introduction["library_runs_apart"], "its own process finds the second one right"
    finally:
        child.close()


def test_a_wrong_config_is_wrong_where_its_own_process_says_the_same(make: Make) -> None:
    repository = make()
    described = repository.describe()
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    child = GpuChild(setup)
    try:
        trial = child.trial(0, repository.cubin(16, described, {}, {"fault": "off"}), 1)
        assert (trial.status, child.introduction["library_runs_apart"]) == ("wrong", True)
        assert child.trial(1, repository.cubin(32, described), 1).status == "timed"
    finally:
        child.close()


PATCHES = """
import atexit, os, sys, threading, time
from tilewatch.kernels.gpu import gpu_child, result_error, rounds, timing
from tilewatch.kernels.gpu.host_code import prepared_launches
timing.CuptiTimer.time = lambda self, launches, names, before=None: [1.0 for _ in launches]
quick = lambda timer, entries, count, **_: rounds.TimedRounds(*2 * [[[1.0] * count for _ in entries]])
rounds.time_rounds = gpu_child.time_rounds = quick
result_error.judge = prepared_launches.judge = lambda *_: result_error.NO_ERROR
prepared_launches.PreparedLaunches.verify = lambda *_: (1.0, result_error.NO_ERROR)
time.monotonic = time.perf_counter = lambda: 0.0
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def test_what_host_code_does_to_its_own_process_changes_neither_times_nor_checks(make: Make) -> None:
    repository = make(before=PATCHES)
    result, child = run_sweep(repository, repository.describe(), {}, {"fault": "off"})
    assert child.introduction["library_runs_apart"]
    assert [each.median_us for each in result.trials] == [TIMES_US[16], None]
    assert (result.trials[1].failure or "").startswith("the output 1 is off by")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "the last rows are skipped": ({"fault": "last row unwritten"}, "the output 1 left elements unwritten"),
    "it computes when it is checked, and not when it is timed": (
        {"fault": "rests later", "fault_after": 1},
        "when it was timed, the output 1 left elements unwritten",
    ),
    "it computes for one set of inputs alone": (
        {"fault": "rests on other sets"},
        "when it was timed, the output 1 left elements unwritten",
    ),
    "it is wrong on every other set of inputs": (
        {"fault": "off on other sets", "off_by": 50},
        "when it was timed, the output 1 is off by",
    ),
    "it keeps a mark in its input once it was checked": (
        {"fault": "marks its input", "fault_after": 1},
        "when it was timed, ",  # what it computes of the mark is wrong too, on a set that it was launched on before
    ),
    "it writes behind what it makes": (
        {"writes": "behind"},
        "it writes outside of its arrays: 4 bytes behind memory that is no input, the first one 0 after its end",
    ),
    "it writes in front of its input once it was checked": (
        {"writes": "in front", "writes_after": 1},
        "when it was timed, it wrote outside of its arrays: 4 bytes in front of input 1, the first one 4 before its",
    ),
}


@pytest.mark.parametrize("cheat", WRONG)
def test_a_kernel_that_cheats_is_wrong(make: Make, cheat: str) -> None:
    fault, sentence = WRONG[cheat]
    repository = make()
    result, child = run_sweep(repository, repository.describe(), fault)
    assert child.introduction["library_runs_apart"]
    assert [each.status for each in result.trials] == ["timed", "wrong"]
    assert sentence in (result.trials[1].failure or "")


def test_host_code_that_writes_outside_of_its_memory_is_not_asked_whether_it_is_right_without_guards(
    make: Make,
) -> None:
    repository = make(before=RIGHT_BY_ITSELF)
    cubin = repository.cubin(16, repository.describe(), {"writes": "behind"})
    setup = GpuSetup(
        repository.watch, OPERATOR, PROBLEM, repository.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}
    )
    child = GpuChild(setup)
    try:
        trial = child.trial(0, cubin, 1, best_us=1.0)
        assert (trial.status, child.introduction["library_runs_apart"]) == ("wrong", True)
    finally:
        child.close()


GRID_OF_THE_VALUES = (
    "(x.shape[0],), add_rows",
    "(x.shape[0] + int(abs(float(x.array[0, 0])) * 1e6) % 1000,), add_rows",
)


def test_host_code_that_launches_what_its_values_say_is_described_on_the_inputs_that_count(make: Make) -> None:
    """They are one set, so that each launch is on the inputs that are compared."""
    repository = make(GRID_OF_THE_VALUES)
    described = repository.describe()
    assert (len(described["operator"]["sets"]), len(described["operator"]["reference"])) == (1, 1)
    result, child = run_sweep(repository, described, {"fault": "off", "off_by": 50})
    assert child.introduction["library_runs_apart"]
    assert [each.status for each in result.trials] == ["timed", "wrong"]


PACKED = (
    "def add_softmax_rows(x, y, tile):",
    "def add_softmax_rows(x, y, tile):\n    if tile == 32:\n        x, y = x + 1.0, y + -1.0",
)


def test_what_one_config_alone_is_given_is_handed_over_for_each_set(make: Make) -> None:
    """The wider config makes other inputs of the same sum."""
    repository = make(PACKED)
    described = repository.describe()
    assert {len(each) for each in described["operator"]["sets"]} == {len(described["operator"]["contents"])} == {4}
    assert len(described["operator"]["sets"]) > 1
    result, child = run_sweep(repository, described, {"fault": "rests on other sets"})
    assert child.introduction["library_runs_apart"]
    assert [each.status for each in result.trials] == ["timed", "wrong"]


def test_a_result_that_is_there_before_the_launches_is_refused(make: Make) -> None:
    """The host code computes it with PyTorch; its kernels only take time."""
    repository = make(("total, out = torch.empty_like(x), torch.empty_like(x)", "total = out = (x + y).softmax(-1)"))
    nothing = {"fault": "rests later", "fault_after": 0}
    described = repository.describe()
    result, child = run_sweep(repository, described, nothing, nothing)
    assert child.introduction["library_runs_apart"]
    assert {each.failure for each in result.trials} == {
        "its result is there before its first launch, so that its launches do not compute it"
    }


def test_a_result_that_is_kept_from_an_earlier_run_launches_nothing(make: Make) -> None:
    repository = make(
        (
            "    total, out =",
            "    if hasattr(torch, f'kept_{tile}'):\n        return getattr(torch, f'kept_{tile}')\n    total, out =",
        ),
        ("# after", "setattr(torch, f'kept_{tile}', out)"),
    )  # fmt: skip
    configs = repository.describe()["operator"]["configs"]
    assert {each["failure"] for each in configs.values()} == {
        "the host code fails: TracingError: `run` launches no cuTile kernel"
    }
