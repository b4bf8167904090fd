"""The real backend on a fake GPU, in real child processes: a commit's library is checked out, swept and replayed."""

import datetime as dt
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, UUID, Rig, install_for_children
from tests.worker.fixtures import tiny_repository
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.page_reads.checks import find_check
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.db.worker_reads.steps import CompiledConfig, LastSweep, SweepFacts
from tilewatch.kernels import HARNESS
from tilewatch.kernels.device import Gpu, gpu_model
from tilewatch.kernels.gpu.health.watcher import NoAnswer
from tilewatch.kernels.measuring import baseline_cache
from tilewatch.kernels.measuring.baseline_cache import SeriesToPrepare
from tilewatch.kernels.measuring.gpu_turn import find_turn
from tilewatch.kernels.results import Cubin, TrialResult
from tilewatch.kernels.toolchains.versions import MEASURING, versions
from tilewatch.worker.comparing import check as check_step
from tilewatch.worker.context import Context, Simulation
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.gpu import baseline_kernels, healthy_gpu, real, uncounted
from tilewatch.worker.gpu.backend import backend_for
from tilewatch.worker.gpu.real import RealGpu, RealProbe
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide, MachineCode, ReplayJob


@pytest.fixture
def sha(tmp_path: Path) -> str:
    """A commit whose folder `library` holds the fake GPU's kernels."""
    watched = tmp_path / "watched"
    shutil.copytree(LIBRARY, watched / "library", ignore=shutil.ignore_patterns("__pycache__"))
    tiny_repository.git(watched, "init", "--quiet")
    tiny_repository.git(watched, "add", ".")
    tiny_repository.git(watched, "commit", "--quiet", "--message", "Kernels")
    return tiny_repository.git(watched, "rev-parse", "HEAD").strip()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    (tmp_path / "store").mkdir()
    return Rig(tmp_path / "store")


@pytest.fixture
def backend(tmp_path: Path, rig: Rig, database_url: str, monkeypatch: pytest.MonkeyPatch) -> RealGpu:
    """A worker's backend on a machine with one fake H200, whose nvidia-smi answers."""
    install_for_children(monkeypatch)
    context = Context(
        database_url=database_url,
        broker_url="",
        node="rack7",
        repository=tmp_path / "watched",
        checkouts=tmp_path / "checkouts",
        toolchains=tmp_path / "toolchains",
        baseline_environments=tmp_path / "rivals",
        clones=tmp_path / "clones",
        spool=tmp_path / "spool",
        journals=tmp_path / "journals",
        uncounted=tmp_path / "uncounted",
        baselines=tmp_path / "baselines",
        store_url=rig.store_url,
        compile_limit_s=15.0,
        compile_threads=1,
        simulation=Simulation(1, 0.0),
        library="library",
        policy=Policy(),
        replay_launches=10,
    )
    found = backend_for(["h200"], context)
    assert isinstance(found, RealGpu)
    return found


def test_a_sweep_is_measured_with_the_library_of_its_commit(backend: RealGpu, rig: Rig, sha: str) -> None:
    cubins = [rig.cubin(1), rig.cubin(2, 80.0), rig.cubin(4, fault="off")]
    configs = [CompiledConfig(n, dict(cubin.config), cubin.content_key, cubin.symbol) for n, cubin in enumerate(cubins)]
    facts = SweepFacts("watched", rig.kernel, PROBLEM, "h200", 1, sha, "sm_90")
    trials: list[TrialResult] = []
    sweep = SweepToMeasure("measure:1", facts, configs, "library", ("copy",))
    result = backend.measure(sweep, backend.own_gpu(), on_trial=trials.append)
    assert (result.host, result.winner) == ("rack7", {"tile_rows": 2})
    assert [(each.implementation, each.role) for each in result.measurements] == [
        (rig.kernel, "kernel"),
        ("copy", "baseline"),
    ]
    assert {trial.status for trial in trials} == {"timed", "wrong"}
    assert list(backend.context.journals.iterdir()) == [], "a sweep that ended leaves no journal"
    assert result.measurements[0].detail["no_counters"] == uncounted.LATER


def test_a_run_that_is_cut_off_before_its_end_repeats_no_trial(
    backend: RealGpu, rig: Rig, sha: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after the last launch may take seconds: the checklist, or a disk that is slow."""
    cubin = rig.cubin(1)
    configs = [CompiledConfig(1, dict(cubin.config), cubin.content_key, cubin.symbol)]
    facts = SweepFacts("watched", rig.kernel, PROBLEM, "h200", 1, sha, "sm_90")
    sweep = SweepToMeasure("measure:1", facts, configs, "library", ("copy",))
    trials: list[TrialResult] = []

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(uncounted, "keep", stop)
        with pytest.raises(KeyboardInterrupt):
            backend.measure(sweep, backend.own_gpu(), on_trial=lambda _: None)
    assert backend.measure(sweep, backend.own_gpu(), on_trial=trials.append).winner == {"tile_rows": 1}
    assert trials == []
    assert list(backend.context.journals.iterdir()) == []


def test_a_space_that_did_not_change_is_not_swept_again(backend: RealGpu, rig: Rig, sha: str) -> None:
    cubins = [rig.cubin(1), rig.cubin(2, 80.0), rig.cubin(4, 70.0)]
    configs = [CompiledConfig(n, dict(cubin.config), cubin.content_key, cubin.symbol) for n, cubin in enumerate(cubins)]
    facts = SweepFacts("watched", rig.kernel, PROBLEM, "h200", 1, sha, "sm_90")
    toolchain = {**versions(MEASURING), "harness": HARNESS, "driver": "580.1"}
    tried = {each.config_id: each.content_key for each in configs}
    last = LastSweep(dt.datetime(2026, 11, 25, tzinfo=dt.UTC), toolchain, tried, frozenset({0, 1}))
    sweep = SweepToMeasure("measure:1", facts, configs, "library", ("copy",), last_sweep=last)
    result = backend.measure(sweep, backend.own_gpu(), on_trial=lambda _: None)
    assert [trial.config for trial in result.trials] == [{"tile_rows": 1}, {"tile_rows": 2}]
    assert (result.winner, result.measurements[0].detail["last_sweep"]) == ({"tile_rows": 2}, "2026-11-25")
    drawn = replace(configs[2], drawn=True)
    sweep = replace(sweep, configs=[*configs[:2], drawn], last_sweep=replace(last, tried={0: tried[0], 1: tried[1]}))
    assert backend.measure(sweep, backend.own_gpu(), on_trial=lambda _: None).winner == {"tile_rows": 4}


@pytest.mark.parametrize(
    ("reason", "ended"), [("nightly", ["timed", "crashed"]), ("manual", ["timed", "crashed", "timed"])]
)
def test_a_wide_sweep_goes_on_after_a_drawn_config_that_dies(
    backend: RealGpu, rig: Rig, sha: str, reason: str, ended: list[str]
) -> None:
    cubins = [rig.cubin(1), rig.cubin(2, fault="abort"), rig.cubin(4, 70.0)]
    configs = [
        CompiledConfig(n, dict(each.config), each.content_key, each.symbol, n > 0) for n, each in enumerate(cubins)
    ]
    facts = SweepFacts("watched", rig.kernel, PROBLEM, "h200", 1, sha, "sm_90", reason)
    sweep = SweepToMeasure("measure:1", facts, configs, "library", ("copy",))
    result = backend.measure(sweep, backend.own_gpu(), on_trial=lambda _: None)
    assert [trial.status for trial in result.trials] == ended


def measure_twice(backend: RealGpu, gpu: Gpu, rig: Rig, sha: str) -> None:
    cubin = rig.cubin(1)
    configs = [CompiledConfig(1, dict(cubin.config), cubin.content_key, cubin.symbol)]
    facts = SweepFacts("watched", rig.kernel, PROBLEM, "h200", 1, sha, "sm_90")
    for number in (1, 2):
        sweep = SweepToMeasure(f"measure:{number}", facts, configs, "library", ("copy",))
        backend.measure(sweep, gpu, on_trial=lambda _: None)


def test_counters_that_wait_are_read_for_several_runs_and_come_with_the_checklist(
    backend: RealGpu, rig: Rig, sha: str
) -> None:
    gpu, folder = backend.own_gpu(), backend.context.uncounted
    measure_twice(backend, gpu, rig, sha)
    assert len(uncounted.list_waiting(folder, gpu)) == 2
    written: dict[str, Mapping[str, Any]] = {}
    assert uncounted.read_counters(folder, gpu, rig.store_url, lambda *_: False) == 2
    assert len(uncounted.list_waiting(folder, gpu)) == 2, "a run that is not on record yet is read again"
    assert uncounted.read_counters(folder, gpu, rig.store_url, lambda key, found: not written.update({key: found})) == 2
    assert uncounted.list_waiting(folder, gpu) == []
    assert len(written) == 2
    for detail in written.values():
        lines = {line["item"]: line["answer"] for line in detail["checklist"]}
        assert (lines["K aligned"], lines["rows start on 16 bytes"]) == ("does not apply", "yes")
        assert "is not installed" in detail["no_counters"]


def test_runs_that_are_not_on_record_let_later_ones_through(
    backend: RealGpu, rig: Rig, sha: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an ill GPU never is."""
    gpu, folder = backend.own_gpu(), backend.context.uncounted
    measure_twice(backend, gpu, rig, sha)
    unstored, _ = uncounted.list_waiting(folder, gpu)
    asked: list[str] = []

    def write(key: str, _: object) -> bool:
        asked.append(key)
        return key != asked[0]

    monkeypatch.setattr(uncounted, "MOST_AT_ONCE", 1)
    for _ in range(2):
        assert uncounted.read_counters(folder, gpu, rig.store_url, write) == 1
    assert len(set(asked)) == 2
    (waiting,) = uncounted.list_waiting(folder, gpu)
    assert waiting.name > unstored.name
    too_late = waiting.stat().st_mtime - uncounted.KEPT_S
    os.utime(waiting, (too_late, too_late))
    assert uncounted.read_counters(folder, gpu, rig.store_url, write) == 1
    assert uncounted.list_waiting(folder, gpu) == []


SERIES = """
import sys
from pathlib import Path
from tilewatch import processes
from tilewatch.kernels.measuring.gpu_turn import GpuTurn
pid = Path(sys.argv[2])
def is_free():
    with open(sys.argv[1], "a") as turn:
        return processes.try_lock(turn)
while not pid.exists() or not pid.read_text().strip() or is_free():
    pass
with GpuTurn(Path(sys.argv[1])):
    print("Nsight Compute runs" if Path("/proc", pid.read_text().strip()).exists() else "the GPU is free")
"""


def test_a_series_that_comes_stops_the_reading_of_counters(
    backend: RealGpu, rig: Rig, sha: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cubin = rig.cubin(1)
    configs = [CompiledConfig(1, dict(cubin.config), cubin.content_key, cubin.symbol)]
    facts = SweepFacts("watched", rig.kernel, PROBLEM, "h200", 1, sha, "sm_90")
    gpu, folder = backend.own_gpu(), backend.context.uncounted
    backend.measure(SweepToMeasure("measure:1", facts, configs, "library", ("copy",)), gpu, on_trial=lambda _: None)
    endless = tmp_path / "bin" / "ncu"
    endless.parent.mkdir()
    endless.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    endless.chmod(0o755)
    monkeypatch.setenv("PATH", f"{endless.parent}:{os.environ['PATH']}")
    turn = find_turn(gpu.uuid)
    series = subprocess.Popen(
        [sys.executable, "-c", SERIES, str(turn._file), str(tmp_path / "pid")], stdout=subprocess.PIPE, text=True
    )
    assert uncounted.read_counters(folder, gpu, rig.store_url, lambda *_: True) == 0
    assert series.communicate()[0] == "the GPU is free\n"
    assert len(uncounted.list_waiting(folder, gpu)) == 1, "they are read later"


def test_counters_of_one_gpu_are_read_by_one_process_at_a_time(backend: RealGpu) -> None:
    gpu, folder = backend.own_gpu(), backend.context.uncounted
    (folder / gpu.uuid).mkdir(parents=True)
    (folder / gpu.uuid / "1.json").write_text("half a")
    with (folder / gpu.uuid / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert uncounted.read_counters(folder, gpu, backend.context.store_url, lambda *_: True) == 0
        assert len(uncounted.list_waiting(folder, gpu)) == 1, "the other process reads it"


@pytest.mark.parametrize(("age_s", "is_overdue"), [(12 * 3600 - 60, False), (12 * 3600 + 60, True)])
def test_counters_wait_half_a_day_for_an_empty_queue(tmp_path: Path, age_s: float, *, is_overdue: bool) -> None:
    oldest, newest = tmp_path / "1.json", tmp_path / "2.json"
    for file in (oldest, newest):
        file.touch()
    written_at = time.time() - age_s
    os.utime(oldest, (written_at, written_at))
    assert uncounted.is_overdue([oldest, newest]) is is_overdue
    assert not uncounted.is_overdue([])


@pytest.mark.parametrize(
    ("is_due", "is_overdue", "is_read"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_counters_wait_while_a_job_waits_for_the_gpu(
    backend: RealGpu, monkeypatch: pytest.MonkeyPatch, *, is_due: bool, is_overdue: bool, is_read: bool
) -> None:
    gpu, folder = backend.own_gpu(), backend.context.uncounted
    (folder / gpu.uuid).mkdir(parents=True)
    (folder / gpu.uuid / "1.json").write_text("half a")
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", backend.context.database_url)
    monkeypatch.setenv("TILEWATCH_BROKER_URL", "redis://127.0.0.1:9/0")
    from tilewatch.worker import app

    monkeypatch.setattr(app, "_lifecycle", SimpleNamespace(identity=SimpleNamespace(gpu=gpu, queues=("gpu.h200",))))
    monkeypatch.setattr(app.Context, "of", lambda _: backend.context)
    monkeypatch.setattr(steps, "is_any_due", lambda *_: is_due)
    monkeypatch.setattr(uncounted, "is_overdue", lambda _: is_overdue)
    app.run_read_counters()
    assert (uncounted.list_waiting(folder, gpu) == []) is is_read


OF_ANOTHER_RELEASE = uncounted.Uncounted(
    "a", "library", "k", "8", "sm_90", Cubin({}, "ab", "k"), ({},), ({"launch": "k<<<1>>>"},)
)


@pytest.mark.parametrize("written", ["half a", json.dumps(asdict(OF_ANOTHER_RELEASE))])
def test_a_file_that_is_no_run_is_removed(backend: RealGpu, written: str) -> None:
    gpu, folder = backend.own_gpu(), backend.context.uncounted
    (folder / gpu.uuid).mkdir(parents=True)
    (folder / gpu.uuid / "1.json").write_text(written)
    assert uncounted.read_counters(folder, gpu, backend.context.store_url, lambda *_: True) == 0
    assert uncounted.list_waiting(folder, gpu) == []


def test_baselines_compile_once_for_all_series_of_a_submission(
    backend: RealGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The series that comes next is the first one."""
    asked: list[list[str]] = []

    def fill(series: Sequence[SeriesToPrepare], *_: Any) -> list[str]:
        asked.append([each.problem for each in series])
        return []

    monkeypatch.setattr(baseline_cache, "fill", fill)
    series = [SeriesToPrepare(tmp_path, "k", problem, ("deepgemm",)) for problem in ("a", "b", "c")]
    plain = SeriesToPrepare(tmp_path, "k", "d", ("copy",))
    gpu = backend.own_gpu()
    for _ in range(2):
        baseline_kernels.prepare(tmp_path / "met", [*series, plain], gpu, "file:///nowhere", needed=series[1])
    later = replace(series[0], problem="e")
    baseline_kernels.prepare(tmp_path / "met", [*series, later], gpu, "file:///nowhere", needed=plain)
    assert asked == [["b", "a", "c"], ["e"]]


@pytest.mark.parametrize("needed", ["copy", "deepgemm"])
def test_a_series_waits_for_its_own_baselines_alone(
    backend: RealGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needed: str
) -> None:
    """Another process of this machine prepares those of a whole submission."""
    first, second, plain = (
        SeriesToPrepare(tmp_path, "k", *which)
        for which in (("a", ("deepgemm",)), ("b", ("deepgemm",)), ("c", ("copy",)))
    )
    gpu, ended = backend.own_gpu(), []

    def fill(_series: Any, _uuid: str, _url: str, on_done: Callable[[SeriesToPrepare], None]) -> list[str]:
        wanted = first if needed == "deepgemm" else plain
        asked = (tmp_path / "met", [first, second], gpu, "file:///nowhere")
        other = threading.Thread(target=lambda: ended.append(baseline_kernels.prepare(*asked, needed=wanted)))
        other.start()
        if needed == "deepgemm":
            other.join(1.0)
            assert other.is_alive(), "its own are not there yet"
            on_done(first)
        other.join(60.0)
        assert ended, "it waits for others'"
        return []

    monkeypatch.setattr(baseline_cache, "fill", fill)
    baseline_kernels.prepare(tmp_path / "met", [first, second], gpu, "file:///nowhere", needed=first)


def test_the_two_sides_of_a_question_are_replayed_in_turn(backend: RealGpu, rig: Rig, sha: str) -> None:
    base, head = rig.cubin(1, 100.0), rig.cubin(2, 110.0)

    def side(cubin: Cubin) -> BuildSide:
        code = MachineCode(cubin.content_key, cubin.symbol, f"code of {cubin.content_key}", "a compiler")
        return BuildSide(1, sha, 1, cubin.config, measured=True, code=code)

    question = BuildQuestion(
        key="q",
        kernel=rig.kernel,
        problem=PROBLEM,
        gpu_model="h200",
        arch="sm_90",
        origin="measured",
        axis="commit",
        start=0,
        launches=2,
        base=side(base),
        head=side(head),
    )
    done: list[int] = []
    job = ReplayJob(question, "watched", "library", run_id=1, submission_id=1, suspicion_id=None)
    result = backend.replay(job, backend.own_gpu(), on_launch=done.append)
    assert (result.base_us, result.head_us) == ((100.0, 100.0), (110.0, 110.0))
    assert done == [1, 2]
    assert (result.host, result.gpu_uuid) == ("rack7", UUID)


def test_a_check_launches_both_sides_until_the_verdict_is_sure(
    backend: RealGpu, rig: Rig, sha: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake GPU has no noise, so 12 launches are enough to be sure of 10 %."""
    monkeypatch.setattr(healthy_gpu, "backend_for", lambda *_: backend)
    base, head = rig.cubin(1, 100.0), rig.cubin(2, 110.0)
    with session(database_url) as opened:
        fact_writes.add_gpu_model(opened, **gpu_model("h200").stored)
        asked = CheckRequest("watched", sha, sha, "Kernels", "h200", None, 0.0)
        check_id, _ = checks.open_once(opened, asked, "ada")
        codes = {
            f"{side}_{name}": value
            for side, cubin in (("base", base), ("head", head))
            for name, value in (
                ("config", dict(cubin.config)),
                ("content_key", cubin.content_key),
                ("symbol", cubin.symbol),
            )
        }
        row = {"kernel": rig.kernel, "problem": PROBLEM, "kind": None, **codes}
        ((operator_id, *_),) = checks.write_prepared(opened, check_id, [row])
        payload = {"operator_id": operator_id, "repository": "watched", "library": "library"}
        job_id, _ = jobs.add(opened, key="c", kind="check", queue="gpu.h200", subject="c", payload=payload)
        job = jobs.claim(opened, job_id, "gpu0@n#1", 60)
    assert job is not None
    check_step.step(job, backend.context, Lease(database_url, job_id, "gpu0@n#1"))
    with session(database_url) as opened:
        story = find_check(opened, check_id)
    assert story is not None
    (operator,) = story.operators
    assert operator.sentence == "slower +10.00 % (10.00 to 10.00) after 12 launches"
    assert (operator.base_us, operator.head_us) == ([100.0] * 12, [110.0] * 12)
    assert (operator.gpu_uuid, story.check.exit_code) == (UUID, 1)
    assert operator.gpu_s > 0


@pytest.mark.parametrize("comes", ["before", "during"])
def test_a_canary_beside_somebody_else_says_nothing_of_the_gpu(monkeypatch: pytest.MonkeyPatch, comes: str) -> None:
    processes = install_for_children(monkeypatch)
    processes.write_text("")

    def canary(_: str) -> list[object]:
        assert comes == "during"
        processes.write_text(f"{UUID}, 4711, train.py\n")
        return []

    monkeypatch.setattr(real.watcher, "canary", canary)
    if comes == "before":
        processes.write_text(f"{UUID}, 4711, train.py\n")
    try:
        with pytest.raises(NoAnswer, match=r"it is in use by 4711 train\.py"):
            RealProbe(UUID).canary(None)  # type: ignore[arg-type]
    finally:
        processes.write_text("")
