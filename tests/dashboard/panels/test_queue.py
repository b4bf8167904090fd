"""The page of the workers says which environments their nodes have for host code."""

from typing import Any

import pandas as pd
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from tests.dashboard.fixtures.app import APP, opened
from tests.db.fixtures import one_commit
from tilewatch.db import fact_writes, session

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


@pytest.mark.parametrize(
    ("names", "shown"), [(["tilewatch"], []), (["tilewatch", "kernels"], ["kernels", "tilewatch"])]
)
def test_submissions_name_their_repository_where_there_are_several(
    names: list[str], shown: list[str], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session.session(database_url) as writing:
        beat(writing, "record@b", "b", None)
        for name in names:
            one_commit.submit(writing, f"nightly/2026-11-20/b200/{name}", name)
    (table,) = (each for each in show_tables(database_url, monkeypatch) if "submission" in each.columns)
    assert table.get("repository", pd.Series(dtype=str)).tolist() == shown
