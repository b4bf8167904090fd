"""The dashboards of the small database, where whoever types a name may act, and of a newcomer."""

import datetime as dt
from collections.abc import Iterator

import pytest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures import newcomer, servers
from tilewatch.db import session
from tilewatch.db.models import Action, Regression, RegressionEvent, Verdict, Worker
from tilewatch.db.server.free_ports import find_free_port


@pytest.fixture(scope="session")
def address(filled_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    may_triage = {"TILEWATCH_ANONYMOUS": "act"}  # so that a journey can
    with servers.dashboard(filled_url, tmp_path_factory.mktemp("elsewhere"), find_free_port(), may_triage) as served:
        yield served


@pytest.fixture(scope="session")
def newcomers_address(new_filled_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard that a walker may have clicked in: what its jobs and regressions are is not sure."""
    with newcomer.serve(new_filled_database, tmp_path_factory.mktemp("newcomer")) as served:
        yield served


@pytest.fixture
def new_regression(filled_url: str) -> Iterator[None]:
    """Regression 1 is new, and is so again after a test in which kim acted on it: the database is everybody's."""
    yield
    with session.session(filled_url) as opened:
        opened.query(RegressionEvent).filter(RegressionEvent.who.like("kim (%")).delete()
        again = opened.get_one(Regression, 1)
        again.state, again.owner = "new", None


@pytest.fixture
def undecided_run(filled_url: str) -> Iterator[int]:
    """An undecided run, whose GPU model has a live worker until the test has ended."""
    with session.session(filled_url) as opened:
        worker = opened.query(Worker).filter_by(gpu_model="h200").one()
        judged = opened.query(Verdict).filter_by(verdict="undecided").order_by(Verdict.run_id.desc()).first()
        assert judged is not None
        run_id, reason, seen_at = judged.run_id, judged.reason, worker.seen_at
        worker.seen_at = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    yield run_id
    with session.session(filled_url) as opened:
        opened.query(Worker).filter_by(gpu_model="h200").one().seen_at = seen_at
        opened.get_one(Verdict, run_id).reason = reason
        opened.query(Action).filter(Action.wanted.has_key("run")).delete()
