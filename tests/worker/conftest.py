"""What the worker's tests share: settings that point at real servers and at a tiny watched repository."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from db import jobs
from db.session import session
from tests.worker import tiny
from worker import compile, tasks
from worker.place import Place
from worker.settings import Settings

Drain = Callable[[], int]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tiny.make(tmp_path / "watched")


@pytest.fixture
def settings(tmp_path: Path, repository: Path, database_url: str, broker_url: str) -> Settings:
    return settings_for(tmp_path / "home", repository, database_url, broker_url)


@pytest.fixture
def place(settings: Settings) -> Place:
    return Place.of(settings)


@pytest.fixture(autouse=True)
def no_compiler_left() -> Iterator[None]:
    """Ends the tile compiler that a compile step keeps for the life of its process."""
    yield
    compile.close()


@pytest.fixture
def drain(place: Place) -> Drain:
    return functools.partial(do_all_jobs, place)


def do_all_jobs(place: Place) -> int:
    """Does every queued job in this process, as workers would; returns how many it did."""
    done = 0
    while True:
        with session(place.database_url) as opened:
            queued = jobs.unsent(opened, 0)
        if not queued:
            return done
        for job in queued:
            tasks.run(job.id, f"tester#{done}", place)
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
