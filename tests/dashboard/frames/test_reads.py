"""Where a page finds its database, and what it says where there is none."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from tests.conftest import NewDatabase
from tests.dashboard.fixtures.small_database import FIRST_DAY, OTHER_PROBLEM, PROBLEM, REPOSITORY, SHAS
from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.frames.reads import NoDatabase, database_url
from tilewatch.db import fact_writes, session
from tilewatch.db.models import Commit, Measurement, Run, Sweep, Trial, Verdict
from tilewatch.db.page_reads import regressions


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWATCH_DATABASE_URL", "TILEWATCH_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_environment_goes_before_the_file_that_up_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "connection.json").write_text(json.dumps({"database_url": "postgresql://up"}))
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    assert database_url() == "postgresql://up"
    monkeypatch.setattr(st, "secrets", {"TILEWATCH_DATABASE_URL": "postgresql://secret"})
    assert database_url() == "postgresql://secret"
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", "postgresql://set")
    assert database_url() == "postgresql://set"


@pytest.mark.parametrize("written", [None, "", "{}", "[1", '{"database_url": ""}'])
def test_without_an_address_a_sentence_says_what_to_do(
    written: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoDatabase, match="Start Tilewatch with `make up`"):
        database_url()
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    if written is not None:
        (tmp_path / "connection.json").write_text(written)
    with pytest.raises(NoDatabase, match="Start Tilewatch with `make up`"):
        database_url()


@pytest.fixture
def unsaved(filled_url: str) -> Iterator[Session]:
    """A session that may change the database that others read: nothing is committed."""
    with Session(session.engine(filled_url)) as opened:
        yield opened


def test_the_commits_of_a_run_begin_after_that_of_the_run_before(unsaved: Session) -> None:
    """A series that one commit in between did not measure has two commits to look at, and its first run one."""
    newest = regressions.list_series(unsaved, 1)[0].run_id
    middle = select(Commit.id).where(Commit.sha == SHAS[1])
    unsaved.execute(update(Sweep).where(Sweep.commit_id.in_(middle)).values(problem="64x64x64"))
    found = reads.find_evidence(unsaved, newest)
    assert found is not None
    assert found.before is not None
    assert [each.sha for each in found.commits] == [SHAS[2], SHAS[1]]
    single = select(Run.id).join(Sweep, Sweep.id == Run.sweep_id).where(Sweep.problem == OTHER_PROBLEM)
    first = reads.find_evidence(unsaved, unsaved.scalars(single).one())
    assert first is not None
    assert (first.before, first.sampled_before, first.winner_before) == (None, (), None)
    assert [each.sha for each in first.commits] == [SHAS[2]]


def test_a_run_that_does_not_exist_has_no_evidence_and_a_run_without_times_no_winner(unsaved: Session) -> None:
    newest = regressions.list_series(unsaved, 1)[0].run_id
    assert reads.find_evidence(unsaved, 10**6) is None
    unsaved.execute(update(Measurement).values(samples_us=[]))
    found = reads.find_evidence(unsaved, newest)
    assert found is not None
    assert (found.sampled, found.winner, found.winner_before, found.next_best) == ((), None, None, None)


def test_the_evidence_has_both_winners_the_second_fastest_config_and_what_differs(unsaved: Session) -> None:
    newest = regressions.list_series(unsaved, 1)[0].run_id
    found = reads.find_evidence(unsaved, newest)
    assert found is not None
    assert found.before is not None
    assert (found.run.sha, found.before.sha) == (SHAS[2], SHAS[1])
    assert found.winner is not None
    assert found.winner_before is not None
    assert found.next_best is not None
    assert found.same_config_before == found.winner_before, "one config won both"
    assert found.winner.params == found.winner_before.params
    assert found.winner.content_key != found.winner_before.content_key
    assert found.next_best.params != found.winner.params
    assert found.diff_to_before is not None
    assert found.diff_to_next_best is None
    assert found.suspicion is not None
    assert found.suspicion.state == "confirmed"
    assert [(each.good_sha, each.bad_sha) for each in found.replays] == [(SHAS[1], SHAS[2])]
    assert {each.role for each in (found.sampled[0], found.sampled_before[0])} == {"kernel"}
    assert found.parts == ()
    keys = (str(found.next_best.content_key), str(found.winner.content_key))
    fact_writes.write_code_diff(unsaved, keys, "it waits less", [], [])
    again = reads.find_evidence(unsaved, newest)
    assert again is not None
    assert again.diff_to_next_best is not None
    assert again.diff_to_next_best.sentence == "it waits less"


def test_what_a_page_shows_of_a_sweep_is_read_for_its_configs(filled: Session, filled_url: str) -> None:
    timed = select(Trial.sweep_id, Trial.config_id).where(Trial.status == "timed", Trial.config_id > 20)
    sweep, config = filled.execute(timed).first() or ()
    trials = reads.trials(filled_url, sweep)
    assert set(trials["outcome"]) >= {"timed", "wrong", "timeout", "compile error"}
    assert trials["config_id"].is_unique
    remarks = reads.remarks(filled_url, sweep, config)
    assert list(remarks) == ["line", "instruction", "shape", "passed", "text", "pass", "name"]
    assert list(remarks["instruction"]) == ["load_view_tko", "mma"]
    without = reads.remarks(filled_url, sweep, 10**6)
    assert (len(without), list(without)) == (0, list(remarks))


def test_a_live_section_reads_anew_each_time_and_without_a_spinner() -> None:
    """A spinner that comes each few seconds would move what stands below it."""
    live, history = (read._info for read in (reads.jobs, reads.points))  # type: ignore[attr-defined]
    assert (live.ttl, live.show_spinner) == (reads.LIVE_TTL_S, False)
    assert (history.ttl, history.show_spinner) == (reads.HISTORY_TTL_S, "Reading the database ...")
    assert reads.LIVE_TTL_S < reads.LIVE_EVERY_S < reads.HISTORY_TTL_S


def test_a_regression_is_a_row_and_an_unknown_one_is_none(filled_url: str) -> None:
    found = reads.regression(filled_url, 1)
    assert found is not None
    assert (found["id"], found["direction"]) == (1, "regression")
    assert reads.regression(filled_url, 10**6) is None


def test_the_inbox_has_the_regression_and_the_alarm(filled_url: str) -> None:
    assert [item.kind for item in reads.inbox(filled_url).items][:2] == ["regression", "alarm"]


def test_an_undecided_verdict_needs_a_person_for_two_weeks(new_filled_database: NewDatabase) -> None:
    now = dt.datetime.now(dt.UTC)
    ages = {OTHER_PROBLEM: dt.timedelta(days=13, hours=22), PROBLEM: dt.timedelta(days=14, hours=2)}
    with new_filled_database() as url:
        with session.session(url) as opened:
            opened.execute(delete(Verdict))
            for problem, age in ages.items():
                run = select(func.max(Run.id)).join(Sweep, Sweep.id == Run.sweep_id).where(Sweep.problem == problem)
                judged = {"history_points": 9, "policy": "v1", "reason": "not sure enough", "judged_at": now - age}
                opened.add(Verdict(run_id=opened.scalar(run), verdict="undecided", **judged))
        (waiting,) = (item for item in reads.inbox(url).items if item.kind == "undecided")
    assert [words for words in waiting.facts if OTHER_PROBLEM in words or PROBLEM in words] == [waiting.facts[0]]
    assert OTHER_PROBLEM in waiting.facts[0]


def test_a_snapshot_is_compared_with_the_one_at_an_earlier_commit(filled_url: str) -> None:
    day = FIRST_DAY + dt.timedelta(days=1, hours=6)
    later = day + dt.timedelta(days=1)
    pairs = reads.compared(filled_url, REPOSITORY, day, SHAS[1], later)
    (row,) = pairs[pairs["problem"] == PROBLEM].to_dict("records")
    assert (row["sha_before"], row["sha"], row["finding"]) == (SHAS[1], SHAS[2], "slower")
    assert row["change"] == pytest.approx(1.06 / 0.97 - 1)
    assert set(reads.compared(filled_url, REPOSITORY, later, None, later)["finding"]) == {""}


def test_a_score_needs_an_operator_like_deepgemms(filled_url: str) -> None:
    assert reads.scores(filled_url, REPOSITORY) == [], "the only kernel does other arithmetic"


def test_the_hour_is_the_one_that_began_last() -> None:
    began = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    hour = reads.this_hour()
    assert began < hour <= dt.datetime.now(dt.UTC)
    assert (hour.minute, hour.second, hour.microsecond) == (0, 0, 0)
