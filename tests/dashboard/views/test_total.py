"""A weighted total is a series like any other, and its run is its parts."""

from collections.abc import Iterator

import pytest
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures.app import APP, opened
from tests.dashboard.fixtures.small_database import KERNEL, PROBLEM
from tilewatch.db.models import TOTAL, Run, Submission, Sweep
from tilewatch.db.page_reads import static_facts, submissions
from tilewatch.db.session import session
from tilewatch.db.worker_reads import judging
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging import totals


@pytest.fixture
def url_with_totals(new_filled_database: NewDatabase) -> Iterator[str]:
    """The small database, where the one problem of its nightlies is 28 times in a step of the model "decode"."""
    with new_filled_database() as url:
        with session(url) as opened_session:
            nightly = Sweep.submission.has(Submission.reason == "nightly")
            for sweep in opened_session.scalars(select(Sweep).where(nightly)).all():
                sweep.parts_of = {"decode": {"weight": 28.0, "parts": 1}}
            opened_session.flush()
            for run_id in opened_session.scalars(select(Run.id).join(Sweep).where(nightly).order_by(Run.id)).all():
                scope = judging.read_scope(opened_session, run_id)
                totals.write(opened_session, scope)
                totals.judge(opened_session, scope, Policy())
        yield url


def test_a_total_is_a_series_whose_run_lists_its_parts(url_with_totals: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", url_with_totals)
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params["kernel"], app.query_params["problem"] = TOTAL, "decode"
    opened(app, "series")
    assert (app.session_state["kernel"], app.session_state["problem"]) == (TOTAL, "decode")
    with session(url_with_totals) as opened_session:
        run_id = max(opened_session.scalars(select(Run.id)))
    app.query_params["run"] = str(run_id)
    app.switch_page("views/series.py").run()
    assert not app.exception
    assert "The parts of this total" in [each.value for each in app.subheader]
    (parts,) = (frame.value for frame in app.dataframe if "share" in frame.value)
    assert parts.drop(columns="time us").to_dict("records") == [
        {"problem": f"{KERNEL} {PROBLEM}", "runs": "28", "share": "100%", "verdict": "regression", "change": "+9.3 %"}
    ]
    assert not app.code, "a total cannot be repeated by one command"


def test_a_submission_has_as_many_sweeps_as_were_asked_for(url_with_totals: str) -> None:
    with session(url_with_totals) as opened_session:
        nightlies = [row for row in submissions.list_submissions(opened_session) if row.reason == "nightly"]
        assert {(row.sweeps, row.runs) for row in nightlies if row.gpu_model == "h200"} == {(1, 1)}


def test_a_total_has_no_search_space_to_show(url_with_totals: str) -> None:
    with session(url_with_totals) as opened_session:
        assert TOTAL not in {row.kernel for row in static_facts.list_spaces(opened_session)}
