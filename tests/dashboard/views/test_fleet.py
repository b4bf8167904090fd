"""The simulated fleet: it fills every table that the pages read, and many series stand where a plain search says."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from benchmarks import fleet
from tests.conftest import NewDatabase
from tests.dashboard.fixtures.app import opened, rows
from tilewatch.db import session
from tilewatch.db.models import Commit, Measurement, Run, Sweep, Trial
from tilewatch.db.page_reads import regressions, series, snapshots, static_facts, submissions, sweeps
from tilewatch.db.page_reads.regressions import describe_origin

APP = Path(__file__).parents[3] / "dashboard" / "app.py"
SMALL = fleet.Fleet(nights=6, gpu_models=2, kernels=2, problems=2)
PAGES = ("overview", "inbox", "series", "compare", "architectures", "regressions", "jobs")
OF_A_REPOSITORY = ("overview", "series", "compare", "architectures")
"""The others have rows of several repositories, each of which says it."""
NOON = dt.datetime.combine(SMALL.last_night, dt.time(12), dt.UTC)


@pytest.fixture(scope="module")
def fleet_url(new_database: NewDatabase) -> Iterator[str]:
    with new_database() as url:
        with session.session(url) as opened_session:
            fleet.fill(opened_session, fleet.Fleet(nights=12, gpu_models=2, kernels=3, problems=4))
        yield url


def test_a_small_fleet_has_all_its_nights_series_and_trials(db_session: Session) -> None:
    fleet.fill(db_session, SMALL)
    assert len(series.list_series(db_session)) == len(static_facts.list_spaces(db_session)) == 8
    assert db_session.scalar(select(func.count(Trial.config_id))) == 6 * 8 * 54
    assert db_session.scalar(select(func.count(Measurement.id))) == 6 * 8 * 3
    assert {row.state for row in submissions.list_last_nights(db_session)} == {"measured"}
    assert len(snapshots.list_commits(db_session, fleet.REPOSITORY)) == 6


def test_the_last_nights_have_a_wide_space_and_steps_are_regressions(db_session: Session) -> None:
    fleet.fill(db_session, fleet.Fleet(nights=12, gpu_models=2, kernels=3, problems=4, wide_nights=1))
    wide = sweeps.list_sweeps(db_session, fleet.REPOSITORY, fleet.WIDE_KERNEL, fleet.WIDE_PROBLEM, "h200")
    assert [sweep.space_size for sweep in wide] == [500]
    assert len(sweeps.list_trials(db_session, wide[0].id)) == 500
    judged = {
        row.verdict
        for row in snapshots.list_judged_changes(db_session, fleet.REPOSITORY, NOON - dt.timedelta(days=400))
    }
    assert {row.direction for row in regressions.list_regressions(db_session)} == judged != set()


def test_the_history_of_a_made_regression_ends_in_its_state(db_session: Session) -> None:
    fleet.fill(db_session, fleet.Fleet(nights=60, gpu_models=2, kernels=3, problems=5))
    found = regressions.list_regressions(db_session)
    assert {row.state for row in found} == {"new", "resolved"}
    for row in found:
        newest, *_, oldest = [*regressions.list_events(db_session, row.id)] * 2
        assert (newest.to_state, newest.at) == (row.state, row.changed_at)
        assert (oldest.action, oldest.to_state) == ("open", "new")


def test_a_series_that_missed_nights_stands_at_the_last_it_has(db_session: Session) -> None:
    fleet.fill(db_session, SMALL)
    missed = series.list_series(db_session)[0]
    late = (
        select(Run)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .where(Sweep.kernel == missed.kernel, Sweep.problem == missed.problem, Sweep.gpu_model == missed.gpu_model)
        .where(Commit.position >= 3)
    )
    for run in db_session.scalars(late).all():
        db_session.delete(run)
    db_session.flush()
    for days, expected in ((0, 5), (2, 3), (5, 0), (400, 0)):
        standing = snapshots.list_points_as_of(db_session, fleet.REPOSITORY, NOON - dt.timedelta(days=days))
        positions = {(row.kernel, row.problem, row.gpu_model): row.position for row in standing}
        assert positions.pop((missed.kernel, missed.problem, missed.gpu_model)) == min(expected, 2)
        assert set(positions.values()) == {expected}
        assert len(positions) == 7


def test_two_gpu_models_are_compared_series_by_series(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with session.session(database_url) as written:
        fleet.fill(written, SMALL)
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", database_url)
    app = opened(AppTest.from_file(str(APP), default_timeout=120), "compare")
    assert "of 8 series on both sides" in " ".join(str(each.value) for each in app.markdown)
    app.get("button_group")[0].set_value("Two GPU models").run()
    assert not app.exception
    (counted,) = (str(each.value) for each in app.markdown if "of 4 series on both sides" in str(each.value))
    assert " with a higher ratio, " in counted
    assert "slower" not in counted, "of ratios to one baseline"


def test_every_gpu_model_of_a_series_is_drawn_by_one_click(fleet_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", fleet_url)
    app = opened(AppTest.from_file(str(APP), default_timeout=120), "series")
    app.toggle(key="everywhere").set_value(True).run()
    assert not app.exception
    drawn = json.loads(app.get("plotly_chart")[0].proto.spec)["data"]
    names = {trace["name"] for trace in drawn if trace["name"] != "this run"}
    assert {name.split(" on ")[1].split(",")[0] for name in names} == {"h100", "h200"}


@pytest.mark.parametrize("page", OF_A_REPOSITORY)
def test_every_page_of_a_made_up_repository_says_that_it_is_simulated(
    fleet_url: str, filled_url: str, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    for url, marks in ((fleet_url, 1), (filled_url, 0)):
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        app = opened(AppTest.from_file(str(APP), default_timeout=120), page)
        assert sum("-badge[simulated]" in str(each.value) for each in app.markdown) == marks


def test_rows_of_a_made_up_fleet_say_that_they_are_simulated(fleet_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with session.session(fleet_url) as opened_session:
        assert {row.origin for row in snapshots.list_points_as_of(opened_session, fleet.REPOSITORY, NOON)} == {
            "simulated"
        }
        found = regressions.list_regressions(opened_session)
    assert found
    assert {describe_origin(vars(row)) for row in found} == {" (simulated)"}
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", fleet_url)
    app = opened(AppTest.from_file(str(APP), default_timeout=120), "overview")
    tables = [each.proto.body for each in app.get("html") if 'class="series"' in each.proto.body]
    assert tables
    assert all(rows(html)[0][1:] == ["H100 (simulated)", "H200 (simulated)"] for html in tables)
