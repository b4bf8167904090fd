"""The weekly report: written by the command that people type, and read back as the one page that it is."""

import datetime as dt
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.conftest import NewDatabase
from tests.dashboard.fixtures.small_database import FIRST_DAY, REPOSITORY, SHAS
from tests.db.fixtures import worlds
from tests.worker.fixtures import open_regression
from tilewatch.dashboard.site import score_picture, session_output
from tilewatch.dashboard.site import weekly_report as report
from tilewatch.db import session
from tilewatch.db.lifecycle import regressions
from tilewatch.db.models import Regression, RegressionEvent, Submission
from tilewatch.db.page_reads.series import PointRow

UNTIL = FIRST_DAY + dt.timedelta(days=6)
ROOT = Path(__file__).parents[3]
ORDER = {"html": None, "png": None, "until": None, "repository": None}


@pytest.fixture
def week(filled: Session, monkeypatch: pytest.MonkeyPatch) -> report.Week:
    """A long one: its verdicts are of fixed nights, and what was confirmed is as old as the database."""
    now = dt.datetime.now(dt.UTC)
    monkeypatch.setattr(report, "WEEK", now - FIRST_DAY + dt.timedelta(days=1))
    return report.read_week(filled, now)


def test_the_headline_counts_what_was_confirmed_and_what_is_open(week: report.Week) -> None:
    assert report.headline(week) == (
        "1 regression and 1 improvement were confirmed, 1 regression is open, in 2 series of "
        "https://example.org/kernels.git; 1 verdict of a change."
    )
    recorded = [[replace(row, counted=False, recorded=True) for row in rows] for rows in (week.opened, week.waiting)]
    assert report.headline(replace(week, opened=recorded[0], waiting=recorded[1])) == (
        "0 regressions and 0 improvements were confirmed, 0 regressions are open, in 2 series of "
        "https://example.org/kernels.git; 1 verdict of a change. Not counted: 2 changes that came with recordings."
    )


def test_the_page_needs_nothing_from_outside_and_has_the_script_once(week: report.Week) -> None:
    page = report.page(week)
    assert page.count("<script>/**") == 1
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", page)
    charts = page.count('<figure class="chart"')
    assert charts == 2, "the movers, and the trend of the worst series"
    assert page.count('<table class="series"') == 1
    assert 'href="trends' not in page, "a mail has no page beside it"


def test_what_commits_say_of_themselves_stays_text(week: report.Week) -> None:
    page = report.page(week)
    assert "Let <b>two</b> blocks" not in page
    assert "Let &lt;b&gt;two&lt;/b&gt; blocks share an SM" in page


def test_a_week_in_which_nothing_was_measured_is_a_page_too(db_session: Session) -> None:
    page = report.page(report.read_week(db_session, UNTIL))
    assert "0 regressions and 0 improvements were confirmed" in page
    assert "No nightly was submitted this week." in page


def test_nights_of_another_repository_are_not_counted(week: report.Week, filled: Session) -> None:
    """With two watched repositories, each one's report had the nights of both, done and failed."""
    assert week.nights["nights"].sum() == 5
    page = report.page(report.read_week(filled, dt.datetime.now(dt.UTC), "another"))
    assert "No nightly was submitted this week." in page


def test_a_past_week_is_shown_as_it_ended(new_filled_database: NewDatabase) -> None:
    """The third commit's night, and the end of a regression, came after it."""
    until = FIRST_DAY + dt.timedelta(days=1, hours=20)
    opened_at, resolved_at = until - dt.timedelta(hours=1), until + dt.timedelta(hours=1)
    with new_filled_database() as url, session.session(url) as opened:
        opened.execute(update(Submission).values(requested_at=FIRST_DAY))
        number = open_regression.regress(opened, repository=REPOSITORY)
        regressions.triage(opened, number, "resolve", "ada")
        for state, at in (("new", opened_at), ("resolved", resolved_at)):
            of = (RegressionEvent.regression_id == number, RegressionEvent.to_state == state)
            opened.execute(update(RegressionEvent).where(*of).values(at=at))
        opened.get_one(Regression, number).opened_at = opened_at
        week = report.read_week(opened, until, REPOSITORY)
        assert report.page(week)
    assert [(row.id, row.state) for row in (*week.opened, *week.waiting)] == 2 * [(number, "new")]
    assert [row.sha for row in week.section.commits] == [SHAS[1], SHAS[0]]
    assert {row.sha for row in (*week.section.after, *week.section.judged)} == {*SHAS[:2]}
    assert {len(row.ratios) for row in week.section.recent} == {2}
    assert SHAS[2] not in str(week.trends)
    assert week.nights["nights"].sum() == 5


def test_a_week_of_one_repository_reads_no_series_of_another(
    db_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three repositories the middle one's series cannot be read: the others' weeks are written."""
    for name in ("first", "middle", "last"):
        open_regression.regress(db_session, kernel=f"kernel_of_{name}", repository=name)
    real = report.series_queries.list_points

    def fail(opened: Session, repository: str, *series: str, static_facts: bool) -> list[PointRow]:
        assert repository != "middle", "a bug"
        return real(opened, repository, *series, static_facts=static_facts)

    monkeypatch.setattr(report.series_queries, "list_points", fail)
    until = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    for name in ("first", "last"):
        week = report.read_week(db_session, until, name)
        assert [row.kernel for row in week.opened] == [f"kernel_of_{name}"]
        assert week.trends == [], "nothing of it is on record"
        assert f"kernel_of_{name}" in report.page(week)
    with pytest.raises(AssertionError, match="a bug"):
        report.read_week(db_session, until, "middle")


def test_the_command_writes_the_file_and_says_so(filled_url: str, tmp_path: Path) -> None:
    target = tmp_path / "week.html"
    command = [sys.executable, "-m", "tilewatch.worker.cli.main", "report", "--week", "--html", str(target)]
    environment = {
        "TILEWATCH_DATABASE_URL": filled_url,
        "TILEWATCH_BROKER_URL": "redis://127.0.0.1:1/0",  # a report needs none, the settings want both or neither
        "TILEWATCH_HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
    }
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"wrote {target}")
    assert "9c0d1e2f00" in target.read_text()


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("/nowhere/week.html", "/nowhere/week.html cannot be written: No such file or directory"),
        ("/dev/full", "a file cannot be written: No space left on device"),  # Python names no file then
    ],
)
def test_a_file_that_cannot_be_written_is_one_sentence(
    file: str, sentence: str, filled_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", filled_url)
    assert report.main([json.dumps(ORDER | {"html": file})]) == session_output.EXPECTED_ERROR
    assert capsys.readouterr().err == f"tilewatch: {sentence}\n"


def test_the_scoreboard_is_a_picture_by_the_same_command(
    new_database: NewDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_database() as url:
        with session.session(url) as opened:
            worlds.fill(opened, 1, ratio=0.9)
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        target = tmp_path / "score.png"
        assert report.main([json.dumps(ORDER | {"png": str(target)})]) == 0
    with Image.open(target) as picture:
        assert picture.size == (score_picture.WIDTH, score_picture.HEIGHT)
        drawn = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20) or ()}
    assert (0xFF, 0xFF, 0xFF) in drawn
    assert len(drawn) > 2, "words and not paper alone"
    assert capsys.readouterr().out.startswith(f"wrote {target}")


def test_without_deepgemm_there_is_no_picture_and_a_sentence(
    empty_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", empty_url)
    order = ORDER | {"png": str(tmp_path / "score.png")}
    assert report.main([json.dumps(order)]) == session_output.EXPECTED_ERROR
    assert "there is no scoreboard to draw" in capsys.readouterr().err
