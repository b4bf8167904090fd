"""Host code that needs a package is recorded by the one worker that has it and compiled by one that has not: real
Celery workers with import paths of their own, on real servers."""

import os
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.kernels.fixtures.needs_package import write_package, write_repository
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.celery_process import all_done, celery_worker, wait_for, workers
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db import fact_writes
from tilewatch.db.models import Compilation, Job, Sweep, Trial
from tilewatch.db.page_reads.queue import list_queues
from tilewatch.db.session import session
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.library_errors import PackageMissing
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import compiler
from tilewatch.worker.submitting.submit import submit_nightly

CONFIGS = 2


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A watched repository whose host code imports a package that is not on this process's path."""
    folder = write_repository(tmp_path / "watched")
    tiny_repository.git(folder, "init", "--quiet", "--initial-branch", "main")
    tiny_repository.git(folder, "add", ".")
    tiny_repository.git(folder, "commit", "--quiet", "--message", "Double rows")
    return folder


@pytest.fixture
def with_package(tmp_path: Path) -> str:
    path = (str(write_package(tmp_path / "packages")), os.environ.get("PYTHONPATH", ""))
    return os.pathsep.join(filter(None, path))


def test_one_worker_records_and_another_compiles(settings: Settings, context: Context, with_package: str) -> None:
    with celery_worker(settings, "record", "record@b", {"PYTHONPATH": with_package}):
        wait_for(lambda: workers(context), settings.home / "record@b.log")
        submitted = submit_nightly(settings)
        assert "a worker of the queue record finds out what it sweeps, since here" in submitted.sentence
        with celery_worker(settings, "compile", "compile@a"):
            wait_for(lambda: all_done(context), settings.home / "compile@a.log")
    with session(context.database_url) as opened:
        assert opened.scalars(select(Sweep.kernel)).all() == ["doubled"]
        assert opened.scalars(select(Trial.status)).all() == ["compiled"] * CONFIGS
        assert set(opened.scalars(select(Compilation.symbol))) == {"double_rows+sum_rows"}
        done = opened.execute(select(Job.kind, Job.queue).order_by(Job.id)).all()
    assert [tuple(row) for row in done] == [
        ("record", "record"),  # the plan
        ("compile", "compile"),  # the kernel's batches
        ("compile", "record"),  # a batch that compile@a could not run the host code of
        ("compile", "compile"),  # the same batch, recorded
    ]
    assert len(list((settings.home / "cubins").glob("*/*.recorded"))) == CONFIGS


def test_without_such_a_worker_a_submission_says_which_line_needs_what_and_what_to_do(settings: Settings) -> None:
    wanted = (
        r"operators\.py does not load: ModuleNotFoundError: No module named 'host_package' \(line 2, through "
        r"src/needs_package_ops\.py, line 3\).*no worker takes the queue record: install the package on one node and "
        r"start a worker there with -Q record"
    )
    with pytest.raises(PackageMissing, match=wanted):
        submit_nightly(settings)


def test_a_batch_that_no_worker_can_record_fails_with_what_to_do(
    settings: Settings, context: Context, with_package: str, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who submitted it could run the host code, but has no worker."""
    with monkeypatch.context() as able:
        able.setenv("PYTHONPATH", with_package)
        submit_nightly(settings)
    with session(context.database_url) as opened:
        assert [(each.queue, each.workers) for each in list_queues(opened)] == [("compile", 0)]
    drain()
    with session(context.database_url) as opened:
        (failure,) = opened.scalars(select(Job.failure).where(Job.state == "failed")).all()
    assert failure is not None
    assert "No module named 'host_package'" in failure
    assert failure.endswith("start a worker there with -Q record (docs/operate/nodes.md)")


def test_a_batch_is_not_traced_for_another_compiler_again_and_again(
    settings: Settings, context: Context, with_package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compile workers got a newer compiler, and the worker that has the package did not."""
    with session(context.database_url) as opened:
        fact_writes.write_heartbeat(opened, name="record@b", kind="compile", host="b", toolchain={}, queues=["record"])
    with monkeypatch.context() as able:
        able.setenv("PYTHONPATH", with_package)
        submit_nightly(settings)
    with session(context.database_url) as opened:
        (planning,) = opened.scalars(select(Job.id)).all()
    (batch,) = run_job.run(planning, "compile@a#1", context)
    with monkeypatch.context() as upgraded:
        upgraded.setattr(Compiler, "_read_toolchain_version", lambda _: "cuda-tile 99")
        (moved,) = run_job.run(batch.id, "compile@a#1", context)
    assert moved.queue == "record"
    compiler.close()
    monkeypatch.setenv("PYTHONPATH", with_package)
    assert run_job.run(moved.id, "record@b#1", context) == []
    with session(context.database_url) as opened:
        failure = opened.get_one(Job, moved.id).failure or ""
    assert f"traced with {compiler_version()}, but is compiled with cuda-tile 99" in failure


def test_a_batch_is_not_moved_twice(
    settings: Settings, context: Context, with_package: str, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker takes the queue, but lacks the package too."""
    with monkeypatch.context() as able:
        able.setenv("PYTHONPATH", with_package)
        submit_nightly(settings)
    with session(context.database_url) as opened:
        fact_writes.write_heartbeat(
            opened, name="record@b", kind="compile", host="b", toolchain={}, queues=["compile", "record"]
        )
    drain()
    with session(context.database_url) as opened:
        (row,) = opened.execute(select(Job.queue, Job.failure).where(Job.state == "failed")).all()
    assert row.queue == "record"
    assert row.failure.startswith("watch file operators.py does not load: ModuleNotFoundError")
