"""The compile step with the real tile compiler: what it leaves, what it does not repeat, when it lets a sweep go."""

import datetime as dt
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.compiled_sweep import add_gpu_worker
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Compilation, Job, Trial
from tilewatch.db.session import session
from tilewatch.db.worker_reads.steps import UnmeasuredCode
from tilewatch.kernels.children.child_process import ChildDied
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.results import Compiled
from tilewatch.worker import metrics, run_job
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import compile as compile_step
from tilewatch.worker.steps import compiler
from tilewatch.worker.steps.compile import BATCH, split
from tilewatch.worker.submitting.submit import submit_nightly


def trial_states(context: Context) -> Counter[str]:
    with session(context.database_url) as opened:
        return Counter(opened.scalars(select(Trial.status)))


def job_states(context: Context) -> Counter[tuple[str, str]]:
    with session(context.database_url) as opened:
        return Counter((kind, state) for kind, state in opened.execute(select(Job.kind, Job.state)))


def compilations(context: Context) -> int:
    with session(context.database_url) as opened:
        return opened.execute(select(func.count(Compilation.id))).scalar_one()


def test_every_config_ends_with_static_facts_or_a_reason(settings: Settings, context: Context, drain: Drain) -> None:
    submit_nightly(settings)
    drain()
    assert trial_states(context) == {"compiled": 6, "not_compiled": 2}
    with session(context.database_url) as opened:
        assert opened.scalars(select(Trial.failure).where(Trial.status == "not_compiled")).first()
        facts = opened.scalars(select(Compilation).where(Compilation.status == "ok")).first()
    assert facts is not None
    assert facts.registers
    assert facts.registers > 0
    assert Path(settings.home / "cubins").is_dir()


def test_problems_share_their_code(settings: Settings, context: Context, drain: Drain) -> None:
    submit_nightly(settings)
    drain()
    assert compilations(context) == tiny_repository.CONFIGS


def test_a_second_night_of_a_commit_compiles_nothing(settings: Settings, context: Context, drain: Drain) -> None:
    submit_nightly(settings, night=dt.date(2026, 11, 1))
    drain()
    submit_nightly(settings, night=dt.date(2026, 11, 2))
    assert drain() == 1  # the job that deals, and it had nothing to deal
    assert compilations(context) == tiny_repository.CONFIGS
    assert trial_states(context) == {"compiled": 12, "not_compiled": 4}


def test_a_timeout_of_a_busy_machine_is_compiled_again_and_one_of_cpu_time_is_not(
    settings: Settings, context: Context, drain: Drain
) -> None:
    """Rows of 0.1 limited wall time: on a busy machine they name configs that compile in a few CPU seconds."""
    submit_nightly(settings, night=dt.date(2026, 11, 1))
    drain()
    with session(context.database_url) as opened:
        busy, slow = opened.scalars(select(Compilation).where(Compilation.status == "ok")).all()[:2]
        for row, cpu_s in ((busy, 3.1), (slow, 15.2)):
            row.status, row.failure, row.cpu_s = "timeout", "not compiled within 15 s", cpu_s
            row.code_sha256 = row.symbol = None
            assert row.content_key is not None
            outcome = {"status": row.status, "failure": row.failure, "compile_s": 15.2, "cpu_s": cpu_s}
            CubinStore(context.store_url).put(row.content_key, {**outcome, "content_key": row.content_key}, None)
    submit_nightly(settings, night=dt.date(2026, 11, 2))
    assert drain() == 2  # one job deals, one compiles
    assert trial_states(context) == {"compiled": 6 + 4, "not_compiled": 2 + 4}
    with session(context.database_url) as opened:
        assert Counter(opened.scalars(select(Compilation.status))) == {"ok": 2, "timeout": 1, "error": 1}


@pytest.mark.parametrize("process", ["_ask_tracer", "_ask_compiler"])
def test_a_config_whose_process_died_is_compiled_in_the_next_night(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch, process: str
) -> None:
    """A machine without memory had taken the config out of all later nights of this code and compiler."""

    def die(*_: object) -> NoReturn:
        raise ChildDied("SIGKILL")

    with monkeypatch.context() as full:
        full.setattr(Compiler, process, die)
        submit_nightly(settings, night=dt.date(2026, 11, 1))
        drain()
    assert trial_states(context) == {"not_compiled": 8}
    submit_nightly(settings, night=dt.date(2026, 11, 2))
    drain()
    assert trial_states(context) == {"compiled": 6, "not_compiled": 8 + 2}


def test_a_config_whose_process_died_once_is_in_the_same_night(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the config that won the night before, the night looked slower."""
    ask, died = Compiler._ask_compiler, list[str]()

    def die_once(opened: Compiler, what: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if what == "compile" and str(request["config"]) not in died:
            died.append(str(request["config"]))
            raise ChildDied("SIGKILL")
        return ask(opened, what, request)

    monkeypatch.setattr(Compiler, "_ask_compiler", die_once)
    submit_nightly(settings, night=dt.date(2026, 11, 1))
    drain()
    assert died
    assert trial_states(context) == {"compiled": 6, "not_compiled": 2}


def test_a_commit_that_changes_the_kernel_compiles_it_again(settings: Settings, context: Context, drain: Drain) -> None:
    submit_nightly(settings)
    drain()
    tiny_repository.commit(settings.repository, "Triple numbers", factor=3)
    submit_nightly(settings)
    drain()
    assert compilations(context) == 2 * tiny_repository.CONFIGS


def test_measure_jobs_are_released_when_the_last_compile_job_ends(settings: Settings, context: Context) -> None:
    add_gpu_worker(context)
    submit_nightly(settings)
    assert job_states(context) == {("compile", "queued"): 1, ("measure", "waiting"): 2}
    with session(context.database_url) as opened:
        compile_ids = opened.scalars(select(Job.id).where(Job.kind == "compile")).all()
    for job_id in compile_ids:
        (batch,) = run_job.run(job_id, "tester#1", context)
        released = run_job.run(batch.id, "tester#1", context)
    assert job_states(context) == {("compile", "done"): 2, ("measure", "queued"): 2}
    assert {job.queue for job in released} == {"gpu.h200"}


def test_a_step_that_runs_twice_repeats_nothing(settings: Settings, context: Context, drain: Drain) -> None:
    submit_nightly(settings)
    drain()
    before = (trial_states(context), compilations(context), job_states(context))
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(state="queued", sent_at=None))
    drain()
    assert (trial_states(context), compilations(context), job_states(context)) == before


def test_a_compilation_known_from_a_recording_is_made_again_where_its_cubin_is_needed(
    settings: Settings, context: Context, drain: Drain
) -> None:
    """A recording tells that it compiled; the cubin stayed on the machine that recorded."""
    submit_nightly(settings, night=dt.date(2026, 11, 1))
    drain()
    add_gpu_worker(context)
    cubins = list(Path(settings.home / "cubins").rglob("*.*"))
    for file in cubins:
        file.unlink()
    submit_nightly(settings, night=dt.date(2026, 11, 2))
    with session(context.database_url) as opened:
        deal_id = opened.scalars(select(Job.id).where(Job.kind == "compile", Job.state == "queued")).one()
    (batch,) = run_job.run(deal_id, "tester#1", context)
    released = run_job.run(batch.id, "tester#1", context)
    assert [job.queue for job in released] == ["gpu.h200", "gpu.h200"]
    made = {file.suffix for file in Path(settings.home / "cubins").rglob("*.cubin")}
    assert made == {".cubin"}


def test_each_of_several_kernels_known_from_a_recording_is_made_again(
    settings: Settings, context: Context, repository: Path, drain: Drain
) -> None:
    """The first kernel's compile job lets all trials know what is on record; the second's has its own to make then."""
    triple = tiny_repository.SOURCE.replace("FACTOR", "3.0").replace("double", "triple")
    (repository / "library" / "triple.py").write_text(triple)
    tiny_repository.commit(repository, "Triple numbers too", factor=2)
    submit_nightly(settings, night=dt.date(2026, 11, 1))
    drain()
    for file in list(Path(settings.home / "cubins").rglob("*.*")):
        file.unlink()
    submit_nightly(settings, night=dt.date(2026, 11, 2))
    with session(context.database_url) as opened:
        deals = opened.scalars(select(Job.id).where(Job.kind == "compile", Job.state == "queued")).all()
    assert [len(run_job.run(deal_id, "tester#1", context)) for deal_id in deals] == [1, 1]


def test_static_facts_known_from_a_recording_alone_are_compiled_here_too(settings: Settings, drain: Drain) -> None:
    """Nobody here has a GPU; the nightly compiles all the same, and its cubins are there for whoever gets one."""
    submit_nightly(settings, night=dt.date(2026, 11, 1))
    drain()
    for file in list(Path(settings.home / "cubins").rglob("*.*")):
        file.unlink()
    submit_nightly(settings, night=dt.date(2026, 11, 2))
    drain()
    assert any(Path(settings.home / "cubins").rglob("*.cubin"))


def test_a_library_that_is_gone_fails_the_job_with_a_sentence(
    settings: Settings, context: Context, drain: Drain
) -> None:
    submit_nightly(settings)
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(payload={**opened.scalars(select(Job.payload)).one(), "library": "gone"}))
    drain()
    with session(context.database_url) as opened:
        failed = opened.scalars(select(Job).where(Job.state == "failed")).one()
    assert failed.failure is not None
    assert "has no folder 'gone'" in failed.failure
    assert failed.trace is None


def test_of_two_compile_jobs_that_end_at_once_one_releases_the_measure_jobs(
    settings: Settings, context: Context
) -> None:
    add_gpu_worker(context)
    submit_nightly(settings)
    with session(context.database_url) as opened:
        template = opened.scalars(select(Job).where(Job.kind == "compile")).one()
        twins = [
            jobs.add(
                opened,
                key=f"twin{number}",
                kind="compile",
                queue="compile",
                subject="nothing to compile",
                payload={**template.payload, "items": []},
                submission_id=template.submission_id,
            )[0]
            for number in range(8)
        ]
        jobs.cancel(opened, [template.id])
    with ThreadPoolExecutor(4) as pool:
        released = list(pool.map(lambda job_id: run_job.run(job_id, f"tester#{job_id}", context), twins))
    assert sorted(job.queue for found in released for job in found) == ["gpu.h200", "gpu.h200"]


@dataclass
class Bench:
    """A sweep of four configs on record, a store, and a compiler that a test makes."""

    planned: one_commit.Planned
    store: CubinStore
    database_url: str
    opened: Session
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    progress: list[tuple[int, int]] = field(default_factory=list)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.planned.code_keys

    def know(self, code_key: str, status: str = "ok", stored: Mapping[str, Any] | None = None) -> None:
        """Adds a compilation, with what the store has of it."""
        row = one_commit.compiled(code_key, status=status)
        fact_writes.add_compilations(self.opened, [row])
        self.opened.commit()
        if stored is not None:
            self.store.put(str(row["content_key"]), stored, b"cubin")

    def run(self, *numbers: int, queue: str = "compile", threads: int = 1) -> list[Any]:
        """Does the job of a batch of these configs, or the job that plans batches."""
        payload: dict[str, Any] = {"repository": "watched", "sha": "5", "library": "library", "kernel": "gemm_fp8"}
        items = [{"code_key": self.keys[each], "problem": f"p{each}", "params": {"number": each}} for each in numbers]
        payload |= {"arch": "sm_100", "compiler": "theirs", "toolchain": "next"} | ({"items": items} if items else {})
        job: Any = SimpleNamespace(
            key="job", queue=queue, subject="gemm", payload=payload, submission_id=self.planned.submission_id,
            total_steps=len(items), priority=7,
        )  # fmt: skip
        context: Any = SimpleNamespace(
            database_url=self.database_url, store_url=self.store.url, node="n1", compile_threads=threads
        )
        lease: Any = SimpleNamespace(progress=lambda done: self.progress.append((done, self.count_known())))
        return compile_step.step(job, context, lease)

    def count_known(self) -> int:
        with session(self.database_url) as opened:
            return len(opened.scalars(select(Compilation.id)).all())

    def list_trials(self) -> list[str]:
        with session(self.database_url) as opened:
            found = {each.config_id: each.status for each in opened.scalars(select(Trial))}
        return [found[each] for each in self.planned.config_ids]

    def list_jobs(self) -> list[Job]:
        with session(self.database_url) as opened:
            return list(opened.scalars(select(Job).order_by(Job.id)))


@pytest.fixture
def bench(db_session: Session, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(one_commit.submit(db_session), CubinStore(folder(tmp_path)), database_url, db_session)
    db_session.commit()

    def compile_one(*what: object, code_key: str) -> Compiled:
        made.asked.append((*what, code_key))
        is_right = code_key != made.keys[3]
        found = {"content_key": "c", "code_sha256": "s", "symbol": "k"} if is_right else {"failure": "no"}
        return Compiled("ok" if is_right else "error", one_commit.COMPILER, "sm_100", 1.0, 1.0, False, **found)  # type: ignore[arg-type]

    def trace(*what: object, code_key: str, compiler: str) -> None:
        made.asked.append((*what, code_key, compiler))

    own: Any = SimpleNamespace(version=one_commit.COMPILER, limit_s=15.0, compile=compile_one, trace=trace)
    monkeypatch.setattr(compile_step, "open_compiler", lambda _, toolchain: own if toolchain == "next" else None)
    monkeypatch.setattr(compile_step, "compile_finally", lambda _, toolchain, work: work(own if toolchain else None))
    monkeypatch.setattr(watched, "library_at", lambda _, *of: of)
    return made


LIBRARY = ("watched", "5", "library")


def test_code_that_is_on_record_and_in_the_store_is_not_queued(bench: Bench) -> None:
    bench.know(bench.keys[0], stored={"status": "ok"})
    bench.know(bench.keys[1])  # its cubin is on another machine
    bench.know(bench.keys[2], status="error")
    before = [metrics.COMPILE_CACHE.labels(each)._value.get() for each in ("hit", "miss")]
    (queued,) = bench.run()
    (job,) = bench.list_jobs()
    assert bench.list_trials() == ["compiled", "waiting", "not_compiled", "waiting"]
    assert (queued.id, queued.queue) == (job.id, "compile")
    assert (job.key, job.kind, job.queue, job.subject) == ("job:batch0", "compile", "compile", "gemm, batch 1")
    assert (job.total_steps, job.priority, job.submission_id) == (2, 7, bench.planned.submission_id)
    assert {each["code_key"] for each in job.payload["items"]} == {bench.keys[1], bench.keys[3]}
    assert job.payload.keys() >= {"repository", "sha", "library", "kernel", "arch", "toolchain", "compiler"}
    counted = [metrics.COMPILE_CACHE.labels(each)._value.get() for each in ("hit", "miss")]
    assert [after - was for after, was in zip(counted, before, strict=True)] == [2, 2]
    assert bench.run() == [], "an earlier attempt queued them"


@pytest.mark.parametrize(
    ("stored", "trial"),
    [
        ({"status": "timeout", "cpu_s": 14.9, "failure": "busy"}, "waiting"),
        ({"status": "timeout", "cpu_s": 15.0, "failure": "slow"}, "compiled"),
        ({"status": "error", "failure": "the compiler process died: SIGKILL"}, "waiting"),
    ],
)
def test_code_whose_outcome_here_is_not_final_is_compiled_again(
    bench: Bench, stored: dict[str, Any], trial: str
) -> None:
    """The record has another machine's outcome; what the store has is known when the sweep is measured."""
    bench.know(bench.keys[0], stored=stored)
    bench.run()
    assert bench.list_trials()[0] == trial
    assert len(bench.list_jobs()[0].payload["items"]) == (4 if trial == "waiting" else 3)


def test_batches_are_numbered_from_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_step, "BATCH", 3)
    assert len(bench.run()) == 2
    assert [(each.key, each.subject) for each in bench.list_jobs()] == [
        ("job:batch0", "gemm, batch 1"),
        ("job:batch1", "gemm, batch 2"),
    ]


@pytest.mark.parametrize(
    ("threads", "progress"),
    [(1, [(1, 1), (2, 1), (3, 1), (4, 3), (4, 3)]), (2, [(1, 1), (2, 1), (3, 1), (4, 1), (4, 1)])],
)
def test_a_batch_compiles_what_is_missing_and_writes_it_a_few_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, threads: int, progress: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(compile_step, "CHUNK", 2)
    monkeypatch.setattr(compile_step, "compile_each", lambda work, items, _: ((item, work(item)) for item in items))
    bench.know(bench.keys[1], stored={"status": "ok"})
    took_s = metrics.COMPILE_SECONDS.labels("ok")._sum
    before_s = took_s.get()
    assert bench.run(0, 1, 2, 3, threads=threads) == []
    assert took_s.get() - before_s == 2.0
    assert bench.progress == progress
    assert bench.asked == [
        (LIBRARY, "gemm_fp8", f"p{each}", {"number": each}, "sm_100", bench.keys[each]) for each in (0, 2, 3)
    ]
    assert bench.list_trials() == ["compiled", "compiled", "compiled", "not_compiled"]
    with session(bench.database_url) as opened:
        hosts = dict(opened.execute(select(Compilation.code_key, Compilation.host)).all())  # type: ignore[arg-type]
    assert hosts == {key: "node-a" if key == bench.keys[1] else "n1" for key in bench.keys}


def test_a_traced_batch_is_queued_for_any_compile_worker(bench: Bench) -> None:
    (queued,) = bench.run(0, 2, queue="record")
    assert [done for done, _ in bench.progress] == [0, 1]
    assert bench.asked == [
        (LIBRARY, "gemm_fp8", f"p{each}", {"number": each}, "sm_100", bench.keys[each], "theirs") for each in (0, 2)
    ]
    (job,) = bench.list_jobs()
    assert (queued.id, queued.queue) == (job.id, "compile")
    assert (job.key, job.kind, job.queue, job.subject) == ("job:recorded", "compile", "compile", "gemm")
    assert (job.total_steps, job.priority, job.submission_id) == (2, 7, bench.planned.submission_id)
    assert [each["code_key"] for each in job.payload["items"]] == [bench.keys[0], bench.keys[2]]
    assert bench.list_trials() == ["waiting"] * 4


def codes(problem: str, count: int) -> list[UnmeasuredCode]:
    return [UnmeasuredCode(f"{problem} {number}", problem, {"tile": number}) for number in range(count)]


def test_batches_spread_slow_neighbours() -> None:
    batches = split(codes("large", 25))
    assert [len(batch) for batch in batches] == [9, 8, 8]
    assert [each.params["tile"] for each in batches[0][:3]] == [0, 3, 6]
    assert max(map(len, split(codes("large", 500)))) == BATCH
    assert [len(batch) for batch in split(codes("large", 11))] == [6, 5], "a killed worker loses ten configs at most"
    assert [len(batch) for batch in split(codes("large", 10))] == [10]
    assert split([]) == []


def test_one_problem_is_compiled_before_the_next_and_small_ones_share_a_batch() -> None:
    batches = split([*codes("first", 25), *codes("second", 3), *codes("third", 4), *codes("fourth", 11)])
    assert [{each.problem for each in batch} for batch in batches] == [
        {"first"}, {"first"}, {"first"}, {"second", "third"}, {"fourth"}, {"fourth"},
    ]  # fmt: skip
    assert [len(batch) for batch in split([*codes("first", 6), *codes("second", 4), *codes("third", 1)])] == [10, 1]
    assert sum(map(len, batches)) == 43
    assert max(map(len, batches)) <= BATCH


def test_threads_compile_at_once_and_their_compilers_are_closed() -> None:
    both = threading.Barrier(2, timeout=120)

    def compile_one(item: int) -> int:
        both.wait()  # breaks where one thread compiles everything
        return 10 * item

    try:
        assert sorted(compiler.compile_each(compile_one, [1, 2, 3, 4], 2)) == [(1, 10), (2, 20), (3, 30), (4, 40)]
    finally:
        compiler.close()
