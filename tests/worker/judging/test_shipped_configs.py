"""A night is judged whatever the repository's tuned table is like."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy.orm import Session

from tests.worker.fixtures import odd_histories
from tests.worker.fixtures.tiny_repository import git
from tilewatch.db.models import Config
from tilewatch.db.worker_reads.judging import Scope
from tilewatch.db.worker_reads.tuned_rows import NewestWinner
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging.commit_history import History
from tilewatch.worker.judging.night_context import OpenNight
from tilewatch.worker.judging.shipped_configs import LAUNCHES, _make_question, ask_about_shipped
from tilewatch.worker.transfer.stale_tables import ShippedEntry

NAMED = '[tool.tilewatch]\ntuned = "tuned.json"\n'


@pytest.mark.parametrize(
    ("files", "trouble"),
    [
        ({}, None),
        ({"pyproject.toml": NAMED}, None),
        ({"pyproject.toml": "[tool.tilewatch"}, "pyproject.toml of commit"),
        ({"pyproject.toml": NAMED, "tuned.json": "{"}, "tuned.json is not from `tilewatch tuned export`"),
        ({"pyproject.toml": NAMED, "tuned.json": '{"format": 99, "tables": []}'}, "tuned.json has format 99"),
    ],
)
def test_a_tuned_table_that_cannot_be_read_is_logged_and_asks_for_nothing(
    db_session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture, files: dict[str, str], trouble: str | None
) -> None:
    clone = tmp_path / "r"
    odd_histories.make(clone)
    for name, text in files.items():
        (clone / name).write_text(text)
    git(clone, "add", "--all")
    sha = odd_histories.add(clone, "Ship a table")
    scope = Scope(1, 1, sha, 2, "watched", "b200", "sm_100", "measured")
    history, store = History(db_session, None, scope, ()), CubinStore(folder(tmp_path / "store"))
    night = OpenNight(db_session, scope, history, (), 1, Policy(), store, "library")
    with caplog.at_level(logging.WARNING):
        assert ask_about_shipped(night, clone) == []
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (trouble is not None)
    for sentence in said:
        assert sentence.startswith("the tuned table of watched cannot be read: ")
        assert trouble is not None
        assert trouble in sentence


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_shipped_config_is_replayed_against_the_best_one_of_the_same_commit(
    db_session: Session, is_stored: bool
) -> None:
    """The cubin of the best config is used if it is stored; that of the shipped one is compiled."""
    scope = Scope(1, 7, "ab" * 20, 2, "watched", "b200", "sm_100", "measured")
    store: Any = SimpleNamespace(outcome=lambda key: object() if is_stored and key == "cubin" else None)
    night = OpenNight(db_session, scope, History(db_session, None, scope, ()), (), 1, Policy(), store, "library")
    best = Winner(31, 1, "source", 5, {"tile_m": 64}, "cubin", "gemm", "code", "compiler")
    question = _make_question(night, "gemm", ShippedEntry("1024", {"tile_m": 32}, cast(NewestWinner, None)), best)
    base, head = question.base, question.head
    assert (question.kernel, question.problem, question.axis, question.launches) == ("gemm", "1024", "config", LAUNCHES)
    assert [(each.commit_id, each.sha, each.params) for each in (base, head)] == [
        (7, scope.sha, {"tile_m": 32}),
        (7, scope.sha, {"tile_m": 64}),
    ]
    assert db_session.get_one(Config, base.config_id).params == {"tile_m": 32}
    assert (base.measured, base.code, head.code is not None) == (True, None, is_stored)
    assert f"cubin:shipped:{base.config_id}" in question.key
