"""The sweeps that are compared are neighbours on the branch, in whatever order they were made."""

import datetime as dt

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import COMPILER, NOON, Planned
from tilewatch.db import fact_writes
from tilewatch.db.models import Commit
from tilewatch.db.worker_reads import fallen_configs
from tilewatch.db.worker_reads.fallen_configs import SweepPair

OF = ("gemm_fp8", "b200")
MADE = {"second": 5, "newest": 9, "before it": 7, "replaced": 11, "oldest": 3}
"""The commits of a series by their places on the branch, in the order in which they were swept."""


@pytest.fixture
def sweeps(db_session: Session) -> dict[str, Planned]:
    sweeps = {name: _sweep(db_session, position) for name, position in MADE.items()}
    waiting = one_commit.submit(db_session, "compiles", sha="ab" * 20, position=13)
    left = update(Commit).where(Commit.position == MADE["replaced"]).values(left_branch_at=NOON)
    db_session.execute(left)
    return {**sweeps, "compiles": waiting}


def _sweep(opened: Session, position: int) -> Planned:
    planned = one_commit.submit(opened, f"night of {position}", sha=f"{position:040x}", position=position)
    fact_writes.add_compilations(opened, [one_commit.compiled(each) for each in planned.code_keys])
    fact_writes.attach_compilations(opened, compiler=COMPILER, sweep_ids=[planned.sweep_id])
    return planned


def _name(sweeps: dict[str, Planned], pairs: list[SweepPair]) -> list[tuple[str, str]]:
    names = {planned.sweep_id: name for name, planned in sweeps.items()}
    return [(names[pair.before_id], names[pair.after_id]) for pair in pairs]


def test_the_newest_compiled_sweep_is_compared_with_the_nearest_earlier_commit(
    db_session: Session, sweeps: dict[str, Planned]
) -> None:
    pairs = fallen_configs.list_newest_pairs(db_session, NOON)
    assert _name(sweeps, pairs) == [("before it", "newest")]
    assert fallen_configs.list_newest_pairs(db_session, dt.datetime.now(dt.UTC) + dt.timedelta(days=1)) == []


def test_an_open_alarm_compares_the_sweep_before_it_with_the_newest_one(
    db_session: Session, sweeps: dict[str, Planned]
) -> None:
    since = sweeps["second"].submission_id
    compiled = fallen_configs.list_pairs_since(db_session, *OF, since, measured=False)
    assert _name(sweeps, compiled) == [("oldest", "newest")]
    newest = fallen_configs.list_pairs_since(db_session, *OF, sweeps["newest"].submission_id, measured=False)
    assert _name(sweeps, newest) == [("before it", "newest")]
    one_commit.measure(db_session, sweeps["before it"], "run of an earlier commit")
    one_commit.measure(db_session, sweeps["oldest"], "run of the oldest commit")
    measured = fallen_configs.list_pairs_since(db_session, *OF, since, measured=True)
    assert _name(sweeps, measured) == [("oldest", "before it")]
