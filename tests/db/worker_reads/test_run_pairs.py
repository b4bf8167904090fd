"""The newest run of a series is compared with the run before it on the same host."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import GPU, HOST, KERNEL, NOON, PROBLEM, REPOSITORY, Rows
from tilewatch.db.models import TOTAL, Config, Run, Submission, Sweep
from tilewatch.db.worker_reads import run_pairs
from tilewatch.db.worker_reads.run_pairs import HISTORY, SHIPPED, TILE_TABLE, RunPair

MOMENT = dt.timedelta(microseconds=1)


def _night(
    rows: Rows,
    position: int = 5,
    *,
    won: Config | None = None,
    us: float = 8.0,
    night: Submission | None = None,
    detail: dict[str, Any] | None = None,
    **columns: Any,
) -> Run:
    of_sweep = {name: columns.pop(name) for name in ("kernel", "problem") if name in columns}
    run = rows.run(rows.sweep(night or rows.night(rows.commit(position)), **of_sweep), **columns)
    rows.measure(run, us, config_id=(won or rows.config()).id, detail=detail or {})
    return run


def _beside(rows: Rows, run: Run, **us: float) -> list[Config]:
    """Adds the times of other implementations, each with a config of its own."""
    configs = [rows.config(tile=int(each)) for each in us.values()]
    for (name, each), config in zip(us.items(), configs, strict=True):
        rows.measure(run, each, role="baseline", implementation=name, config_id=config.id)
    return configs


def _only(session: Session, since: dt.datetime = NOON) -> RunPair:
    (pair,) = run_pairs.list_newest_run_pairs(session, since)
    return pair


CHECKLISTS = [[{"item": "TMA", "answer": answer, "evidence": ""}] for answer in ("no", "yes")]


@pytest.mark.parametrize("ships", [True, False])
def test_a_pair_has_the_losses_of_both_nights(db_session: Session, rows: Rows, ships: bool) -> None:
    configs = [rows.config(tile=tile) for tile in (32, 64, 128)]
    old = _night(rows, 3, won=configs[0], us=10.0, detail={"checklist": CHECKLISTS[0]}, toolchain={"driver": "570"})
    _beside(rows, old, **{SHIPPED: 20.0, TILE_TABLE: 12.5})
    night = rows.night(rows.commit(5))
    tie = [each.id for each in configs[1:]]
    new = _night(rows, night=night, won=configs[1], tie=tie, detail={"checklist": CHECKLISTS[1]})
    _beside(rows, new, **{TILE_TABLE: 10.0, "deepgemm": 99.0}, **({SHIPPED: 12.0} if ships else {}))
    rows.verdict(new, verdict="regression")
    for run, times in ((old, (10.0, 20.0, 30.0)), (new, (12.0, 9.6, 9.0))):
        for config, us in zip(configs, times, strict=True):
            rows.trial(rows.opened.get_one(Sweep, run.sweep_id), config, us)
    pair = _only(db_session)
    assert (pair.repository, pair.kernel, pair.problem, pair.gpu_model) == (REPOSITORY, KERNEL, PROBLEM, GPU)
    assert (pair.submission_id, pair.sha, pair.made_at, pair.host) == (night.id, night.commit.sha, NOON, HOST)
    assert (pair.regret, pair.ships) == ((0.5, {"tile": 12}) if ships else (0.25, None))
    assert (pair.old_table_regret, pair.old_winner_loss) == (0.25, 0.25)
    assert (pair.winner, pair.old_winner, pair.verdict) == ({"tile": 64}, {"tile": 32}, "regression")
    assert (pair.toolchain, pair.old_toolchain) == ({"driver": "580.65"}, {"driver": "570"})
    assert [pair.old_checklist, pair.checklist] == CHECKLISTS


@pytest.mark.parametrize(("old_wins", "ties", "us"), [(True, False, 9.0), (False, True, 9.0), (False, False, 0.0)])
def test_an_old_winner_that_still_wins_or_ties_loses_nothing(
    db_session: Session, rows: Rows, old_wins: bool, ties: bool, us: float
) -> None:
    first, second = (rows.config(tile=tile) for tile in (32, 64))
    _night(rows, 3, won=first)
    new = _night(rows, 5, won=first if old_wins else second, tie=[second.id, first.id] if ties else [])
    sweep = rows.opened.get_one(Sweep, new.sweep_id)
    rows.trial(sweep, first, 12.0)
    rows.trial(sweep, second, us)
    assert _only(db_session).old_winner_loss is None


def test_a_series_without_an_earlier_run_is_listed_alone(db_session: Session, rows: Rows) -> None:
    _night(rows, 3, host="node-b")
    _night(rows, 3, origin="simulated", host=HOST)
    _night(rows, 3, problem="128", finished_at=NOON - MOMENT)
    _night(rows, 6, night=rows.night(rows.commit(6, left_branch_at=NOON)))
    _night(rows, 9, origin="recorded", recording_id=rows.recordings[0])
    _night(rows, 9, kernel=TOTAL)
    _night(rows, night=(night := rows.night(rows.commit(5))))
    pair = _only(db_session)
    assert pair.submission_id == night.id
    nothing = (pair.old_winner, pair.old_toolchain, pair.old_checklist, pair.old_table_regret, pair.old_winner_loss)
    assert nothing == (None,) * 5
    assert (pair.regret, pair.ships, pair.verdict) == (None, None, None)


@pytest.mark.parametrize(("early", "has_old"), [(HISTORY, True), (HISTORY + MOMENT, False)])
def test_the_run_before_may_be_as_old_as_the_history(
    db_session: Session, rows: Rows, early: dt.timedelta, has_old: bool
) -> None:
    _night(rows, 3, finished_at=NOON - early)
    _night(rows, 5)
    assert (_only(db_session).old_winner is not None) == has_old
    assert run_pairs.list_newest_run_pairs(db_session, NOON + MOMENT) == []


def test_the_run_before_is_the_nearest_even_of_the_same_commit(db_session: Session, rows: Rows) -> None:
    commits = {position: rows.commit(position) for position in (4, 3, 5)}
    places = {1: (4, 90_006), 2: (3, 90_007), 3: (5, 90_005), 4: (5, 90_004), 5: (5, 90_003)}
    nights = {tile: rows.night(commits[position]) for tile, (position, _) in places.items()}
    for tile in (2, 1, 5, 3, 4):
        _night(rows, night=nights[tile], won=rows.config(tile=tile), id=places[tile][1])
    pair = _only(db_session)
    assert (pair.submission_id, pair.winner, pair.old_winner) == (nights[5].id, {"tile": 5}, {"tile": 4})
    for tile in (5, 6):
        _night(rows, night=rows.night(rows.commit(4)), won=rows.config(tile=tile), host="node-c")
    again = rows.sweep(nights[2], problem="twice")
    for number, tile in ((90_009, 9), (90_008, 8)):
        rows.measure(rows.run(again, id=number), config_id=rows.config(tile=tile).id)
    twice = run_pairs.list_newest_run_pairs(db_session, NOON)[1]
    assert (twice.problem, twice.winner, twice.old_winner) == ("twice", {"tile": 9}, {"tile": 8})


def test_pairs_are_listed_by_kernel_then_problem_then_gpu_model(db_session: Session, rows: Rows) -> None:
    wanted = [("gemm", "2", "b200"), ("gemm", "2", GPU), ("gemm", "3", "b200"), ("gemm", "3", GPU), ("norm", "1", GPU)]
    names = dict(zip(wanted, ("c", "b", "e", "d", "a"), strict=True))
    for kernel, problem, gpu_model in wanted:
        night = rows.night(rows.commit(repository=names[kernel, problem, gpu_model]), gpu_model=gpu_model)
        _night(rows, night=night, kernel=kernel, problem=problem)
    pairs = run_pairs.list_newest_run_pairs(db_session, NOON)
    assert [(pair.kernel, pair.problem, pair.gpu_model) for pair in pairs] == wanted
