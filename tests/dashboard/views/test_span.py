"""The spans of an operator are a series like any other."""

from collections.abc import Iterator

import pytest
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures.app import APP, opened
from tests.dashboard.fixtures.small_database import KERNEL, PROBLEM
from tilewatch.db.models import Measurement, Run
from tilewatch.db.session import session
from tilewatch.db.worker_reads import judging
from tilewatch.worker.steps import write_spans


@pytest.fixture
def url_with_spans(new_filled_database: NewDatabase) -> Iterator[str]:
    """The small database, where each run of a kernel measured spans that are a fifth longer than its times."""
    with new_filled_database() as url:
        with session(url) as opened_session:
            for each in opened_session.scalars(select(Measurement).where(Measurement.role == "kernel")).all():
                each.detail = {**each.detail, "span_us": [1.2 * time for time in each.samples_us]}
            opened_session.flush()
            for run_id in opened_session.scalars(select(Run.id).order_by(Run.id)).all():
                write_spans.write(opened_session, judging.read_scope(opened_session, run_id))
        yield url


def test_spans_are_a_series_with_runs(url_with_spans: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", url_with_spans)
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params["kernel"], app.query_params["problem"] = f"{KERNEL} span", PROBLEM
    opened(app, "series")
    assert (app.session_state["kernel"], app.session_state["problem"]) == (f"{KERNEL} span", PROBLEM)
    assert not app.exception
    assert app.get("plotly_chart")
