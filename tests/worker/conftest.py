"""What the worker's tests share: settings that point at real servers and at a tiny watched repository."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.db.lifecycle import jobs
from tilewatch.db.session import session
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import compiler

Drain = Callable[[], int]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tiny_repository.make(tmp_path / "watched")


@pytest.fixture
def settings(tmp_path: Path, repository: Path, database_url: str, broker_url: str) -> Settings:
    return settings_for(tmp_path / "home", repository, database_url, broker_url)


@pytest.fixture
def context(settings: Settings) -> Context:
    return Context.of(settings)


@pytest.fixture(autouse=True)
def no_compiler_left() -> Iterator[None]:
    """Ends the tile compiler that a compile step keeps for the life of its process."""
    yield
    compiler.close()


@pytest.fixture
def drain(context: Context) -> Drain:
    return functools.partial(do_all_jobs, context)


def do_all_jobs(context: Context) -> int:
    """Does every queued job in this process, as workers would; returns how many it did."""
    done = 0
    while True:
        with session(context.database_url) as opened:
            queued = jobs.unsent(opened, 0)
        if not queued:
            return done
        for job in queued:
            run_job.run(job.id, f"tester#{done}", context)
            done += 1


def settings_for(home: Path, repository: Path, database_url: str, broker_url: str) -> Settings:
    return Settings(
        home=home,
        database_url=database_url,
        broker_url=broker_url,
        repository=repository,
        library="library",
        watch=("h200",),
    )
