"""The queries of the judge see the runs of one repository, GPU model and origin, in the order of the commits."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import GPU, HOST, KERNEL, NOON, PROBLEM, REPOSITORY, Rows
from tilewatch.db.models import TOTAL, Run, Submission
from tilewatch.db.worker_reads import judging
from tilewatch.db.worker_reads.judging import ExpectedLevel, JudgedRun, Night, Scope

DAY = dt.timedelta(days=1)


def _scope(rows: Rows, run: Run) -> Scope:
    return judging.read_scope(rows.opened, run.id)


def _name(night: Submission) -> Night:
    commit = night.commit
    return Night(night.id, commit.id, commit.sha, commit.position)


def test_imported_and_named_runs_give_their_nights_by_commit(db_session: Session, rows: Rows) -> None:
    nights = {
        position: rows.night(rows.commit(position), gpu_model=GPU if position == 1 else "b200") for position in (3, 1)
    }
    imported = rows.run(rows.sweep(nights[3], problem="128"), "recorded", id=90_000)
    rows.run(rows.sweep(nights[3]), "recorded", id=90_001)
    named = rows.run(rows.sweep(nights[1]))
    again = rows.night(nights[1].commit)
    late = rows.run(rows.sweep(again), "recorded")
    rows.measured(rows.night(rows.commit(2)))
    rows.measured(rows.night(rows.commit(4)), origin="recorded", recording_id=rows.recordings[1])
    found = judging.list_recorded_nights(db_session, rows.recordings[0], [named.id, imported.id])
    shas = {position: night.commit.sha for position, night in nights.items()}
    assert [(each.run_id, each.submission_id, each.gpu_model, each.sha) for each in found] == [
        (named.id, nights[1].id, GPU, shas[1]),
        (late.id, again.id, GPU, shas[1]),
        (imported.id, nights[3].id, "b200", shas[3]),
    ]


def test_the_scope_of_a_run_names_where_and_how_it_was_measured(db_session: Session, rows: Rows) -> None:
    commit = rows.commit(7)
    rows.measured()
    run = rows.measured(night := rows.night(commit, gpu_model="b200"), origin="simulated")
    found = judging.read_scope(db_session, run.id)
    assert found == Scope(night.id, commit.id, commit.sha, 7, REPOSITORY, "b200", "sm_100", "simulated")


def test_the_newest_scope_of_each_kind_is_the_last_night_of_its_newest_commit(db_session: Session, rows: Rows) -> None:
    newest = rows.commit(5)
    last, first = (rows.night(newest, id=number) for number in (90_001, 90_000))
    rows.measured(last)
    rows.measured(first)
    rows.measured(rows.night(rows.commit(4)))
    rows.measured(rows.night(rows.commit(9, left_branch_at=NOON)))
    others = {
        "recorded": rows.measured(rows.night(rows.commit(1)), origin="recorded"),
        "b200": rows.measured(rows.night(rows.commit(2), gpu_model="b200")),
        "other": rows.measured(rows.night(rows.commit(3, repository="attention"))),
    }
    found = judging.list_newest_scopes(db_session)
    wanted = [_scope(rows, others[name]).submission_id for name in ("other", "b200")]
    wanted += [last.id, _scope(rows, others["recorded"]).submission_id]
    assert [each.submission_id for each in found] == wanted


def test_verdicts_are_listed_from_the_first_moment_of_the_day_on(db_session: Session, rows: Rows) -> None:
    midnight = NOON.replace(hour=0)
    before = midnight - dt.timedelta(microseconds=1)
    late, first = (
        rows.measured(started_at=at, id=number) for at, number in ((midnight + 2 * DAY, 90_001), (midnight, 90_000))
    )
    left_out = [
        rows.measured(started_at=before),
        rows.measured(rows.night(rows.commit(repository="attention"))),
        rows.measured(rows.night(gpu_model="b200")),
        rows.measured(origin="simulated"),
        rows.measured(kernel=TOTAL),
    ]
    for run in (late, first, *left_out):
        rows.verdict(run, verdict="undecided" if run is late else "unchanged")
    rows.measured()  # without a verdict
    found = judging.list_judged_since(db_session, _scope(rows, first), midnight.date())
    day = midnight.date()
    assert found == [JudgedRun(90_000, day, "unchanged"), JudgedRun(90_001, day + 2 * DAY, "undecided")]


@pytest.mark.parametrize(
    ("columns", "has_run", "measures"),
    [
        ({"state": "waiting"}, False, True),
        ({"state": "queued"}, False, True),
        ({"state": "running"}, False, True),
        ({"state": "done"}, False, False),
        ({"kind": "compile"}, False, False),
        ({}, True, False),
        ({"submission_id": None}, False, False),
    ],
)
def test_a_night_measures_while_a_sweep_without_a_run_has_an_open_job(
    db_session: Session, rows: Rows, columns: dict[str, Any], has_run: bool, measures: bool
) -> None:
    sweep = rows.sweep()
    rows.measured()
    rows.job(**{"submission_id": sweep.submission_id, "sweep_id": sweep.id, **columns})
    if has_run:
        rows.run(sweep)
    assert judging.is_measuring(db_session, sweep.submission_id) == measures


@pytest.mark.parametrize("state", [None, "open", "confirmed"])
@pytest.mark.parametrize("is_judged", [True, False])
def test_a_night_is_settled_by_verdicts_without_an_open_suspicion(
    db_session: Session, rows: Rows, state: str | None, is_judged: bool
) -> None:
    run = rows.measured(night := rows.night())
    rows.verdict(rows.measured(night, problem="128"))
    rows.measured(night, problem="256", origin="simulated")  # not of this scope
    rows.suspect(rows.measured())  # of another night
    if state is not None:
        rows.suspect(run, state)
    if is_judged:
        rows.verdict(run)
    assert judging.is_settled(db_session, _scope(rows, run)) == (is_judged and state != "open")


@pytest.mark.parametrize(
    ("columns", "is_unjudged"),
    [
        (None, True),
        ({"kind": "judge", "state": "queued"}, False),
        ({"kind": "confirm", "state": "running"}, False),
        ({"kind": "judge", "state": "done", "finished_at": NOON + 9 * DAY}, True),
        ({"kind": "compile", "state": "waiting"}, True),
        ({"kind": "judge", "state": "queued", "submission_id": None}, True),
    ],
)
def test_an_unjudged_night_has_no_open_job_but_compiling(
    db_session: Session, rows: Rows, columns: dict[str, Any] | None, is_unjudged: bool
) -> None:
    run = rows.measured(night := rows.night(), id=90_000)
    late = rows.measured(night, problem="128", id=90_001)
    for each, priority in ((late, 2), (run, 4)):
        done = {"submission_id": night.id, "sweep_id": each.sweep_id, "state": "done"}
        rows.job(**done, subject=f"of run {each.id}", priority=priority, finished_at=NOON + (each.id - 90_000) * DAY)
        rows.job(**{**done, "kind": "prepare"}, subject="preparing")
    rows.job(state="done", finished_at=NOON + 9 * DAY)
    settled = rows.measured(id=90_002)
    rows.job(submission_id=_scope(rows, settled).submission_id, sweep_id=settled.sweep_id, state="done")
    rows.verdict(settled)
    if columns is not None:
        rows.job(**{"submission_id": night.id, **columns})
    for submission_id in (None, night.id):
        found = judging.list_unjudged_nights(db_session, submission_id)
        assert [(each.run_id, each.submission_id) for each in found] == [(run.id, night.id)] * is_unjudged
        for only in found:
            assert (only.subject, only.priority, only.ended_at) == ("of run 90000", 4, NOON + DAY)


def test_unjudged_nights_are_searched_among_the_newest_runs_only(db_session: Session, rows: Rows) -> None:
    newest = 50 * judging.RUNS_LOOKED_AT
    ids = (newest, newest - judging.RUNS_LOOKED_AT, newest - judging.RUNS_LOOKED_AT + 1)
    runs = [rows.measured(id=number) for number in ids]
    nights = [_scope(rows, run).submission_id for run in runs]
    for run, night in zip(runs, nights, strict=True):
        rows.job(submission_id=night, sweep_id=run.sweep_id, state="done")
    assert [each.run_id for each in judging.list_unjudged_nights(db_session)] == [ids[0], ids[2]]
    assert [each.run_id for each in judging.list_unjudged_nights(db_session, nights[1])] == [ids[1]]


def test_the_nights_of_a_scope_end_with_its_own(db_session: Session, rows: Rows) -> None:
    commit = rows.commit(5)
    earlier, own, later = (rows.night(commit) for _ in range(3))
    oldest, gone = rows.night(rows.commit(2)), rows.night(rows.commit(3, left_branch_at=NOON))
    same_place = rows.night(rows.commit(5))  # another commit, stored later
    elsewhere = [
        rows.night(rows.commit(1, repository="attention")),
        rows.night(rows.commit(1), gpu_model="b200"),
        rows.night(rows.commit(6)),
        same_place,
    ]
    of_own = [rows.measured(each) for each in (later, own, earlier, gone, oldest, *elsewhere)][1]
    rows.measured(rows.night(rows.commit(1)), origin="simulated")
    rows.night(rows.commit(1))  # without a run
    found = judging.list_nights(db_session, _scope(rows, of_own))
    assert found == [_name(each) for each in (oldest, gone, earlier, own)]


def test_an_earlier_commit_of_the_same_place_does_not_stand_in_for_its_own(db_session: Session, rows: Rows) -> None:
    other = rows.night(rows.commit(5))
    rows.measured(other)
    own = rows.measured(night := rows.night(rows.commit(5)))
    assert judging.list_nights(db_session, _scope(rows, own)) == [_name(night)]


def test_the_commits_up_to_a_scope_are_read_by_position(db_session: Session, rows: Rows) -> None:
    last, first = (rows.commit(3, id=number) for number in (90_001, 90_000))
    rows.commit(2, repository="attention")
    rows.commit(6)
    own = rows.commit(5)
    shas = judging.read_shas(db_session, _scope(rows, rows.measured(rows.night(own))))
    assert shas == {3: last.sha, 5: own.sha}
    assert first.sha not in shas.values()


def test_points_are_the_kernels_times_of_these_nights(db_session: Session, rows: Rows) -> None:
    second, first = (rows.night(id=number) for number in (90_001, 90_000))
    rows.measured(second, us=11.0, id=90_009)
    rows.measured(first, kernel="softmax", problem="1", id=90_007)
    twice = rows.sweep(first, problem="512")
    for number in (90_008, 90_006):
        rows.measure(rows.run(twice, host="node-b", id=number), 14.0, ratio=1.2, baseline="deepgemm")
    rows.measure(rows.opened.get_one(Run, 90_006), 5.0, role="baseline", implementation="deepgemm")
    rows.measured(first, problem="128", id=90_010)
    rows.measured(first, kernel=TOTAL)
    rows.measured(first, problem="256", origin="simulated")
    rows.measured()
    points = judging.list_points(db_session, [first.id, second.id], "measured")
    assert [each.run_id for each in points] == [90_010, 90_006, 90_008, 90_007, 90_009]
    assert judging.count_points(db_session, [first.id, second.id], "measured") == len(points)
    found = points[1]
    assert (found.submission_id, found.kernel, found.problem, found.host) == (first.id, KERNEL, "512", "node-b")
    assert (found.time_us, found.low_us, found.high_us) == (14.0, 13.0, 15.0)
    assert (found.ratio, found.baseline, found.toolchain_sha256) == (1.2, "deepgemm", "7" * 64)
    assert judging.count_points(db_session, [], "measured") == 0


def test_expected_levels_hold_for_one_host_only_if_the_node_is_the_cause(db_session: Session, rows: Rows) -> None:
    good, bad = rows.commit(3), rows.commit(8)
    run = rows.measured()
    plain: dict[str, Any] = {"good": good, "bad": bad, "state": "expected"}
    everywhere, on_node = (rows.regression(**plain, category=name) for name in ("code", "node"))
    rows.changed(on_node, run, problem="128")
    rows.changed(everywhere, run)
    rows.changed(rows.regression(good, bad, state="acknowledged"), run)
    rows.changed(rows.regression(**plain, repository="attention"), run)
    rows.changed(everywhere, run, gpu_model="b200")
    rows.changed(everywhere, rows.measured(origin="simulated"), problem="256")
    found = judging.list_expected_levels(db_session, _scope(rows, run))
    wanted = [ExpectedLevel(KERNEL, "128", HOST, 8), ExpectedLevel(KERNEL, PROBLEM, None, 8)]
    assert sorted(found, key=lambda level: level.problem) == wanted


def test_the_range_of_a_regression_names_the_series_that_changed_most(db_session: Session, rows: Rows) -> None:
    good, bad = rows.commit(3), rows.commit(8)
    regression, other = (rows.regression(good, bad) for _ in range(2))
    runs = [rows.measured() for _ in range(4)]
    sizes = {"tied later": (-0.2, 4), "small": (0.07, 1), "worst": (-0.2, 3), "positive": (0.1, 2)}
    for run, (problem, (size, number)) in zip(runs, sizes.items(), strict=True):
        rows.changed(regression, run, size, problem=problem, id=90_000 + number)
    rows.changed(other, runs[0], 0.9)
    found = judging.find_regression_range(db_session, regression.id)
    assert found == judging.RegressionRange(3, 8, KERNEL, "worst", runs[2].id, -0.2)
    assert judging.find_regression_range(db_session, other.id + 1) is None


def test_the_night_before_is_the_newest_run_of_each_host(db_session: Session, rows: Rows) -> None:
    nights = [rows.night(rows.commit(position)) for position in (2, 4, 3)]
    nights.append(rows.night(nights[1].commit))
    for night, us, number in zip(nights, (12.0, 14.0, 13.0, 15.0), (4, 3, 2, 1), strict=True):
        rows.measured(night, us, id=90_000 + number)
    other_host = rows.measured(nights[0], 22.0, problem="64 on b", host="node-b")
    rows.measured(nights[1], 99.0, origin="simulated", problem="128")
    rows.measured(rows.night(rows.commit(9)), 99.0)
    found = judging.read_nights_before(db_session, [each.id for each in nights], "measured")
    assert {key: each.time_us for key, each in found.items()} == {
        (KERNEL, PROBLEM, HOST): 15.0,
        (KERNEL, "64 on b", "node-b"): 22.0,
    }
    commit = nights[0].commit
    assert found[KERNEL, "64 on b", "node-b"] == judging.NightBefore(other_host.id, commit.id, commit.sha, 22.0)


def test_the_runs_of_a_night_leave_out_totals_and_other_nights(db_session: Session, rows: Rows) -> None:
    night, numbers = rows.night(), (90_003, 90_001, 90_004, 90_002)
    runs = [rows.measured(night, problem=str(number), id=number) for number in numbers]
    rows.measured(night, kernel=TOTAL)
    rows.measured(night, problem="simulated", origin="simulated")
    rows.measured()
    assert judging.list_runs(db_session, _scope(rows, runs[0])) == sorted(numbers)


def test_spans_are_listed_until_they_are_stored_as_series(db_session: Session, rows: Rows) -> None:
    night = rows.night()
    second, first = (rows.run(rows.sweep(night, problem=str(number)), id=number) for number in (90_001, 90_000))
    timed = [rows.measure(run, detail={"span_us": [1.0]}) for run in (second, first)]
    rows.measure(first, role="baseline", implementation="deepgemm", detail={"span_us": [1.0]})
    stored = rows.run(rows.sweep(night, problem="stored"))
    rows.measure(stored, detail={"span_us": [1.0]})
    rows.run(rows.sweep(night, kernel=f"{KERNEL} span", problem="stored"), key=f"{stored.key} span")
    rows.measure(rows.run(rows.sweep(night, problem="graph")), detail={"graph_us": [1.0]})
    rows.measure(rows.run(rows.sweep(night, problem="sim"), "simulated"), detail={"span_us": [1.0]})
    rows.measure(rows.run(), detail={"span_us": [1.0]})
    found = judging.list_unstored_spans(db_session, _scope(rows, first), "span")
    assert [(run, measured) for _, run, measured in found] == [(first, timed[1]), (second, timed[0])]
    assert all(sweep.id == run.sweep_id for sweep, run, _ in found)


def _found(replays: list[judging.ReplayFact]) -> list[float]:
    return [each.good_us[0] for each in replays]


def test_replays_are_listed_from_a_position_on_for_one_scope(db_session: Session, rows: Rows) -> None:
    good, bad = rows.commit(3), rows.commit(8)
    rows.replay(good, bad, good_us=[2.0], bad_us=[2.5], id=90_002)
    rows.replay(rows.commit(1), bad, good_us=[1.0], bad_us=[1.5], bad_code_sha256=None, id=90_001)
    rows.replay(good, rows.commit(7))
    rows.replay(rows.commit(3, repository="attention"), bad)
    for other in ({"gpu_model": "b200"}, {"axis": "config"}, {"origin": "simulated"}):
        rows.replay(good, bad, **other)
    scope = _scope(rows, rows.measured())
    found = judging.list_replays(db_session, scope, 8)
    assert _found(found) == [1.0, 2.0]
    last = found[1]
    assert (last.good_commit_id, last.bad_commit_id, last.good_position, last.bad_position) == (good.id, bad.id, 3, 8)
    assert (last.good_code, last.bad_code, last.bad_us, last.failure) == ("good code", "bad code", (2.5,), None)


def test_a_replay_is_found_by_its_key(db_session: Session, rows: Rows) -> None:
    ends = rows.commit(3), rows.commit(8)
    rows.replay(*ends)
    rows.replay(*ends, key="wanted", failure="it hung")
    found = judging.find_replay(db_session, "wanted")
    assert found is not None
    assert found.failure == "it hung"
    assert judging.find_replay(db_session, "missing") is None


OF_CODE = {"kernel": KERNEL, "problem": PROBLEM, "gpu_model": GPU, "axis": "toolchain", "origin": "measured"}


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": "softmax"},
        {"problem": "128"},
        {"gpu_model": "b200"},
        {"axis": "commit"},
        {"origin": "simulated"},
        {"good_code_sha256": "other"},
        {"bad_code_sha256": "other"},
    ],
)
def test_replays_of_the_same_code_agree_in_all_that_makes_a_time(
    db_session: Session, rows: Rows, other: dict[str, Any]
) -> None:
    row: dict[str, Any] = {**OF_CODE, "good_code_sha256": "a", "bad_code_sha256": "b"}
    ends = rows.commit(3), rows.commit(8)
    rows.replay(*ends, **row, good_us=[1.0], bad_us=[1.0])
    rows.replay(rows.commit(3, repository="attention"), ends[1], **row)
    rows.replay(*ends, **{**row, **other})
    assert _found(judging.list_replays_of_code(db_session, REPOSITORY, row)) == [1.0]


@pytest.mark.parametrize(
    ("columns", "later", "asked"),
    [
        ({"state": "waiting"}, 1, True),
        ({"state": "running"}, 1, True),
        ({"state": "done"}, 1, False),
        ({"kind": "prepare"}, 1, False),
        ({"payload": {"question": {"key": "another"}}}, 1, False),
        ({}, 0, False),
    ],
)
def test_a_replay_is_asked_before_by_an_older_open_job(
    db_session: Session, rows: Rows, columns: dict[str, Any], later: int, asked: bool
) -> None:
    job = rows.job(**{"kind": "confirm", "payload": {"question": {"key": "wanted"}}, **columns})
    assert judging.is_asked_before(db_session, "wanted", job.id + later) == asked


@pytest.mark.parametrize(
    ("own", "others", "given_up"),
    [
        (["failed"], [], True),
        (["cancelled", "done"], [], True),
        (["done"], [], False),
        (["failed", "queued"], [], False),
        ([], [], False),
        ([], ["poison"], True),
        ([], ["done"], False),
        ([], ["running"], False),
        (["done"], ["failed"], False),
        (["failed"], ["running"], True),
    ],
)
@pytest.mark.parametrize("is_own_key", [True, False])
def test_a_replay_was_given_up_when_no_job_of_the_night_is_left(
    db_session: Session, rows: Rows, own: list[str], others: list[str], given_up: bool, is_own_key: bool
) -> None:
    night = rows.night()
    key = judging.own_key("wanted", night.id) if is_own_key else "wanted"
    for state, name in zip(own, judging.job_keys(key), strict=False):
        rows.job(key=name, state=state, submission_id=night.id)
    for state, name in zip(others, reversed(judging.job_keys("wanted")), strict=False):
        if is_own_key or not own:
            rows.job(key=name, state=state)
        else:
            rows.job(key=name, state=state, submission_id=None)
    rows.job(key="prepare:another", state="failed", submission_id=night.id)
    rows.job(key=judging.own_key("confirm:wanted", night.id + 1), state="failed", submission_id=night.id)
    assert judging.was_given_up(db_session, "wanted", night.id) == given_up


def test_a_job_is_of_the_night_that_asked_for_it(db_session: Session, rows: Rows) -> None:
    night, other = rows.night(), rows.night()
    job = rows.job(submission_id=night.id)
    assert judging.is_of_night(db_session, job.id, night.id)
    assert not judging.is_of_night(db_session, job.id, other.id)
