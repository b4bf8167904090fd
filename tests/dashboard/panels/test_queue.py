"""The page of jobs and workers: environments of host code by node, and no button whose action is refused."""

import contextlib
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures.app import APP, opened
from tilewatch.dashboard.widgets import tables
from tilewatch.db import fact_writes, session
from tilewatch.db.lifecycle import actions, jobs
from tilewatch.db.lifecycle.actions import JobSelection
from tilewatch.db.models import Check, Job
from tilewatch.db.page_reads import submissions

INSTALLED, MISSING = "/opt/k/bin/python; packages of r.txt: installed", "nothing: --python is missing"
COLUMNS = ["node", "repository", "recorded there by"]


def beat(writing: Session, name: str, host: str, environments: dict[str, str] | None) -> None:
    toolchain: dict[str, Any] = {"sandbox": "network"}
    if environments is not None:
        toolchain["environments"] = environments
    fact_writes.write_heartbeat(writing, name, kind="compile", host=host, toolchain=toolchain)


def show_tables(url: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.delenv("TILEWATCH_HOME", raising=False)
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
    page = opened(AppTest.from_file(str(APP), default_timeout=60), "jobs")
    return [each.value for each in page.dataframe]


def show_page(url: str, monkeypatch: pytest.MonkeyPatch) -> list[list[list[str]]]:
    """Returns the rows of the tables of environments on the page."""
    tables = show_tables(url, monkeypatch)
    return [each.to_numpy().tolist() for each in tables if list(each.columns) == COLUMNS]


def test_each_node_has_a_line_for_each_repository_that_needs_one(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session.session(database_url) as writing:
        beat(writing, "record@b", "b", {"kernels": MISSING, "attention": INSTALLED})
        beat(writing, "gpu0@a", "a", {"kernels": INSTALLED})
        beat(writing, "gpu1@a", "a", {"kernels": INSTALLED})
        beat(writing, "gone@c", "c", {"kernels": INSTALLED})
        writing.execute(text("update workers set seen_at = now() - interval '1 hour' where host = 'c'"))
        beat(writing, "record@b", "b", None)  # by a process of its pool, which has not looked
    lines = [["a", "kernels", INSTALLED], ["b", "attention", INSTALLED], ["b", "kernels", MISSING]]
    assert show_page(database_url, monkeypatch) == [lines]


def test_without_an_environment_there_is_no_table(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with session.session(database_url) as writing:
        beat(writing, "record@b", "b", {})
    assert show_page(database_url, monkeypatch) == []


def test_a_button_is_offered_unless_it_is_refused(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "Retry" stood beside a check's job, which is submitted again instead, and beside a night without a failure.
    "Cancel the rest" could not be pressed for a night of which only a replay was left."""
    chosen = list[int]()

    def pick(_: object, rows: pd.DataFrame, key: str, **__: object) -> pd.Series | None:
        return rows[rows["id"] == chosen[0]].iloc[0] if key == "submissions" and chosen else None

    monkeypatch.setattr(tables, "pick_row", pick)
    monkeypatch.setenv("TILEWATCH_ANONYMOUS", "act")
    with new_filled_database() as url:
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
        with session.session(url) as writing:
            of_check = {"check_id": writing.scalars(select(Check.id)).first(), "kind": "check"}
            writing.execute(update(Job).where(Job.state == "failed").values(**of_check, submission_id=None))
            rows = submissions.list_submissions(writing)
            listed = [row.id for row in rows]
            measured = next(row.id for row in rows if row.state == "measured")
            replay = {"kind": "confirm", "queue": "gpu.h200", "subject": "a replay", "payload": {}}
            jobs.add(writing, key="a replay", submission_id=measured, **replay)
        page = opened(AppTest.from_file(str(APP), default_timeout=60), "jobs")
        page.text_input(key="who").set_value("kim").run()
        assert "Retry" not in {button.label for button in page.button}
        assert any("Submit the check again." in caption.value for caption in page.caption)
        offered = set[tuple[str, bool]]()
        for submission_id in listed:
            chosen[:] = [submission_id]
            page.run()
            for key, act in (("retry-all", actions.retry), ("cancel-all", actions.cancel)):
                enabled = not page.button(key=key).disabled
                offered.add((key, enabled))
                with session.session(url) as writing:
                    refused = contextlib.nullcontext() if enabled else pytest.raises(actions.NoSuchWork)
                    with refused:
                        act(writing, JobSelection(None, submission_id), "kim")
                    writing.rollback()
        assert offered == {("retry-all", True), ("retry-all", False), ("cancel-all", True), ("cancel-all", False)}
