"""The bench of pairs on a fake GPU, in real child processes: several pairs share a process, and one that dies is not
the others' end."""

import itertools
import runpy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, THIS_GPU, Rig, install_for_children
from tilewatch import processes
from tilewatch.kernels.children import child_process
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.device import GpuMissing
from tilewatch.kernels.measuring import gpu_processes, pair_bench
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.pair_bench import (
    Launched,
    LaunchFailed,
    LaunchResult,
    MeasureFailed,
    NoCupti,
    PairBench,
    PairWork,
    ReplaySide,
    describe_not_apart,
)
from tilewatch.kernels.measuring.preparation import Preparation
from tilewatch.kernels.measuring.sweep import GpuSetup, SweepFailed
from tilewatch.kernels.results import Cubin
from tilewatch.metrics import Metric


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    install_for_children(monkeypatch)
    monkeypatch.setattr(pair_bench, "MOST_AHEAD", 1)
    (tmp_path / "store").mkdir()
    return Rig(tmp_path / "store")


@pytest.fixture
def bench(rig: Rig) -> Iterator[PairBench]:
    with PairBench(0, "sm_90", rig.store_url) as opened:
        yield opened


def work(rig: Rig, base: Cubin, head: Cubin, problem: str = PROBLEM, library: Path = LIBRARY) -> PairWork:
    return PairWork(rig.kernel, problem, ReplaySide(library, base), ReplaySide(library, head))


def label_heads(base: PairWork, heads: Mapping[str, Cubin]) -> list[PairWork]:
    return [replace(base, head=ReplaySide(LIBRARY, head), label=label) for label, head in heads.items()]


def list_times(results: Sequence[LaunchResult]) -> list[tuple[float, float]]:
    return [(each.base_us, each.head_us) for each in results if isinstance(each, Launched)]


def test_pairs_of_several_problems_share_one_process(
    rig: Rig, bench: PairBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[None] = []
    start = pair_bench.GpuProcesses
    monkeypatch.setattr(pair_bench, "GpuProcesses", lambda *of, **how: (started.append(None), start(*of, **how))[1])
    works = [
        work(rig, rig.cubin(1, 100.0), rig.cubin(1, 103.0)),
        work(rig, rig.cubin(2, 50.0), rig.cubin(4, 40.0), "32x64"),
    ]
    results = [result for _, result in bench.launch_each(works)]
    assert list_times(results) == [(100.0, 103.0), (50.0, 40.0)]
    assert bench.gpu_s > 0
    assert len(started) == 2, "the one that was taken, and the one that waits for the next pairs"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What processes are asked, and their ends, in order: the role and number of a process, and the word."""
    events: list[tuple[str, str]] = []
    numbers = itertools.count(1)

    class Watched(ChildProcess):
        def __init__(self, role: str, **fields: Any) -> None:
            super().__init__(role, **fields)
            self.name = f"{role} {next(numbers)}"

        def _send(self, request: Mapping[str, Any], deadline: float) -> None:
            events.append((self.name, request["ask"]))
            super()._send(request, deadline)

        def close(self) -> None:
            events.append((self.name, "end"))
            super().close()

    monkeypatch.setattr(gpu_processes, "ChildProcess", Watched)
    return events


def list_asked(events: Sequence[tuple[str, str]], word: str) -> list[str]:
    return [name for name, each in events if each == word]


def test_one_library_process_serves_all_pairs_and_has_ended_before_any_is_launched(
    rig: Rig, bench: PairBench, asked: list[tuple[str, str]]
) -> None:
    """It makes a CUDA context: with one for each pair a launch on an H200 took 0.75 s and not 0.47 s."""
    base, head = rig.cubin(1, 100.0), rig.cubin(1, 103.0)
    works = [work(rig, base, head), work(rig, base, head, "32x64"), work(rig, head, base)]
    results = [result for _, result in bench.launch_each(works)]
    assert list_times(results) == [(100.0, 103.0), (100.0, 103.0), (103.0, 100.0)]
    assert list_asked(asked, "reference") == ["library 2"] * 3
    assert list_asked(asked, "take reference") == ["gpu 1"] * 3
    assert set(list_asked(asked, "trial")) == {"gpu 1"}
    assert asked.index(("library 2", "end")) < asked.index(("gpu 1", "trial"))


def test_heads_of_one_base_are_timed_in_one_launch_of_as_many_rounds(
    rig: Rig, bench: PairBench, asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []
    ask = gpu_processes.GpuProcesses.ask

    def note(self: gpu_processes.GpuProcesses, request: Mapping[str, Any], **named: Any) -> dict[str, Any]:
        rounds.extend(request[each] for each in ("rounds",) if request["ask"] == each)
        return ask(self, request, **named)

    monkeypatch.setattr(gpu_processes.GpuProcesses, "ask", note)
    pair = work(rig, rig.cubin(1, 1_000.0), rig.cubin(2, 1_000.0))
    heads = {"b": rig.cubin(2, 1_000.0), "c": rig.cubin(4, 1_010.0)}
    works = [*label_heads(pair, heads), work(rig, rig.cubin(4, 1_030.0), rig.cubin(1, 1_000.0))]
    launched = list(bench.launch_each(works))
    assert [each for each, _ in launched] == works
    assert list_times([result for _, result in launched]) == [
        (1_000.0, 1_000.0),
        (1_000.0, 1_010.0),
        (1_030.0, 1_000.0),
    ]
    assert len(list_asked(asked, "reference")) == 2
    assert len(list_asked(asked, "trial")) == 3 + 2
    warm_up, together, _, alone = rounds
    assert warm_up == pair_bench.COMPARED.warm_up
    assert together == alone < pair_bench.COMPARED.most, "40 ms hold 20 rounds of two such sides"


@pytest.mark.parametrize("fault", ["off", "abort", "rests on other sets"])
def test_a_head_that_fails_costs_the_other_heads_nothing(rig: Rig, bench: PairBench, fault: str) -> None:
    pair = work(rig, rig.cubin(1, 100.0), rig.cubin(1, 100.0))
    heads = {"b": rig.cubin(2, 101.0), "c": rig.cubin(1, fault=fault), "d": rig.cubin(4, 103.0)}
    first, failed, last = (result for _, result in bench.launch_each(label_heads(pair, heads)))
    assert list_times([first, last]) == [(100.0, 101.0), (100.0, 103.0)]
    assert isinstance(failed, LaunchFailed)
    assert failed.is_of_head
    assert failed.failure.startswith("with the head it ")


def test_a_base_that_fails_is_named_for_each_head(rig: Rig, bench: PairBench) -> None:
    pair = work(rig, rig.cubin(1, fault="off"), rig.cubin(1, 100.0))
    results = [each for _, each in bench.launch_each(label_heads(pair, dict.fromkeys("bc", rig.cubin(1, 100.0))))]
    failures = [(each.failure[:34], each.is_of_head) for each in results if isinstance(each, LaunchFailed)]
    assert failures == [("with the base it gives wrong resul", False)] * 2


def test_pairs_share_a_launch_only_if_label_and_head_alone_differ(rig: Rig, tmp_path: Path) -> None:
    pair = replace(work(rig, rig.cubin(1, 100.0), rig.cubin(2, 100.0)), label="b")
    assert pair_bench._group_by_base([pair, replace(pair, label="c", launches=3)])[0] == [
        pair,
        replace(pair, label="c", launches=3),
    ]
    elsewhere = ReplaySide(tmp_path, rig.cubin(4, 100.0))
    for other in (
        pair,  # a second launch of the same pair
        replace(pair, label="c", problem="32x64"),
        replace(pair, label="c", base=pair.head),
        replace(pair, label="c", head=elsewhere),
        replace(pair, label="c", metric="graph"),
        replace(pair, label="c", describes=True),
    ):
        assert pair_bench._group_by_base([pair, other]) == [[pair], [other]]
        assert pair_bench._group_by_base([other, pair]) == [[other], [pair]]


def test_the_gpu_is_not_charged_for_what_comes_before_its_turn(
    rig: Rig, bench: PairBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Describing a problem and waiting for another series need no GPU."""
    prepare = gpu_processes.GpuProcesses.prepare

    def take_longer(self: gpu_processes.GpuProcesses, *asked: Any, **named: Any) -> dict[str, Any]:
        return {**prepare(self, *asked, **named), "ahead_s": 1000.0, "waited_s": 2000.0}

    monkeypatch.setattr(gpu_processes.GpuProcesses, "prepare", take_longer)
    list(bench.launch_each([work(rig, rig.cubin(1), rig.cubin(1, 103.0))]))
    assert -3000 < bench.gpu_s < -2100, "the launch itself takes seconds"


def test_what_does_not_fit_on_the_gpu_is_taken_over_later(
    rig: Rig, bench: PairBench, asked: list[tuple[str, str]]
) -> None:
    """Each process of the library ends before the pairs are launched whose references it computed."""
    base, head = rig.cubin(1, 7_000.0), rig.cubin(1, 7_100.0)
    problem = "512x1024"  # the references of two are an eighth of the fake GPU's memory
    works = [replace(work(rig, base, head, problem), launches=seed) for seed in range(3)]
    assert list_times([result for _, result in bench.launch_each(works)]) == [(7_000.0, 7_100.0)] * 3
    first, second, later = list_asked(asked, "reference")
    assert first == second != later
    order = [word for name, word in asked if word in ("reference", "expect") or (name == later and word == "end")]
    assert order == ["reference"] * 2 + ["expect"] * 2 + ["reference", "end", "expect"]


def test_a_reference_that_fails_costs_its_own_pair_alone(rig: Rig, tmp_path: Path) -> None:
    """Whether it ends its process or is not that of the kernel."""
    honest = "def residual_add(inputs, xp):\n"
    ends = "    if inputs['x'].shape[0] == 32: __import__('os')._exit(7)\n"
    renames = "    if inputs['x'].shape[0] == 16: return {'z': inputs['x']}\n"
    (tmp_path / "broken").mkdir()
    source = (LIBRARY / "rows.py").read_text()
    (tmp_path / "broken" / "rows.py").write_text(source.replace(honest, honest + ends + renames))
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")
    good = rig.cubin(1, 100.0)
    works = [work(rig, good, good, problem, tmp_path / "broken") for problem in ("64x64", "32x64", "16x64", "64x32")]
    with PairBench(0, "sm_90", rig.store_url) as bench:
        first, dead, refused, last = (result for _, result in bench.launch_each(works))
    assert list_times([first, last]) == [(100.0, 100.0)] * 2
    assert isinstance(dead, LaunchFailed)
    assert (dead.failure, dead.is_final) == ("something ended the GPU process: exit code 7", False)
    assert isinstance(refused, LaunchFailed)
    assert "reference gives z, but it writes y" in refused.failure
    assert refused.is_final


FORGED = """
from tilewatch.kernels.gpu import library_child
honest = library_child._describe
library_child._describe = lambda *asked: {**honest(*asked), "flops": -1}
"""


@pytest.mark.parametrize("forged", ["base", "head"])
def test_a_description_that_the_code_of_a_side_forged_is_refused(
    rig: Rig, bench: PairBench, tmp_path: Path, forged: str
) -> None:
    (tmp_path / "forging").mkdir()
    (tmp_path / "forging" / "rows.py").write_text((LIBRARY / "rows.py").read_text() + FORGED)
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")
    cubin = rig.cubin(1, 100.0)
    folders = {"base": LIBRARY, "head": LIBRARY, forged: tmp_path / "forging"}
    pair = PairWork(rig.kernel, PROBLEM, ReplaySide(folders["base"], cubin), ReplaySide(folders["head"], cubin))
    ((_, result),) = bench.launch_each([pair])
    assert isinstance(result, LaunchFailed)
    assert "the described problem is not as it must be: flops" in result.failure


def test_a_side_that_fails_is_named_and_the_next_pair_goes_on(rig: Rig, bench: PairBench) -> None:
    good = rig.cubin(1, 100.0)
    works = [
        work(rig, good, rig.cubin(1, fault="off")),
        work(rig, rig.cubin(2, fault="off"), good),
        work(rig, good, rig.cubin(1, fault="rests on other sets")),
        work(rig, good, rig.cubin(1, fault="abort")),
        work(rig, good, rig.cubin(1, fault="fault")),
        work(rig, good, good),
    ]
    wrong, of_a, on_one_set, dead, faulty, fine = (result for _, result in bench.launch_each(works))
    assert isinstance(wrong, LaunchFailed)
    assert wrong.failure.startswith("with the head it gives wrong results: the output 'y' is off by")
    assert (wrong.is_of_head, wrong.is_final) == (True, True)
    assert isinstance(of_a, LaunchFailed)
    assert of_a.failure.startswith("with the base it gives wrong results: ")
    assert not of_a.is_of_head
    assert isinstance(on_one_set, LaunchFailed)
    assert on_one_set.failure.startswith("with the head it gives wrong results: when it was timed, the output 'y' ")
    assert (on_one_set.is_of_head, on_one_set.is_final) == (True, True)
    assert dead == LaunchFailed("with the head it ends its GPU process: SIGABRT", is_of_head=True, is_final=False)
    assert isinstance(faulty, LaunchFailed)
    assert (faulty.failure[:34], faulty.is_final) == ("with the head it faults on the GPU", False)
    assert list_times([fine]) == [(100.0, 100.0)]


@pytest.mark.parametrize(
    ("sides", "who", "why"),
    [
        (("fine", "rests later"), "with the head it", "the output 'y' left elements unwritten"),
        (("rests later", "fine"), "with the base it", "the output 'y' left elements unwritten"),
        (("fine", "marks its input"), "one side", "'x', which is an input, was changed"),
        (("marks its input", "fine"), "one side", "'x', which is an input, was changed"),
    ],
)
def test_a_side_that_is_wrong_when_both_are_timed_is_named(
    rig: Rig, bench: PairBench, sides: tuple[str, str], who: str, why: str
) -> None:
    """It was always "one side", so a wrong head was no failure of the head. A side that changes an input makes the
    results of both wrong."""
    base, head = (rig.cubin(tiles, fault=each, fault_after=16) for tiles, each in enumerate(sides, start=1))
    ((_, result),) = bench.launch_each([work(rig, base, head)])
    assert isinstance(result, LaunchFailed)
    assert result.failure.startswith(f"{who} gives wrong results: when it was timed, ")
    assert why in result.failure
    assert (result.is_of_head, result.is_final) == (who == "with the head it", True)


def test_without_cupti_nothing_is_timed_unless_events_are_asked_for(
    rig: Rig, bench: PairBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "PASSED_ON", (*child_process.PASSED_ON, "FAKE_CUPTI"))
    monkeypatch.setenv("FAKE_CUPTI", "missing")
    pair = work(rig, rig.cubin(1, 100.0), rig.cubin(1, 103.0))
    with pytest.raises(NoCupti, match="or compare by events"):
        list(bench.launch_each([pair]))
    with PairBench(0, "sm_90", rig.store_url, may_use_events=True) as by_events:
        ((_, result),) = by_events.launch_each([pair])
    assert isinstance(result, Launched)
    assert result.base_us < result.head_us


@pytest.mark.parametrize("failures", [1, pair_bench.ROOM_TRIES], ids=("comes", "stays"))
def test_a_launch_waits_for_room_on_the_gpu(
    rig: Rig, bench: PairBench, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Other series of the worker hold memory until they have measured; a replay had no answer for it."""
    prepare, seeds = gpu_processes.GpuProcesses.prepare, list[int]()

    def find_no_room(self: gpu_processes.GpuProcesses, asked: Preparation, **named: Any) -> dict[str, Any]:
        seeds.append(asked.seed)
        if len(seeds) <= failures:
            raise ChildDied("exit code 1: OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes")
        return prepare(self, asked, **named)

    monkeypatch.setattr(gpu_processes.GpuProcesses, "prepare", find_no_room)
    monkeypatch.setattr(pair_bench, "ROOM_WAIT_S", 0.0)
    pair = work(rig, rig.cubin(1, 100.0), rig.cubin(1, 103.0))
    first, second = (result for _, result in bench.launch_each([pair, pair]))
    assert isinstance(first, Launched) == (failures == 1)
    assert isinstance(second, Launched)
    assert len(set(seeds)) == len(seeds) == failures + 1 + (failures == 1)


def test_a_race_puts_the_fastest_first_and_leaves_out_what_is_wrong(rig: Rig, bench: PairBench) -> None:
    cubins = [rig.cubin(1), rig.cubin(2, 80.0), rig.cubin(4, 70.0, fault="off")]
    assert bench.race(LIBRARY, rig.kernel, PROBLEM, rig.store_url, cubins) == ({"tile_rows": 2},)


def test_a_race_is_of_the_given_configs_and_not_of_the_short_list(
    rig: Rig, bench: PairBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other config counted as wrong, so a re-tuning could not find one outside the list."""
    setups: list[GpuSetup] = []

    def refuse(setup: GpuSetup) -> None:
        setups.append(setup)
        raise SweepFailed("seen")

    monkeypatch.setattr(pair_bench, "GpuChild", refuse)
    with pytest.raises(MeasureFailed, match="seen"):
        bench.race(LIBRARY, rig.kernel, PROBLEM, rig.store_url, [rig.cubin(1), rig.cubin(2)])
    assert setups[0].configs == ({"tile_rows": 1}, {"tile_rows": 2})


def test_pairs_of_two_libraries_share_a_process_and_each_side_is_described_once(
    rig: Rig, bench: PairBench, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "rows.py").write_text((LIBRARY / "rows.py").read_text())
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")  # its files may import what they like
    older, cubin = ReplaySide(tmp_path / "older", rig.cubin(1, 100.0)), rig.cubin(1, 103.0)
    works = [PairWork(rig.kernel, problem, older, ReplaySide(LIBRARY, cubin)) for problem in (PROBLEM, "32x64")]
    for _ in range(2):
        assert list_times([result for _, result in bench.launch_each(works)]) == [(100.0, 103.0)] * 2
    assert len(list_asked(asked, "describe side")) == 2
    assert len(set(list_asked(asked, "trial"))) == 2, "one process per pass"


def test_cubins_of_an_object_store_are_fetched_for_the_processes_of_a_pair(rig: Rig) -> None:
    """Such a process knows no store but a folder."""
    url, cubins = "memory://pairs", [rig.cubin(1, 100.0), rig.cubin(1, 103.0)]
    here, remote = CubinStore(rig.store_url), CubinStore(url)
    for each in cubins:
        remote.put(each.content_key, {}, here.cubin(each.content_key))
    with PairBench(0, "sm_90", url) as bench:
        assert list_times([result for _, result in bench.launch_each([work(rig, *cubins)])]) == [(100.0, 103.0)]


def test_no_request_may_take_longer_than_its_own_seconds(
    rig: Rig, bench: PairBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs holds the GPU until then."""
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "rows.py").write_text((LIBRARY / "rows.py").read_text())
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")  # its files may import what they like
    allowed_s: dict[str, float] = {}
    send = ChildProcess._send

    def note(self: ChildProcess, request: Mapping[str, Any], deadline: float) -> None:
        left_s = deadline - time.monotonic()
        allowed_s[request["ask"]] = max(left_s, allowed_s.get(request["ask"], left_s))
        send(self, request, deadline)

    monkeypatch.setattr(ChildProcess, "_send", note)
    older = ReplaySide(tmp_path / "older", rig.cubin(1, 100.0))
    list(bench.launch_each([PairWork(rig.kernel, PROBLEM, older, ReplaySide(LIBRARY, rig.cubin(1, 103.0)))]))
    assert {"describe side", "trial", "rounds"} <= set(allowed_s)
    assert allowed_s["trial"] <= pair_bench.TRIAL_DEADLINE_S
    assert allowed_s["rounds"] <= pair_bench.ROUNDS_DEADLINE_S
    assert max(allowed_s.values()) <= pair_bench.PREPARE_DEADLINE_S


def test_a_launch_of_host_code_that_timed_itself_says_why() -> None:
    alone = {"library_runs_apart": False, "not_apart": "its host code makes its result 1 itself", "stated": ""}
    assert describe_not_apart({**alone, "stated": "it adds with PyTorch"}) == "it adds with PyTorch"
    assert describe_not_apart(alone) == "its host code makes its result 1 itself"
    assert describe_not_apart({**alone, "library_runs_apart": True}) == describe_not_apart({}) == ""


def test_cubins_of_another_architecture_are_refused(rig: Rig) -> None:
    with PairBench(0, "sm_100", rig.store_url) as bench, pytest.raises(GpuMissing, match="the cubins are for sm_100"):
        list(bench.launch_each([work(rig, rig.cubin(1), rig.cubin(1))]))


@pytest.mark.parametrize(("cores", "ahead"), [(1, 1), (4, 1), (7, 1), (8, 2), (15, 3), (16, 4), (64, 4)])
def test_a_quarter_of_the_cores_import_ahead_and_no_more_than_four(
    monkeypatch: pytest.MonkeyPatch, cores: int, ahead: int
) -> None:
    monkeypatch.setattr(processes, "count_cores", lambda: cores)
    assert runpy.run_path(pair_bench.__file__)["MOST_AHEAD"] == ahead


class ScriptedProcesses:
    """Answers as the processes of a pair. `answers` replaces fields of the answers, by the question."""

    alive = True

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers, self.asked = answers, list[Mapping[str, Any]]()
        self.planned: list[str] = []

    def plan(self, preparations: Sequence[Preparation]) -> None:
        self.planned = [each.problem for each in preparations]

    def prepare(self, _: Preparation, *, deadline_s: float) -> Mapping[str, Any]:
        assert deadline_s == pair_bench.PREPARE_DEADLINE_S
        return {"timer": "cupti", **self._answers.get("prepare", {})}

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> Mapping[str, Any]:
        is_trial = request["ask"] == "trial"
        assert deadline_s == (pair_bench.TRIAL_DEADLINE_S if is_trial else pair_bench.ROUNDS_DEADLINE_S)
        self.asked.append(request)
        answer = self._answers.get(request["ask"], {})
        if isinstance(answer, Exception):
            raise answer
        if is_trial:
            return {"status": "timed", "samples_us": [1.0, 2.0], **answer}
        times_us = [[10.0 * (1 + each)] * request["rounds"] for each in request["ids"]]
        spans_us = [[100.0 * (1 + each)] * request["rounds"] for each in request["ids"]]
        return {"samples_us": times_us, "spans_us": spans_us, "telemetry": [{"clock_mhz": 1980}], **answer}

    def close(self) -> None:
        self.alive = False


SIDES = [ReplaySide(Path("/library"), Cubin({"tile": number}, str(number), "k")) for number in range(4)]
PAIR = PairWork("k", "1x1", SIDES[0], SIDES[1], label="a")

Scripted = Callable[..., tuple[list[LaunchResult], ScriptedProcesses]]


@pytest.fixture
def launch_scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Launches pairs in scripted processes. Returns the results and the last processes that were asked anything."""

    def launch(works: Sequence[PairWork], **answers: Any) -> tuple[list[LaunchResult], ScriptedProcesses]:
        started: list[ScriptedProcesses] = []
        spawn = lambda *_, **__: (started.append(ScriptedProcesses(answers)), started[-1])[1]  # noqa: E731
        monkeypatch.setattr(pair_bench, "GpuProcesses", spawn)
        monkeypatch.setattr(pair_bench, "usable_gpu", lambda *_: THIS_GPU)
        with PairBench(0, "sm_90", "file:///store") as bench:
            results = [result for _, result in bench.launch_each(works)]
        assert not any(each.alive for each in started)
        return results, [each for each in started if each.asked][-1]

    return launch


@pytest.mark.parametrize(
    ("heads", "fastest_us", "rounds"),
    [
        (1, 500.0, 40),
        (1, 400.0, 40),
        (1, 513.0, 38),
        (1, 1_000.0, 20),
        (1, 1_600.0, 12),
        (1, 1_667.0, 12),
        (1, 30_000.0, 12),
        (3, 400.0, 40),
        (3, 1_000.0, 20),
        (3, 30_000.0, 12),
    ],
)
def test_as_many_rounds_as_fit_are_timed_and_neither_too_few_nor_too_many(
    launch_scripted: Scripted, heads: int, fastest_us: float, rounds: int
) -> None:
    """COMPARED fills 40 ms with rounds of two sides, 80 ms with those of four. The slower sample is bad luck."""
    works = [replace(PAIR, head=SIDES[number], label=str(number)) for number in range(1, 1 + heads)]
    results, asked = launch_scripted(works, trial={"samples_us": [2 * fastest_us, fastest_us]})
    counts = [each["rounds"] for each in asked.asked if each["ask"] == "rounds"]
    assert counts == [pair_bench.COMPARED.warm_up, rounds]
    assert list_times(results) == [(10.0, 10.0 * (1 + number)) for number in range(1, 1 + heads)]


@pytest.mark.parametrize(("metric", "times_us"), [("time", (10.0, 20.0)), ("graph", (100.0, 200.0))])
def test_a_graph_s_time_is_the_span_of_its_launches(
    launch_scripted: Scripted, metric: Metric, times_us: tuple[float, float]
) -> None:
    results, asked = launch_scripted([replace(PAIR, metric=metric, launches=5)])
    assert list_times(results) == [times_us]
    assert isinstance(results[0], Launched)
    assert results[0].telemetry == ({"clock_mhz": 1980},)
    of_rounds = [each for each in asked.asked if each["ask"] == "rounds"]
    assert [(each["as_graph"], each["seed"], each["names"]) for each in of_rounds] == [(metric == "graph", 5, [])] * 2


FAILED: list[tuple[dict[str, Any], LaunchFailed]] = [
    (
        {"rounds": {"no_graph": "the stream waits"}},
        LaunchFailed("no CUDA graph: the stream waits", is_of_head=False, is_final=True),
    ),
    (
        {"rounds": {"wrong": "y is off", "id": 0}},
        LaunchFailed("with the base it gives wrong results: y is off", is_of_head=False, is_final=True),
    ),
    (
        {"rounds": {"wrong": "y is off", "id": 1}},
        LaunchFailed("with the head it gives wrong results: y is off", is_of_head=True, is_final=True),
    ),
    (
        {"rounds": {"wrong": "x was changed"}},
        LaunchFailed("one side gives wrong results: x was changed", is_of_head=False, is_final=True),
    ),
    (
        {"rounds": ChildHung("no answer")},
        LaunchFailed("something ended the GPU process: no answer", is_of_head=False, is_final=False),
    ),
    (
        {"trial": BadDescription("it is not as it must be")},
        LaunchFailed("it is not as it must be", is_of_head=False, is_final=True),
    ),
    (
        {"trial": {"status": "launch_error", "failure": "no such symbol"}},
        LaunchFailed("with the base it cannot be launched: no such symbol", is_of_head=False, is_final=True),
    ),
    (
        {"trial": {"status": "crashed", "failure": "illegal address"}},
        LaunchFailed("with the base it faults on the GPU: illegal address", is_of_head=False, is_final=False),
    ),
]


@pytest.mark.parametrize(("answers", "failed"), FAILED)
def test_a_launch_without_times_says_of_which_side_and_whether_for_good(
    launch_scripted: Scripted, answers: dict[str, Any], failed: LaunchFailed
) -> None:
    results, _ = launch_scripted([PAIR], **answers)
    assert results == [failed]


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (ChildDied("SIGSEGV"), LaunchFailed("the base could not be described: SIGSEGV", False, False)),
        (ChildHung("no answer"), LaunchFailed("the base could not be described: no answer", False, False)),
        (BadDescription("made up"), LaunchFailed("made up", False, True)),
    ],
)
def test_a_base_that_cannot_be_described_costs_its_own_pairs_alone(
    launch_scripted: Scripted, monkeypatch: pytest.MonkeyPatch, error: Exception, failed: LaunchFailed
) -> None:
    """What died may live the next time, so it is described once more then."""
    asked: list[tuple[Path, str]] = []

    def describe_side(preparation: Preparation, _: Mapping[str, str], *, deadline_s: float) -> Mapping[str, Any]:
        assert deadline_s == pair_bench.PREPARE_DEADLINE_S
        asked.append((preparation.library, preparation.problem))
        if len(asked) == 1:
            raise error
        return {"kernel": "k"}

    monkeypatch.setattr(pair_bench, "describe_side", describe_side)
    pair = replace(PAIR, base=replace(SIDES[0], library=Path("/older")))
    other, again = replace(pair, problem="2x2"), replace(pair, label="again", launches=1)
    results, launched = launch_scripted([pair, other, again])
    assert results[0] == failed
    assert list_times(results) == [(10.0, 20.0)] * 2
    assert launched.planned == ["2x2", "1x1"]
    assert asked == [(Path("/older"), problem) for problem in ("1x1", "2x2", "1x1")]


@pytest.mark.parametrize("error", [SweepFailed("no room"), ChildDied("SIGSEGV"), ChildHung("no answer")])
def test_a_race_that_stops_says_which_one_and_frees_the_gpu(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    ended: list[str] = []

    class Child:
        gpu_s = 5.0

        def __init__(self, setup: GpuSetup) -> None:
            assert setup.environment == {"CUDA_VISIBLE_DEVICES": THIS_GPU.uuid}

        def close(self) -> None:
            ended.append("closed")

    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pair_bench, "usable_gpu", lambda *_: THIS_GPU)
    monkeypatch.setattr(pair_bench, "GpuChild", Child)
    monkeypatch.setattr(pair_bench, "sweep", stop)
    with PairBench(0, "sm_90", "file:///store") as bench:
        with pytest.raises(MeasureFailed, match=f"^racing k on 1x1 stopped: {error}$"):
            bench.race(LIBRARY, "k", "1x1", "file:///store", [SIDES[0].cubin])
        assert (bench.gpu_s, ended) == (5.0, ["closed"])
