"""The sweeps that are compared are neighbours on the branch, in whatever order they were made."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import COMPILER, NOON, Planned
from tests.db.fixtures.rows import GPU, HOST, KERNEL, PROBLEM, REPOSITORY, Rows
from tilewatch.db import fact_writes
from tilewatch.db.models import Commit, Config, Submission, Sweep
from tilewatch.db.worker_reads import fallen_configs
from tilewatch.db.worker_reads.fallen_configs import FallenConfig, SweepPair

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


@pytest.mark.parametrize(
    ("before", "after", "code", "kind"),
    [
        ("timed", "not_compiled", "error", "stopped_compiling"),
        ("compiled", "not_compiled", "error", "stopped_compiling"),
        ("crashed", "not_compiled", "error", "stopped_compiling"),
        ("waiting", "not_compiled", "error", None),
        ("not_compiled", "not_compiled", "error", None),
        ("timed", "not_compiled", "timeout", None),
        ("timed", "not_compiled", "died", None),
        ("timed", "wrong", "ok", "became_wrong"),
        ("wrong", "wrong", "ok", None),
        ("compiled", "wrong", "ok", None),
        ("timed", "crashed", "ok", None),
        ("timed", "timed", "ok", None),
    ],
)
def test_a_config_falls_if_it_worked_and_now_fails_for_good(
    db_session: Session, rows: Rows, before: str, after: str, code: str, kind: str | None
) -> None:
    sweeps = [rows.sweep() for _ in range(3)]
    first, other = rows.config(tile=32), rows.config(tile=64)
    failure = f"{HOST} process died: killed" if code == "died" else "it failed"
    status = "error" if code == "died" else code
    made = rows.compilation("code", status=status, failure=None if code == "ok" else failure)
    for sweep, state in zip(sweeps, (before, after, after), strict=True):
        fails = state in ("not_compiled", "wrong", "crashed")
        us = 9.0 if state == "timed" else None
        compiled = made.id if sweep is not sweeps[0] else None
        columns = {"status": state, "failure": "it failed" if fails else None, "compilation_id": compiled}
        rows.trial(sweep, first, us, **columns)
    rows.trial(sweeps[1], other, status="wrong", failure="wrong")
    pairs = [_pair(sweeps[0].id, sweeps[1].id)]
    found = fallen_configs.list_fallen_configs(db_session, pairs)
    assert found == ([FallenConfig(sweeps[1].id, kind, {"tile": 32}, "it failed")] if kind else [])


def test_fallen_configs_are_listed_by_pair_and_config(db_session: Session, rows: Rows) -> None:
    configs = [rows.config(tile=tile) for tile in (16, 32, 64)]
    sweeps = [rows.sweep(id=90_000 + number) for number in (3, 2, 1, 0)]
    for place in (2, 0, 1):
        rows.trial(sweeps[3], configs[place], 9.0)
        for sweep in sweeps[:2]:
            rows.trial(sweep, configs[place], status="wrong", failure="wrong")
    pairs = [_pair(sweeps[3].id, sweep.id) for sweep in sweeps[:3]]
    found = fallen_configs.list_fallen_configs(db_session, pairs)
    assert [(each.after_id, each.params["tile"]) for each in found] == [
        (after_id, tile) for after_id in (90_002, 90_003) for tile in (16, 32, 64)
    ]
    assert fallen_configs.list_fallen_configs(db_session, []) == []


def _pair(before_id: int, after_id: int) -> SweepPair:
    return SweepPair(REPOSITORY, KERNEL, PROBLEM, GPU, 1, "ab", NOON, before_id, after_id)


def _compile(rows: Rows, night: Submission, config: Config, *, status: str = "timed", **columns: Any) -> Sweep:
    sweep = rows.sweep(night, **columns)
    rows.trial(sweep, config, 9.0 if status == "timed" else None, status=status)
    return sweep


def test_only_the_newest_few_sweeps_are_searched_for_a_compiled_one(db_session: Session, rows: Rows) -> None:
    config, nights = rows.config(), [rows.night(rows.commit(position)) for position in range(1, 7)]
    statuses = ("timed", "timed", "waiting", "waiting", "timed", "waiting")
    sweeps = [_compile(rows, night, config, status=status) for night, status in zip(nights, statuses, strict=True)]
    (pair,) = fallen_configs.list_newest_pairs(db_session, NOON)
    assert (pair.before_id, pair.after_id) == (sweeps[1].id, sweeps[4].id)
    wanted = (REPOSITORY, KERNEL, PROBLEM, GPU, nights[4].id, nights[4].commit.sha, sweeps[4].created_at)
    assert tuple(vars(pair).values())[:7] == wanted
    assert len(fallen_configs.list_newest_pairs(db_session, pair.made_at)) == 1
    assert fallen_configs.list_newest_pairs(db_session, pair.made_at + dt.timedelta(microseconds=1)) == []
    waiting = [_compile(rows, rows.night(rows.commit(position)), config, status="waiting") for position in (7, 8)]
    assert len(waiting) == 2
    assert fallen_configs.list_newest_pairs(db_session, NOON) == []


def test_sweeps_of_one_commit_are_compared_by_their_submissions(db_session: Session, rows: Rows) -> None:
    config, commit = rows.config(), rows.commit(5)
    nights = [rows.night(commit, id=90_000 + number) for number in (1, 3, 2)]
    sweeps = {night.id: _compile(rows, night, config, id=90_010 - night.id % 10) for night in nights}
    (pair,) = fallen_configs.list_newest_pairs(db_session, NOON)
    assert (pair.before_id, pair.after_id) == (sweeps[90_002].id, sweeps[90_003].id)
    (since,) = fallen_configs.list_pairs_since(db_session, KERNEL, GPU, 90_002, measured=False)
    assert (since.before_id, since.after_id) == (sweeps[90_001].id, sweeps[90_003].id)


def test_imported_and_partial_sweeps_are_compared_with_nothing(db_session: Session, rows: Rows) -> None:
    config, left_out = rows.config(), rows.config()
    first, last = (_compile(rows, rows.night(rows.commit(position)), config) for position in (1, 9))
    imported = rows.night(rows.commit(5), reason="recorded", recording_id=rows.recordings[0])
    _compile(rows, imported, config)
    partial = _compile(rows, rows.night(rows.commit(6)), config)
    rows.trial(partial, left_out, status="compiled")
    rows.run(partial)
    for night in (rows.night(rows.commit(7, repository="attention")), rows.night(rows.commit(7), gpu_model="b200")):
        _compile(rows, night, config)
    _compile(rows, rows.night(rows.commit(7)), config, kernel="softmax")
    _compile(rows, rows.night(rows.commit(7)), config, problem="128")
    pairs = fallen_configs.list_newest_pairs(db_session, NOON)
    assert [(pair.before_id, pair.after_id) for pair in pairs] == [(first.id, last.id)]
    since = fallen_configs.list_pairs_since(db_session, KERNEL, GPU, last.submission_id, measured=False)
    assert [(pair.before_id, pair.after_id) for pair in since] == [(first.id, last.id)]
    assert since[0].submission_id == last.submission_id


@pytest.mark.parametrize("other", [{"kernel": "softmax"}, {"gpu_model": "b200"}, {"submission_id": -1}])
def test_an_alarm_concerns_the_series_of_its_own_submission(
    db_session: Session, rows: Rows, other: dict[str, Any]
) -> None:
    config, nights = rows.config(), [rows.night(rows.commit(position)) for position in (1, 2, 3, 4)]
    sweeps = [_compile(rows, night, config) for night in nights[:3]]
    _compile(rows, nights[3], config, status="waiting")
    named: dict[str, Any] = {"kernel": KERNEL, "gpu_model": GPU, "submission_id": nights[1].id}
    found = fallen_configs.list_pairs_since(db_session, **named, measured=False)
    assert [(pair.before_id, pair.after_id) for pair in found] == [(sweeps[0].id, sweeps[2].id)]
    assert (found[0].sha, found[0].made_at, found[0].submission_id) == (
        nights[2].commit.sha, sweeps[2].created_at, nights[1].id,
    )  # fmt: skip
    assert fallen_configs.list_pairs_since(db_session, **{**named, **other}, measured=False) == []
    assert fallen_configs.list_pairs_since(db_session, **named, measured=True) == []
    rows.run(sweeps[0])
    assert fallen_configs.list_pairs_since(db_session, **named, measured=True) == [], "a sweep is no pair"
