"""Two repositories with a kernel of one name: their series are two, and a page is about one of them."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures.app import APP, opened
from tests.dashboard.fixtures.small_database import FIRST_DAY, KERNEL, PROBLEM, REPOSITORY, SHAS
from tests.db.fixtures import one_commit
from tilewatch.db import session
from tilewatch.db.models import Commit, Sweep
from tilewatch.db.page_reads import regressions, series, snapshots, static_facts, sweeps
from tilewatch.db.worker_reads import run_pairs
from tilewatch.worker.transfer.importing import import_file

STORY = Path(__file__).parents[3] / "recordings" / "story" / "h200.jsonl.gz"
OTHER = "tilewatch-story"
SERIES = (KERNEL, PROBLEM, "h200")


@pytest.fixture(scope="module")
def both_url(new_filled_database: NewDatabase) -> Iterator[str]:
    """The filled database, and a recording of another repository with the same kernel and problem."""
    with new_filled_database() as url:
        import_file(url, STORY)
        yield url


@pytest.fixture
def both(both_url: str) -> Iterator[Session]:
    with session.session(both_url) as read:
        yield read


def page(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
    return opened(AppTest.from_file(str(APP), default_timeout=120), name)


def labels(app: AppTest) -> list[str]:
    return [each.label for each in app.selectbox]


def test_a_series_is_of_one_repository(both: Session) -> None:
    keys = {(row.repository, row.kernel, row.problem, row.gpu_model) for row in series.list_series(both)}
    assert {(REPOSITORY, *SERIES), (OTHER, *SERIES)} <= keys
    own = {row.sha for row in series.list_points(both, REPOSITORY, *SERIES)}
    other = {row.sha for row in series.list_points(both, OTHER, *SERIES)}
    assert (own, len(other)) == (set(SHAS), 6)
    now = FIRST_DAY + dt.timedelta(days=30)
    for repository, shas in ((REPOSITORY, own), (OTHER, other)):
        assert {row.sha for row in snapshots.list_points_as_of(both, repository, now)} <= shas
        assert {row.sha for row in snapshots.list_commits(both, repository)} == shas
        assert {row.sha for row in sweeps.list_sweeps(both, repository, *SERIES)} == shas
        assert {row.sha for row in sweeps.list_winners(both, repository, *SERIES)} == shas
        assert {row.sha for row in static_facts.list_static_facts(both, repository, *SERIES)} <= shas
    assert snapshots.list_points_at_commit(both, OTHER, SHAS[0]) == []
    assert regressions.list_levels(both, OTHER, *SERIES) == []


def test_the_repository_that_is_watched_here_comes_before_those_of_recordings(both: Session) -> None:
    assert series.list_repositories(both) == [REPOSITORY, OTHER]


def test_a_sweep_has_the_repository_of_its_commit_whatever_is_written(db_session: Session) -> None:
    sweep = db_session.get_one(Sweep, one_commit.submit(db_session).sweep_id)
    sweep.repository = "another"
    db_session.flush()
    db_session.refresh(sweep)
    assert sweep.repository == db_session.get_one(Commit, sweep.commit_id).repository


def test_alarms_compare_runs_of_one_repository(db_session: Session) -> None:
    """The newest run of each of two repositories, and neither is the one before the other."""
    for repository in ("one", "another"):
        one_commit.measure(db_session, one_commit.submit(db_session, repository, repository), repository)
    found = run_pairs.list_newest_run_pairs(db_session, one_commit.NOON - dt.timedelta(days=400))
    assert sorted((run.repository, run.old_winner) for run in found) == [("another", None), ("one", None)]


@pytest.mark.parametrize("name", ["overview", "series", "compare", "architectures", "regressions"])
def test_a_page_offers_repositories_only_where_there_are_several(
    name: str, both_url: str, filled_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = page(both_url, name, monkeypatch)
    alone = page(filled_url, name, monkeypatch)
    assert "Repository" not in labels(alone)
    assert ("Repository" in labels(several)) == (name != "regressions"), "the story's regressions are not judged yet"


def test_the_page_opens_on_the_watched_repository_and_goes_to_the_picked_one(
    both_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = page(both_url, "series", monkeypatch)
    chosen = next(each for each in app.selectbox if each.label == "Repository")
    assert (chosen.value, chosen.options) == (REPOSITORY, [REPOSITORY, OTHER])
    app.selectbox(key="repository").set_value(OTHER).run()
    assert not app.exception
    assert "open diamonds come from recordings" in " ".join(str(each.value) for each in app.caption)
