"""The winners of runs come with the code that ran, and with the facts of their own run."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import GPU, HOST, KERNEL, NOON, PROBLEM, REPOSITORY, Rows
from tilewatch.db.models import Config, Run, Submission, Sweep
from tilewatch.db.worker_reads import judging, winners
from tilewatch.db.worker_reads.winners import LastTrial, LastWinner, Winner

HOUR = dt.timedelta(hours=1)


def _won(
    rows: Rows, night: Submission | None = None, tile: int = 32, *, detail: dict[str, Any] | None = None, **columns: Any
) -> Run:
    """Adds a run that config `tile` won, a slower config beside it, and a baseline with a config."""
    of_sweep = {name: columns.pop(name) for name in ("kernel", "problem", "space") if name in columns}
    sweep = rows.sweep(night, **of_sweep)
    run = rows.run(sweep, **columns)
    slower = _trial(rows, sweep, 2 * tile, 11.0)
    won = _trial(rows, sweep, tile, 10.0)
    rows.measure(run, 9.5, config_id=won.id, detail=detail or {}, baseline="deepgemm", ratio=1.2)
    rows.measure(run, 12.0, role="baseline", implementation="deepgemm", config_id=slower.id)
    return run


def _trial(rows: Rows, sweep: Sweep, tile: int, us: float, **columns: Any) -> Config:
    """Adds a config that was compiled and timed; the columns are those of the compilation."""
    config = rows.config(tile=tile)
    made = rows.compilation(f"code {tile} of {sweep.id}", **columns)
    rows.trial(sweep, config, us, compilation_id=made.id)
    return config


def _tile(found: Winner) -> int:
    return found.params["tile"]


def test_the_winners_at_a_commit_are_those_of_its_first_runs(db_session: Session, rows: Rows) -> None:
    commit = rows.commit()
    first, second = rows.night(commit), rows.night(commit)
    run = _won(rows, second, 64, id=90_001)
    _won(rows, first, 32, id=90_000)
    _won(rows, first, 16, problem="128", id=90_002)
    _won(rows, first, 256, kernel="softmax", origin="simulated")
    _won(rows, rows.night(commit, gpu_model="b200"), 256, kernel="softmax")
    _won(rows, rows.night(), 256, kernel="softmax")
    _won(rows, rows.night(commit), 8, id=89_999, host="a host with an earlier run")
    found = winners.read_winners_at(db_session, judging.read_scope(db_session, run.id), commit.id)
    of_hosts = {key: [(host, each.run_id, _tile(each)) for host, each in hosts.items()] for key, hosts in found.items()}
    assert of_hosts == {
        (KERNEL, PROBLEM): [("a host with an earlier run", 89_999, 8), (HOST, 90_000, 32)],
        (KERNEL, "128"): [(HOST, 90_002, 16)],
    }


def test_the_winner_of_a_run_names_the_code_that_ran(db_session: Session, rows: Rows) -> None:
    run, other = _won(rows), _won(rows)
    failed = rows.run(sweep := rows.sweep())
    rows.measure(failed, config_id=_trial(rows, sweep, 8, 10.0, status="error").id)
    found = winners.read_winners_of_runs(db_session, [run.id, failed.id])
    code = f"code 32 of {run.sweep_id}"
    ids = (run.id, run.sweep_id, "5" * 64, found[run.id].config_id)
    wanted = Winner(*ids, {"tile": 32}, f"cubin of {code}", KERNEL, f"machine code of {code}", "tileiras 13.4")
    assert found == {run.id: wanted}
    assert other.id not in found


@pytest.mark.parametrize(
    ("ahead", "before", "is_listed", "fastest"),
    [(0.5, 0.25, False, 96), (0.5, 0.375, False, None), (0.5, 0.0, True, None)],
)
def test_a_short_list_is_beaten_by_a_clear_lead_of_another_config(
    db_session: Session, rows: Rows, ahead: float, before: float, is_listed: bool, fastest: int | None
) -> None:
    runs = [_won(rows, detail={"certificate": {"ahead": ahead, "ahead_before": before}}) for _ in range(2)]
    for run in runs:
        sweep = db_session.get_one(Sweep, run.sweep_id)
        listed = [_trial(rows, sweep, tile, us) for tile, us in ((128, 13.0), (96, 12.0), (256, 14.0))]
        _trial(rows, sweep, 512, 8.0)
        won = winners.read_winners_of_runs(db_session, [run.id])[run.id].config_id
        sweep.space = {**sweep.space, "listed": [each.id for each in listed] + [won] * is_listed}
        failed = rows.config(tile=4)
        made = rows.compilation(f"code 4 of {sweep.id}")
        rows.trial(sweep, failed, status="wrong", failure="wrong", compilation_id=made.id)
        sweep.space["listed"].append(failed.id)
    db_session.flush()
    found = winners.read_beaten_lists(db_session, [runs[0].id, _won(rows).id], 0.25)
    assert {number: _tile(each) for number, each in found.items()} == ({runs[0].id: fastest} if fastest else {})


def test_the_newest_runs_are_compared_first(db_session: Session, rows: Rows) -> None:
    newest = 50 * judging.RUNS_LOOKED_AT
    oldest = newest - judging.RUNS_LOOKED_AT
    for number in (oldest + 1, newest, oldest + 2, oldest):
        rows.run(id=number)
    rows.run(id=newest - 1, code_compared_at=NOON)
    rows.run(id=newest - 2, origin="recorded")
    assert winners.list_runs_to_compare(db_session, 9) == [newest, oldest + 2, oldest + 1]
    assert winners.list_runs_to_compare(db_session, 2) == [newest, oldest + 2]


def test_the_last_winner_of_a_problem_is_that_of_the_run_that_ended_last(db_session: Session, rows: Rows) -> None:
    _won(rows, tile=16, finished_at=NOON, id=90_003)
    _won(rows, tile=32, finished_at=NOON + HOUR, id=90_001)
    _won(rows, tile=64, finished_at=NOON + HOUR, id=90_002)
    _won(rows, tile=8, problem="128", origin="recorded")
    _won(rows, rows.night(gpu_model="b200"), 4, problem="256")
    _won(rows, rows.night(rows.commit(repository="attention")), 4, problem="256")
    found = winners.list_last_winners(db_session, REPOSITORY, GPU)
    assert sorted(found, key=lambda each: each.problem) == [
        LastWinner(KERNEL, "128", {"tile": 8}, NOON.isoformat()),
        LastWinner(KERNEL, PROBLEM, {"tile": 64}, (NOON + HOUR).isoformat()),
    ]


def test_the_last_trials_are_those_of_the_newest_complete_sweep(db_session: Session, rows: Rows) -> None:
    _won(rows, tile=16, finished_at=NOON, id=90_003)
    _won(rows, tile=32, finished_at=NOON + HOUR, id=90_001)
    _won(rows, tile=64, finished_at=NOON + HOUR, id=90_002)
    part = _won(rows, tile=8, finished_at=NOON + 2 * HOUR)
    rows.trial(rows.opened.get_one(Sweep, part.sweep_id), rows.config())
    _won(rows, rows.night(gpu_model="b200"), 4, problem="256")
    _won(rows, rows.night(rows.commit(repository="attention")), 4, problem="256")
    last = rows.opened.get_one(Sweep, rows.opened.get_one(Run, 90_002).sweep_id)
    rows.trial(last, rows.config(), status="wrong", failure="wrong")
    found = winners.list_last_trials(db_session, REPOSITORY, GPU)
    wanted = [LastTrial(KERNEL, PROBLEM, {"tile": tile}, us) for tile, us in ((64, 10.0), (128, 11.0))]
    assert sorted(found, key=lambda each: each.median_us) == wanted


def test_a_series_was_measured_at_the_first_commit_of_each_position(db_session: Session, rows: Rows) -> None:
    commits = {number: rows.commit(position, id=number) for number, position in ((90_001, 3), (90_000, 3), (90_002, 5))}
    for commit in commits.values():
        run = rows.measured(rows.night(commit))
    rows.measured(rows.night(rows.commit(6)))
    nights = {name: rows.night(rows.commit(4)) for name in ("kernel", "problem", "origin")}
    rows.measured(nights["kernel"], kernel="softmax")
    rows.measured(nights["problem"], problem="128")
    rows.measured(nights["origin"], origin="simulated")
    rows.measured(rows.night(rows.commit(4), gpu_model="b200"))
    rows.measured(rows.night(rows.commit(4, repository="attention")))
    rows.sweep(rows.night(rows.commit(4)))  # without a run
    scope = judging.read_scope(db_session, run.id)
    assert winners.read_measured_commits(db_session, scope, KERNEL, PROBLEM) == {3: 90_000, 5: 90_002}


def test_the_code_of_a_config_is_that_of_its_own_sweep(db_session: Session, rows: Rows) -> None:
    sweep, other = rows.sweep(), rows.sweep()
    config = _trial(rows, sweep, 32, 10.0)
    _trial(rows, sweep, 64, 10.0)
    made = rows.compilation("another")
    rows.trial(other, config, 10.0, compilation_id=made.id)
    assert winners.find_code(db_session, sweep.id, config.id) == f"machine code of code 32 of {sweep.id}"
    assert winners.find_code(db_session, other.id, config.id + 1) is None


REMARKS = [{"instruction": "mma"}, {"instruction": "tma"}, {"instruction": "mma"}, {"pass": "tma"}, {"instruction": ""}]


def test_the_facts_of_a_run_are_those_of_its_winner(db_session: Session, rows: Rows) -> None:
    sweep, columns = rows.sweep(rows.night(gpu_model="b200"), problem="128"), {"registers": 0, "mmas": 12}
    configs = [_trial(rows, sweep, tile, 10.0, remarks=REMARKS, **columns) for tile in (64, 32, 16, 8)]
    tie = [configs[2].id, configs[0].id, configs[1].id]
    run = rows.run(sweep, tie=tie, telemetry=[{"clock_mhz": 1965}], host="node-b")
    counted = {"counters": {"dram_bytes": 7.0}, "checklist": [{"item": "2-D swizzle", "answer": "yes", "evidence": ""}]}
    rows.measure(run, 8.0, config_id=configs[0].id, detail=counted, baseline="deepgemm", ratio=1.5)
    rows.measure(run, 12.0, role="baseline", implementation="deepgemm", config_id=configs[1].id)
    _won(rows)
    facts = winners.read_run_facts(db_session, run.id)
    assert (facts.time_us, facts.baseline, facts.baseline_us, facts.params) == (8.0, "deepgemm", 12.0, {"tile": 64})
    assert facts.tied == ({"tile": 32}, {"tile": 16})
    assert (facts.axes, facts.statics) == ({"tile": (32, 64)}, columns)
    assert facts.instructions == {"mma": 2, "tma": 1}
    assert facts.code_sha256 == f"machine code of code 64 of {sweep.id}"
    assert (facts.toolchain, facts.host, facts.telemetry) == (run.toolchain, "node-b", ({"clock_mhz": 1965},))
    assert (facts.problem, facts.arch, facts.counters) == ("128", "sm_100", {"dram_bytes": 7.0})
    assert facts.is_swizzled


def test_a_winner_without_a_cubin_has_no_facts_of_code(db_session: Session, rows: Rows) -> None:
    sweep = rows.sweep()
    config = rows.config()
    rows.trial(sweep, config, 10.0)
    run = rows.run(sweep)
    with pytest.raises(NoResultFound):
        winners.read_run_facts(db_session, run.id)
    rows.measure(run, config_id=config.id)
    facts = winners.read_run_facts(db_session, run.id)
    assert (facts.code_sha256, facts.statics, facts.instructions, facts.counters) == (None, {}, {}, {})
    assert (facts.baseline_us, facts.tied, facts.is_swizzled) == (None, (), None)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"kernel": "softmax"},
        {"problem": "128"},
        {"gpu_model": "b200"},
        {"good_code_sha256": "another"},
        {"bad_code_sha256": "another"},
        {"counters": {"bad": {"dram_bytes": 9.0}}},
    ],
)
def test_the_counters_of_the_newest_replay_of_the_same_code_replace_those_of_the_runs(
    db_session: Session, rows: Rows, other: dict[str, Any]
) -> None:
    _won(rows, kernel="softmax")
    good, bad = (_won(rows, detail={"counters": {"dram_bytes": us}}, host=HOST) for us in (1.0, 2.0))
    ends = rows.commit(3), rows.commit(8)
    codes = [f"machine code of code 32 of {run.sweep_id}" for run in (good, bad)]
    of_codes: dict[str, Any] = {"good_code_sha256": codes[0], "bad_code_sha256": codes[1]}
    counted: dict[float, dict[str, Any]] = {
        number: {"counters": {"good": {"l2": number}, "bad": {"l2": -number}}} for number in (1.0, 2.0)
    }
    for number in (1.0, 2.0):
        rows.replay(*ends, **{**of_codes, **counted[number]}, id=90_000 + int(number))
    rows.replay(*ends, **of_codes, id=90_003)
    if other:
        rows.replay(*ends, **{**of_codes, **counted[1.0], "id": 90_004, **other})
    facts = winners.read_pair_facts(db_session, good.id, bad.id)
    assert [each.counters for each in facts] == [{"l2": 2.0}, {"l2": -2.0}]
    assert [each.code_sha256 for each in facts] == codes
    facts = winners.read_pair_facts(db_session, good.id, good.id)
    assert [each.counters for each in facts] == [{"dram_bytes": 1.0}] * 2
