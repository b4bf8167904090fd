"""A finished run is on record once: whatever happens to Postgres, the disk or the worker after the GPU is done."""

import dataclasses
import datetime as dt
import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from tests.db.fixtures.leases import ENDED_LEASE
from tests.worker.fixtures import run_result, tiny_repository
from tests.worker.fixtures.compiled_sweep import add_gpu_worker
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db import migrate
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.models import Job, Measurement, Run, Trial
from tilewatch.db.server.embedded import Embedded
from tilewatch.db.server.free_ports import find_free_ports
from tilewatch.db.session import engine, session
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.results import RunResult, TrialResult
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.gpu import healthy_gpu
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import spool, write_run
from tilewatch.worker.steps.spool import Spooled
from tilewatch.worker.submitting.submit import submit_sweep

PATIENCE_S = 300  # a deadline for a hung test, not a speed


@pytest.fixture
def spooled(settings: Settings, context: Context) -> Spooled:
    """A run whose measure job is still this worker's."""
    return queued_measure_job(settings, context, run_result.result())


def queued_measure_job(settings: Settings, context: Context, result: RunResult) -> Spooled:
    """Submit, compile, and leave the one measure job queued."""
    add_gpu_worker(context)
    submit_sweep(settings, tiny_repository.KERNEL, "1024", gpus=("h200",))
    with session(context.database_url) as opened:
        compile_id = opened.scalars(select(Job.id).where(Job.kind == "compile")).one()
    (batch,) = run_job.run(compile_id, "tester#1", context)
    (job,) = run_job.run(batch.id, "tester#1", context)
    with session(context.database_url) as opened:
        return Spooled(job.id, opened.get_one(Job, job.id).key, result)


def count(context: Context, table: type) -> int:
    with session(context.database_url) as opened:
        return opened.scalars(select(func.count()).select_from(table)).one()


class GpuThat:
    """A backend whose GPU measures as a test says."""

    def __init__(self, measure: Callable[..., RunResult]) -> None:
        self.measure = measure

    def own_gpu(self) -> Gpu:
        return Gpu(0, "GPU-1", "NVIDIA H200", "580.1", None)


def a_gpu_that(monkeypatch: pytest.MonkeyPatch, measures: Callable[..., RunResult]) -> None:
    monkeypatch.setattr(healthy_gpu, "backend_for", lambda *_: GpuThat(measures))


def test_a_run_comes_back_from_the_disk_as_it_was(tmp_path: Path) -> None:
    odd = TrialResult({"width": 64}, "wrong", error=float("inf"), failure="not a number")
    result = dataclasses.replace(run_result.result(), trials=(*run_result.result().trials, odd))
    kept = Spooled(7, "manual:x", result)
    file = spool.keep(tmp_path / "spool", kept)
    assert spool.list_waiting(tmp_path / "spool") == [file]
    assert spool.read(file) == kept
    file.unlink()
    assert spool.read(file) is None


def test_a_run_is_on_disk_with_its_name_before_the_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut would take what only the memory of the machine has: the file, or its new name."""
    synced: list[tuple[bool, list[str]]] = []
    folder = tmp_path / "home" / "spool"

    def sync(handle: int) -> None:
        status = os.fstat(handle)
        assert status.st_size > 0
        synced.append((stat.S_ISDIR(status.st_mode), [each.suffix for each in folder.iterdir()]))

    monkeypatch.setattr(os, "fsync", sync)
    open_before = len(os.listdir("/proc/self/fd"))
    file = spool.keep(folder, Spooled(7, "manual:x", run_result.result()))
    assert len(os.listdir("/proc/self/fd")) <= open_before
    assert synced == [(False, [".making"]), (True, [".json"])]
    assert file == folder / f"job-7-{os.getpid()}-20261101T030000000000.json"
    assert spool.list_refused(folder) == []
    (folder / "job-8.refused").touch()
    assert spool.list_refused(folder) == [folder / "job-8.refused"]
    assert spool.list_waiting(folder) == [file]


def test_a_half_written_file_is_not_left_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        spool.keep(tmp_path, Spooled(7, "manual:x", run_result.result()))
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_delivered_twice_is_on_record_once(context: Context, spooled: Spooled) -> None:
    with session(context.database_url) as opened:
        first = write_run.write_spooled(opened, spooled)
    with session(context.database_url) as opened:
        assert write_run.write_spooled(opened, spooled) == first
    assert (count(context, Run), count(context, Measurement)) == (1, 2)


def test_runs_that_start_in_the_same_microsecond_are_both_on_record(
    settings: Settings, context: Context, spooled: Spooled
) -> None:
    """Two of the 600 sweeps of a simulated GPU with four workers had no run of their own (2026-11-28)."""
    submit_sweep(settings, tiny_repository.KERNEL, "2048", gpus=("h200",))
    with session(context.database_url) as opened:
        compiling = opened.scalars(select(Job.id).where(Job.kind == "compile", Job.state == "queued")).one()
    (job,) = run_job.run(compiling, "tester#1", context)  # its cubins are there already
    with session(context.database_url) as opened:
        other = Spooled(job.id, opened.get_one(Job, job.id).key, run_result.result())
    assert other.result.started_at == spooled.result.started_at
    for each in (spooled, other):
        with session(context.database_url) as opened:
            write_run.write_spooled(opened, each)
    assert count(context, Run) == 2


def test_of_workers_that_finish_one_sweep_at_once_one_is_on_record(context: Context, spooled: Spooled) -> None:
    together = threading.Barrier(4)

    def finish(minute: int) -> None:
        mine = dataclasses.replace(spooled, result=run_result.result(minute=minute))
        together.wait()
        with session(context.database_url) as opened:
            write_run.write_spooled(opened, mine)

    workers = [threading.Thread(target=finish, args=(minute,)) for minute in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (count(context, Run), count(context, Measurement)) == (1, 2)
    with session(context.database_url) as opened:
        assert opened.scalar(select(func.count(Job.id)).where(Job.kind == "judge")) == 1


def test_what_a_killed_worker_spooled_is_delivered_by_its_next_life(context: Context, spooled: Spooled) -> None:
    with session(context.database_url) as opened:
        assert jobs.claim(opened, spooled.job_id, "killed#1", 60)
    spool.keep(context.spool, spooled)
    (judge,) = write_run.deliver_spooled(context.spool, context.database_url)
    assert judge.queue == "judge"
    assert spool.list_waiting(context.spool) == []
    assert count(context, Run) == 1
    with session(context.database_url) as opened:
        opened.execute(update(Job).where(Job.state == "running").values(lease_until=ENDED_LEASE))
    assert run_job.run(spooled.job_id, "next#1", context) == [judge]
    assert count(context, Run) == 1


@pytest.mark.parametrize("wrong", ["another database's", "unreadable"])
def test_what_cannot_be_delivered_is_put_aside_and_kept(context: Context, wrong: str) -> None:
    if wrong == "unreadable":
        context.spool.mkdir(parents=True)
        (context.spool / "job-1.json").write_text('{"job_id": 1}')
    else:
        spool.keep(context.spool, Spooled(4711, "manual:elsewhere", run_result.result()))
    assert write_run.deliver_spooled(context.spool, context.database_url) == []
    assert spool.list_waiting(context.spool) == []
    (refused,) = context.spool.iterdir()
    assert refused.suffix == ".refused"
    assert spool.refuse(refused.with_suffix(".json")) == refused, "another worker of this machine was first"


def test_a_full_disk_costs_no_result(context: Context, spooled: Spooled, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spool, "keep", full)
    a_gpu_that(monkeypatch, lambda *_, **__: spooled.result)
    run_job.run(spooled.job_id, "tester#1", context)
    assert count(context, Run) == 1


def test_nothing_comes_between_the_last_launch_and_the_spool(
    context: Context, spooled: Spooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed while Postgres does not answer would lose the run. The run has all trials."""

    def write(_: object) -> None:
        raise AssertionError("Postgres is asked ahead of the spool")

    monkeypatch.setattr(write_run.TrialWriter, "write", write)
    a_gpu_that(monkeypatch, lambda *_, **__: spooled.result)
    run_job.run(spooled.job_id, "tester#1", context)
    assert count(context, Run) == 1
    with session(context.database_url) as opened:
        assert "waiting" not in set(opened.scalars(select(Trial.status)))


def test_a_sweep_that_ends_while_postgres_is_away_is_on_record_once_when_it_is_back(
    scratch: Path, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real server is stopped in the middle of the sweep, and started when the run lies in the spool."""
    monkeypatch.setattr(write_run, "WRITE_S", 0.0)
    monkeypatch.setattr("tilewatch.worker.queue.lease.RENEW_S", 0.2)
    postgres_port, broker_port = find_free_ports(2)
    own = Embedded(scratch, postgres_port=postgres_port, broker_port=broker_port, fsync=False)
    with own as servers:
        migrate.upgrade(servers.database_url)
        settings = settings_for(tmp_path / "home", repository, servers.database_url, servers.broker_url)
        context = Context.of(settings)
        result = run_result.result()
        spooled = queued_measure_job(settings, context, result)

        def sweep(*_: object, on_trial: Callable[[TrialResult], None], **__: object) -> RunResult:
            on_trial(result.trials[0])
            own.stop()
            for trial in result.trials[1:]:
                on_trial(trial)
            return result

        a_gpu_that(monkeypatch, sweep)
        queued: list[UnsentJob] = []
        worker = threading.Thread(target=lambda: queued.extend(run_job.run(spooled.job_id, "tester#1", context)))
        worker.start()
        deadline = time.monotonic() + PATIENCE_S
        while not spool.list_waiting(context.spool):
            assert time.monotonic() < deadline, "nothing was spooled"
            time.sleep(0.05)
        own.start()
        worker.join(PATIENCE_S)
        (judge,) = queued
        assert spool.list_waiting(context.spool) == []
        with session(context.database_url) as opened:
            assert opened.get_one(Job, spooled.job_id).state == "done"
            assert opened.get_one(Job, judge.id).state == "queued"
            run = opened.scalars(select(Run)).one()
            assert run.started_at == run_result.STARTED_AT.astimezone(dt.UTC)
            assert sorted(opened.scalars(select(Trial.status))) == ["not_compiled", "timed", "timed", "wrong"]
        assert do_all_jobs(context) == 1
        engine(servers.database_url).dispose()
