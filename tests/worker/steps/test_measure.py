"""From a GPU's result to rows and a verdict. The GPU's part is made, but for one test that wants a real one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import run_result, tiny_repository
from tests.worker.fixtures.compiled_sweep import add_gpu_worker
from tests.worker.fixtures.made_run import make_run
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import actions, jobs
from tilewatch.db.models import Compilation, Config, Job, Measurement, Run, Sweep, Trial, Verdict
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.device import gpus
from tilewatch.kernels.results import RunResult, TrialResult
from tilewatch.worker import metrics, run_job
from tilewatch.worker.context import Context
from tilewatch.worker.gpu import healthy_gpu
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.queue import follow_up
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import compile, measure, write_run
from tilewatch.worker.submitting.submit import submit_nightly, submit_sweep


def compiled(settings: Settings, context: Context) -> int:
    """Submit and compile a sweep for a GPU that this machine lacks; its measure job."""
    add_gpu_worker(context)
    submit_sweep(settings, tiny_repository.KERNEL, "1024", gpus=("h200",))
    with session(context.database_url) as opened:
        (measuring,) = opened.scalars(select(Job.id).where(Job.kind == "measure")).all()
        compiling = opened.scalars(select(Job.id).where(Job.kind == "compile")).all()
    for job_id in compiling:
        for batch in run_job.run(job_id, "tester#1", context):
            run_job.run(batch.id, "tester#1", context)
    return measuring


def test_a_run_has_medians_intervals_and_its_ratio_to_deepgemm(
    settings: Settings, context: Context, drain: Drain
) -> None:
    run_id = make_run(settings, context, drain)
    with session(context.database_url) as opened:
        rows = {row.implementation: row for row in opened.scalars(select(Measurement))}
        assert opened.get_one(Run, run_id).tie
    ours = rows["double"]
    assert ours.low_us <= ours.median_us == 100.0 <= ours.high_us
    assert ours.ratio == pytest.approx(0.9, abs=0.01)
    assert rows["deepgemm"].ratio == 1.0
    assert {row.baseline for row in rows.values()} == {"deepgemm"}
    assert ours.detail == {"rounds": 7, "missing": {"cublaslt": "no torch"}}
    assert "cublaslt" not in rows


def test_trials_end_with_a_time_or_a_reason(settings: Settings, context: Context, drain: Drain) -> None:
    make_run(settings, context, drain)
    with session(context.database_url) as opened:
        configs = opened.execute(select(Config.params, Trial.status).join(Trial, Trial.config_id == Config.id))
        states = {params["width"]: status for params, status in configs}
    assert states == {64: "wrong", 96: "not_compiled", 128: "timed", 256: "timed"}


def test_the_first_run_of_a_series_is_undecided(settings: Settings, context: Context, drain: Drain) -> None:
    run_id = make_run(settings, context, drain)
    with session(context.database_url) as opened:
        verdict = opened.get_one(Verdict, run_id)
    assert (verdict.verdict, verdict.history_points) == ("undecided", 0)


def test_a_sweep_is_measured_with_the_counters_that_its_series_has(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = make_run(settings, context, drain)
    with session(context.database_url) as opened:
        ours = update(Measurement).where(Measurement.run_id == run_id, Measurement.role == "kernel")
        opened.execute(ours.values(detail={"counters": {"instructions": 3.0}, "launch": "a launch"}))
    asked: list[SweepToMeasure] = []

    def measure(_: SimulatedGpu, sweep: SweepToMeasure, *__: object, **___: object) -> None:
        asked.append(sweep)
        raise NotNow("enough was seen")

    monkeypatch.setattr(SimulatedGpu, "measure", measure)
    monkeypatch.setattr(healthy_gpu, "backend_for", lambda *_: SimulatedGpu(context.simulation))
    add_gpu_worker(context)
    for problem in ("1024", "2048"):
        submit_sweep(settings, tiny_repository.KERNEL, problem, gpus=("h200",))
        with pytest.raises(NotNow, match="enough was seen"):
            drain()
    known, of_another_problem = (each.counted for each in asked)
    assert {launch: each.counts for launch, each in known.items()} == {"a launch": {"instructions": 3.0}}
    assert of_another_problem == {}
    assert {each.facts.reason for each in asked} == {"manual"}


def test_a_sweep_whose_cubins_are_gone_fails_with_a_sentence_before_it_takes_a_gpu(
    settings: Settings, context: Context
) -> None:
    measuring = compiled(settings, context)
    for file in list((settings.home / "cubins").rglob("*.*")):
        file.unlink()
    run_job.run(measuring, "tester#2", context)
    with session(context.database_url) as opened:
        job = opened.get_one(Job, measuring)
        assert (job.state, set(opened.scalars(select(Trial.status)))) == ("failed", {"compiled", "not_compiled"})
        assert job.failure is not None
        assert "cubins of double 1024 are not in the store" in job.failure


def test_a_cubin_that_compiled_elsewhere_and_not_here_is_not_sent_to_the_gpu(
    settings: Settings, context: Context
) -> None:
    """A recording told of it; here its compile ran into the time limit, which the store alone knows."""
    measuring = compiled(settings, context)
    with session(context.database_url) as opened:
        sweep_id = opened.scalars(select(Sweep.id)).one()
        here, elsewhere, *_ = steps.list_compiled_configs(opened, sweep_id)
    store = CubinStore(context.store_url)
    store.put(elsewhere.content_key, {"status": "timeout", "failure": "not compiled within 15 s"}, None)
    if gpus():
        pytest.skip("this machine has a GPU")
    with pytest.raises(NotNow, match="no NVIDIA GPU"):  # the rest would have been measured
        run_job.run(measuring, "tester#2", context)
    with session(context.database_url) as opened:
        trials = {row.config_id: (row.status, row.failure) for row in opened.scalars(select(Trial))}
    assert trials[elsewhere.config_id] == ("not_compiled", "not compiled within 15 s")
    assert trials[here.config_id] == ("compiled", None)


def test_judging_again_changes_nothing(settings: Settings, context: Context, drain: Drain) -> None:
    run_id = make_run(settings, context, drain)
    with session(context.database_url) as opened:
        before = opened.get_one(Verdict, run_id).judged_at
        opened.execute(update(Job).where(Job.kind == "judge").values(state="queued", sent_at=None))
    drain()
    with session(context.database_url) as opened:
        assert opened.get_one(Verdict, run_id).judged_at == before


def test_a_measure_job_whose_run_is_on_record_goes_straight_to_the_judge(
    settings: Settings, context: Context, drain: Drain
) -> None:
    """An earlier attempt died between writing the run and saying so; the GPU is not asked again."""
    add_gpu_worker(context)
    make_run(settings, context, drain)
    with session(context.database_url) as opened:
        job = opened.scalars(select(Job).where(Job.kind == "measure")).one()
        opened.execute(update(Job).where(Job.id == job.id).values(state="queued", failure=None, trace=None))
    (judge,) = run_job.run(job.id, "tester#1", context)
    assert judge.queue == "judge"
    with session(context.database_url) as opened:
        assert len(opened.scalars(select(Run.id)).all()) == 1


def test_a_sweep_of_which_a_batch_failed_is_not_measured(
    settings: Settings, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of the other configs would be judged as the best of all: a change that no commit made."""
    monkeypatch.setattr(compile, "BATCH", 2)
    add_gpu_worker(context)
    submit_sweep(settings, tiny_repository.KERNEL, "1024", gpus=("h200",))
    with session(context.database_url) as opened:
        (planning,) = opened.scalars(select(Job.id).where(Job.kind == "compile")).all()
    first, second = run_job.run(planning, "tester#1", context)
    run_job.run(first.id, "tester#1", context)
    with session(context.database_url) as opened:
        claimed = jobs.claim(opened, second.id, "tester#1", 60)
        assert claimed is not None
        jobs.fail(opened, second.id, "tester#1", "the compiler's folder is gone")
        (measuring,) = follow_up.queue_next(opened, claimed)
    run_job.run(measuring.id, "tester#2", context)
    with session(context.database_url) as opened:
        job = opened.get_one(Job, measuring.id)
        assert (job.state, job.failure) == (
            "failed",
            f"2 configs of double 1024 were not compiled, because compile job {second.id} ended as failed: "
            "the compiler's folder is gone; `tilewatch retry --submission 1` compiles them and measures",
        )
        actions.retry(opened, actions.JobSelection.of(None, job.submission_id), "tester")
    (measuring,) = run_job.run(second.id, "tester#1", context)
    if gpus():
        pytest.skip("this machine has a GPU")
    with pytest.raises(NotNow, match="no NVIDIA GPU"):
        run_job.run(measuring.id, "tester#2", context)


def test_a_sweep_of_which_nothing_compiled_fails_with_the_first_reason(settings: Settings, context: Context) -> None:
    broken = tiny_repository.SOURCE.replace("FACTOR", "2.0").replace("(64, 128, 256, 96)", "(96, 48)")
    (settings.repository / "library" / "double.py").write_text(broken)
    tiny_repository.git(settings.repository, "commit", "--all", "--quiet", "--message", "Break all tiles")
    measuring = compiled(settings, context)
    run_job.run(measuring, "tester#1", context)
    with session(context.database_url) as opened:
        job = opened.get_one(Job, measuring)
        reasons = set(opened.scalars(select(Compilation.failure)))
    said, _, why = (job.failure or "").partition("; the first failure: ")
    assert (job.state, said) == ("failed", "no config of double compiled for 1024 on sm_90")
    assert why in reasons


def test_a_gpu_that_is_not_there_leaves_the_job_to_another_worker(settings: Settings, context: Context) -> None:
    measure_id = compiled(settings, context)
    if gpus():
        pytest.skip("this machine has a GPU")
    with pytest.raises(NotNow, match="no NVIDIA GPU"):
        run_job.run(measure_id, "tester#1", context)
    with session(context.database_url) as opened:
        job = opened.get_one(Job, measure_id)
    assert (job.state, job.attempt) == ("queued", 0)


NEWER = "cuda-tile 1.9.0 cuda-tileiras 13.9.1 limit 15s 1.25GiB"


@dataclass
class Bench:
    """A sweep of four configs on record, its measure job, and a GPU that a test makes."""

    planned: one_commit.Planned
    store: CubinStore
    context: Any
    opened: Session
    asked: list[SweepToMeasure] = field(default_factory=list)
    progress: list[int] = field(default_factory=list)

    def know(self, *statuses: str, compiler: str = one_commit.COMPILER) -> None:
        """Adds what came of compiling the first configs, and what the store has of it."""
        for code_key, status in zip(self.planned.code_keys, statuses, strict=False):
            row = one_commit.compiled(code_key, compiler=compiler)
            fact_writes.add_compilations(self.opened, [row])
            if status != "lost":
                failure = {} if status == "ok" else {"failure": f"no: {status}"}
                self.store.put(str(row["content_key"]), {"status": status, **failure}, b"cubin")
        fact_writes.attach_compilations(self.opened, compiler=compiler, submission_id=self.planned.submission_id)
        self.opened.commit()

    def measure(self, **payload: Any) -> list[Any]:
        asked = {"library": "library", "baselines": ["deepgemm"], **payload}
        job_id, _ = jobs.add(
            self.opened, key="measure 1", kind="measure", queue="gpu.b200", subject="s", payload=asked,
            sweep_id=self.planned.sweep_id, submission_id=self.planned.submission_id, priority=jobs.Priority.MANUAL,
        )  # fmt: skip
        self.opened.commit()
        job: Any = SimpleNamespace(
            id=job_id, key="measure 1", sweep_id=self.planned.sweep_id, payload=asked, priority=jobs.Priority.MANUAL
        )
        lease: Any = SimpleNamespace(progress=self.progress.append)
        return measure.step(job, self.context, lease)

    def list_trials(self) -> list[tuple[str, str | None]]:
        with session(self.context.database_url) as opened:
            found = {each.config_id: (each.status, each.failure) for each in opened.scalars(select(Trial))}
        return [found[each] for each in self.planned.config_ids]

    def list_runs(self) -> list[Run]:
        with session(self.context.database_url) as opened:
            return list(opened.scalars(select(Run)))


@pytest.fixture
def bench(db_session: Session, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    store = CubinStore(folder(tmp_path / "store"))
    context = SimpleNamespace(database_url=database_url, store_url=store.url, spool=tmp_path / "spool")
    made = Bench(one_commit.submit(db_session), store, context, db_session)
    db_session.commit()

    def measure_sweep(sweep: SweepToMeasure, gpu: object, on_trial: Callable[[TrialResult], None]) -> RunResult:
        assert gpu == "own GPU"
        made.asked.append(sweep)
        first = sweep.configs[0].params
        trials = tuple(TrialResult(each.params, "timed", (1.0, 2.0), 1.5, 0.0) for each in sweep.configs)
        for each in trials:
            on_trial(each)
        result = run_result.result()
        ours = replace(result.measurements[0], config=first)
        return replace(result, trials=trials, winner=first, tie=(), measurements=(ours,))

    @contextmanager
    def use_gpu(_: object, gpu_model: str) -> Iterator[SimpleNamespace]:
        assert gpu_model == "b200"
        yield SimpleNamespace(backend=SimpleNamespace(measure=measure_sweep), gpu="own GPU", times_ill=2)

    monkeypatch.setattr(measure, "use_gpu", use_gpu)
    monkeypatch.setattr(write_run, "WRITE_S", 0.0)
    return made


def test_what_compiled_is_measured_and_the_run_is_judged(bench: Bench) -> None:
    bench.know("ok", "timeout", "ok", "ok", compiler=NEWER)
    took_s = metrics.SWEEP_SECONDS.labels("b200")._sum
    before_s = took_s.get()
    (judge,) = bench.measure(ships={"tile_m": 64})
    assert took_s.get() - before_s == 30.0
    (sweep,) = bench.asked
    ids = [each for each, number in zip(bench.planned.config_ids, range(4), strict=True) if number != 1]
    assert [each.config_id for each in sweep.configs] == sorted(ids)
    assert (sweep.job_key, sweep.library, sweep.baselines, sweep.ships) == (
        "measure 1", "library", ("deepgemm",), {"tile_m": 64},
    )  # fmt: skip
    assert (sweep.facts.kernel, sweep.facts.reason, sweep.times_ill) == ("gemm_fp8", "nightly", 2)
    assert (sweep.last_sweep, sweep.counted) == (None, {})
    assert bench.progress == [1, 2, 3]
    timed = ("timed", None)
    assert bench.list_trials() == [timed, ("not_compiled", "no: timeout"), timed, timed]
    (run,) = bench.list_runs()
    assert run.toolchain == run_result.result().toolchain, "what is installed here"
    assert list(bench.context.spool.iterdir()) == []
    assert bench.measure() == [judge], "an earlier attempt wrote the run"
    assert len(bench.asked) == 1


def test_a_run_has_the_versions_of_the_toolchain_that_compiled_it(bench: Bench) -> None:
    bench.know(*["ok"] * 4, compiler=NEWER)
    bench.measure(toolchain="next")
    (run,) = bench.list_runs()
    assert run.toolchain["cuda-tile"] == "1.9.0"
    assert run.toolchain["driver"] == run_result.result().toolchain["driver"]


@pytest.mark.parametrize(
    ("statuses", "sentence", "trials"),
    [
        (
            ("ok", "ok", "ok"),
            "1 configs of gemm_fp8 320x32576x7168 were not compiled, because no job did; `tilewatch retry --subm",
            ["compiled", "compiled", "compiled", "waiting"],
        ),
        (
            ("ok", "lost", "lost", "timeout"),
            "2 cubins of gemm_fp8 320x32576x7168 are not in the store file://",
            ["compiled"] * 4,
        ),
        (
            ("error", "timeout", "error", "error"),
            "no config of gemm_fp8 compiled for 320x32576x7168 on sm_100; the first failure: no: ",
            ["not_compiled"] * 4,
        ),
    ],
)
def test_a_sweep_that_lacks_configs_or_cubins_takes_no_gpu(
    bench: Bench, statuses: tuple[str, ...], sentence: str, trials: list[str]
) -> None:
    bench.know(*statuses)
    with pytest.raises(measure.NothingToMeasure) as raised:
        bench.measure()
    assert str(raised.value).startswith(sentence)
    assert [status for status, _ in bench.list_trials()] == trials
    assert (bench.asked, bench.list_runs()) == ([], [])


@pytest.mark.gpu
def test_a_gpu_measures_what_was_submitted(settings: Settings, context: Context, drain: Drain) -> None:
    model = next(gpu.model for gpu in gpus() if gpu.model is not None)
    submit_nightly(settings, gpus=(model.slug,))
    drain()
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(Job.state))) == {"done"}
        assert len(opened.scalars(select(Run.id)).all()) == len(tiny_repository.PROBLEMS)
        assert len(opened.scalars(select(Verdict.verdict)).all()) == len(tiny_repository.PROBLEMS)
        assert set(opened.scalars(select(Trial.status))) == {"timed", "not_compiled"}
