"""One cause is one regression, whoever finds it; what people may do with it, and that it remembers who did."""

import datetime as dt
import threading
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import regressions
from tilewatch.db.lifecycle.regression_causes import (
    Cause,
    ChangedSeries,
    OpenedRegression,
    mark_recovered,
    open_or_join,
)
from tilewatch.db.models import Mark, Regression, RegressionEvent, RegressionSeries
from tilewatch.db.session import session

PROBLEMS = tuple(f"{m}x512x512" for m in (16, 32, 64, 128))
JUDGES = 8
KERNELS = ("gemm_fp8", "gemm_w8a8", "grouped")


def commits(opened: Session, count: int) -> list[int]:
    return [
        fact_writes.add_commit(
            opened,
            repository="tilewatch",
            sha=f"{number:040x}",
            position=number,
            committed_at=one_commit.NOON + dt.timedelta(hours=number),
            subject=f"Change {number}",
        )
        for number in range(count)
    ]


def run_of(opened: Session) -> int:
    return one_commit.measure(opened, one_commit.submit(opened))


def cause(good: int, bad: int, *, kernel: str = "gemm_fp8", direction: str = "regression") -> Cause:
    return Cause(direction, "code", "the commit did it", ("registers 96 -> 128",), "tilewatch", kernel, good, bad)  # type: ignore[arg-type]  # a test's short hand


def moved(run_id: int, problem: str = PROBLEMS[0], size: float = 0.05) -> ChangedSeries:
    return ChangedSeries(problem, "b200", run_id, None, None, size, size - 0.01, size + 0.01)


def one(opened: Session, regression_id: int) -> Regression:
    return opened.get_one(Regression, regression_id, populate_existing=True)


def actions(opened: Session, regression_id: int) -> list[tuple[str, str, str | None, str]]:
    query = select(RegressionEvent).where(RegressionEvent.regression_id == regression_id).order_by(RegressionEvent.id)
    return [(event.who, event.action, event.from_state, event.to_state) for event in opened.scalars(query)]


def test_eight_judges_of_one_night_raise_each_regression_once(database_url: str) -> None:
    """Each judge has its own connection, and all start at once; the series come in another order to each."""
    with session(database_url) as opened:
        ids = commits(opened, 3)
        run_id = run_of(opened)
    start, opened_regressions = threading.Barrier(JUDGES), list[OpenedRegression]()

    def judge(number: int) -> None:
        start.wait()
        for step in range(len(KERNELS) * len(PROBLEMS)):
            kernel, problem = divmod((step + 5 * number) % (len(KERNELS) * len(PROBLEMS)), len(PROBLEMS))
            with session(database_url) as opened:
                opened_regressions.append(
                    open_or_join(
                        opened, cause(ids[0], ids[1], kernel=KERNELS[kernel]), moved(run_id, PROBLEMS[problem])
                    )
                )

    judges = [threading.Thread(target=judge, args=(number,)) for number in range(JUDGES)]
    for each in judges:
        each.start()
    for each in judges:
        each.join()
    with session(database_url) as opened:
        assert sorted(opened.scalars(select(Regression.kernel))) == sorted(KERNELS)
        assert opened.scalar(select(func.count(RegressionSeries.id))) == len(KERNELS) * len(PROBLEMS)
        actions = list(opened.scalars(select(RegressionEvent.action)))
    assert len(opened_regressions) == JUDGES * len(KERNELS) * len(PROBLEMS)
    assert sum(each.created for each in opened_regressions) == len(KERNELS) == actions.count("open")
    assert actions.count("open") + actions.count("join") == len(KERNELS) * len(PROBLEMS)


def test_series_that_narrow_a_change_differently_are_one_regression_with_the_range_that_both_allow(
    db_session: Session,
) -> None:
    ids, run_id = commits(db_session, 12), run_of(db_session)
    first = open_or_join(db_session, cause(ids[2], ids[8]), moved(run_id, PROBLEMS[0], 0.03))
    second = open_or_join(db_session, cause(ids[4], ids[10]), moved(run_id, PROBLEMS[1], 0.07))
    found = one(db_session, first.id)
    assert (second.id, second.created) == (first.id, False)
    assert [action for _, action, *_ in actions(db_session, first.id)] == ["open", "join"]
    assert (found.good_commit_id, found.bad_commit_id, found.size) == (ids[4], ids[8], 0.07)


def test_what_a_narrowed_range_leaves_is_another_regression(db_session: Session) -> None:
    ids, run_id = commits(db_session, 12), run_of(db_session)
    first = open_or_join(db_session, cause(ids[2], ids[8]), moved(run_id))
    open_or_join(db_session, cause(ids[2], ids[5]), moved(run_id, PROBLEMS[1]))
    left = open_or_join(db_session, cause(ids[5], ids[8]), moved(run_id, PROBLEMS[2]))
    assert left.created
    found = one(db_session, first.id)
    assert (found.good_commit_id, found.bad_commit_id) == (ids[2], ids[5])


def test_the_range_of_a_node_stays_as_its_first_series_found_it(db_session: Session) -> None:
    ids, run_id = commits(db_session, 12), run_of(db_session)
    slow = {"category": "node", "what": "n1 and n2"}
    first = open_or_join(db_session, replace(cause(ids[2], ids[4]), **slow), moved(run_id))  # type: ignore[arg-type]  # a test's short hand
    again = open_or_join(db_session, replace(cause(ids[8], ids[9]), **slow), moved(run_id, PROBLEMS[1]))  # type: ignore[arg-type]  # a test's short hand
    found = one(db_session, first.id)
    assert (again.id, found.good_commit_id, found.bad_commit_id) == (first.id, ids[2], ids[4])


def test_changes_that_share_no_commit_are_two_regressions(db_session: Session) -> None:
    ids, run_id = commits(db_session, 12), run_of(db_session)
    first = open_or_join(db_session, cause(ids[2], ids[4]), moved(run_id))
    second = open_or_join(db_session, cause(ids[4], ids[5]), moved(run_id))
    third = open_or_join(db_session, cause(ids[2], ids[4], direction="improvement"), moved(run_id, size=-0.05))
    assert len({first.id, second.id, third.id}) == 3


@pytest.mark.parametrize(
    ("differs", "is_same"),
    [
        ({}, True),
        ({"sentence": "another sentence"}, True),
        ({"repository": "another"}, False),
        ({"kernel": "norm"}, False),
        ({"direction": "improvement"}, False),
        ({"category": "toolchain"}, False),
        ({"what": "n1"}, False),
        ({"what": "n1 and n3"}, False),
        ({"ends": (3, 9)}, True),
        ({"ends": (7, 9)}, True),
        ({"ends": (8, 9)}, False),
        ({"ends": (3, 5)}, True),
        ({"ends": (3, 4)}, False),
    ],
    ids=str,
)
def test_a_change_belongs_to_the_regression_of_the_same_cause_if_both_share_a_commit(
    db_session: Session, differs: dict[str, Any], is_same: bool
) -> None:
    ids, run_id = commits(db_session, 12), run_of(db_session)
    first = replace(cause(ids[4], ids[8]), what="n1 and n2")
    opened = open_or_join(db_session, first, moved(run_id))
    good, bad = ({"ends": (4, 8)} | differs)["ends"]
    again = {name: value for name, value in differs.items() if name != "ends"}
    second = replace(first, good_commit_id=ids[good], bad_commit_id=ids[bad], **again)
    joined = open_or_join(db_session, second, moved(run_id, PROBLEMS[1]))
    assert (joined.id == opened.id, joined.created) == (is_same, not is_same)


def test_a_change_that_fits_several_regressions_joins_the_newest_and_locks_no_other(
    db_session: Session, database_url: str
) -> None:
    ids, run_id = commits(db_session, 12), run_of(db_session)
    older, newer = (open_or_join(db_session, cause(*ends), moved(run_id)).id for ends in (ids[2:4], ids[3:5]))
    regressions.edit(db_session, older, "ada", "note", "its row now lies after the other one")
    db_session.commit()
    assert open_or_join(db_session, cause(ids[2], ids[4]), moved(run_id)) == OpenedRegression(newer, False)
    with session(database_url) as opened:
        free = opened.scalars(select(Regression.id).with_for_update(skip_locked=True)).all()
    assert free == [older]


def test_a_regression_goes_from_hand_to_hand_and_every_step_has_a_name(db_session: Session) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    db_session.execute(text("set local role tilewatch_triage"))
    regressions.triage(db_session, number, "acknowledge", "ada", "looking")
    regressions.edit(db_session, number, "ada", "owner", "grace")
    regressions.edit(db_session, number, "grace", "note", "the swizzle")
    regressions.edit(db_session, number, "grace", "link", "https://example.org/1")
    regressions.triage(db_session, number, "resolve", "grace")
    regressions.triage(db_session, number, "reopen", "ada", "not yet")
    regressions.triage(db_session, number, "expect", "grace", "bought accuracy")
    for right in (True, False):
        regressions.mark(db_session, "grace", right=right, regression_id=number)
    assert db_session.scalars(select(Mark.right)).all() == [False]
    found = one(db_session, number)
    assert (found.state, found.owner, found.note, found.link) == (
        "expected",
        "grace",
        "the swizzle",
        "https://example.org/1",
    )
    assert actions(db_session, number) == [
        ("tilewatch", "open", None, "new"),
        ("ada", "acknowledge", "new", "acknowledged"),
        ("ada", "assign", "acknowledged", "acknowledged"),
        ("grace", "note", "acknowledged", "acknowledged"),
        ("grace", "link", "acknowledged", "acknowledged"),
        ("grace", "resolve", "acknowledged", "resolved"),
        ("ada", "reopen", "resolved", "reopened"),
        ("grace", "expect", "reopened", "expected"),
        ("grace", "mark right", "expected", "expected"),
        ("grace", "mark wrong", "expected", "expected"),
    ]
    regressions.edit(db_session, number, "ada", "owner", None)
    regressions.edit(db_session, number, "ada", "note", " ")
    notes = list(db_session.scalars(select(RegressionEvent.note).order_by(RegressionEvent.id)))[1:]
    said = ["looking", "grace", "the swizzle", "https://example.org/1", None, "not yet", "bought accuracy", None, None]
    assert notes == [*said, "nobody", None]
    assert (one(db_session, number).owner, one(db_session, number).note) == (None, None)


def test_whoever_acknowledges_a_regression_first_owns_it(db_session: Session) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    steps = (("resolve", "bob"), ("reopen", "bob"), ("acknowledge", "ada"), ("resolve", "bob"), ("reopen", "bob"))
    owners = []
    for action, who in (*steps, ("acknowledge", "eve")):
        regressions.triage(db_session, number, action, who)
        owners.append(one(db_session, number).owner)
    assert owners == [None, None, "ada", "ada", "ada", "ada"]


def test_a_regression_is_changed_by_one_person_at_once_as_the_other_one_left_it(
    db_session: Session, database_url: str
) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    known = one(db_session, number)
    db_session.commit()
    with session(database_url) as opened:
        regressions.triage(opened, number, "acknowledge", "ada")
    assert known.state == "new"
    assert regressions.lock(db_session, number).state == "acknowledged"
    with session(database_url) as opened:
        assert opened.scalars(select(Regression.id).with_for_update(skip_locked=True)).all() == []


@pytest.mark.parametrize("is_edited", [True, False])
def test_a_regression_has_the_time_of_its_last_event(db_session: Session, is_edited: bool) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    before = one(db_session, number).changed_at
    if is_edited:
        regressions.edit(db_session, number, "ada", "note", "the swizzle")
    else:
        regressions.triage(db_session, number, "resolve", "ada")
    assert one(db_session, number).changed_at > before


def test_a_cause_is_looked_for_by_one_judge_at_once(db_session: Session) -> None:
    """Two whose ranges overlap and differ would both find none."""
    ids, run_id = commits(db_session, 3), run_of(db_session)
    held = text("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
    assert db_session.scalar(held) == 0
    open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id))
    assert db_session.scalar(held) == 1


@pytest.mark.parametrize("of", [{}, {"regression_id": 1, "run_id": 1}], ids=("nothing", "both"))
def test_a_mark_is_of_a_regression_or_of_a_run(db_session: Session, of: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="and not of both"):
        regressions.mark(db_session, "ada", right=True, **of)


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "data:text/html,x", "//example.org/1", "example.org/1", "https://", "http:// x"]
)
def test_a_link_is_an_address_of_the_web(db_session: Session, address: str) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    with pytest.raises(regressions.NotPossible, match="is not stored as a link: expected an address like https://"):
        regressions.edit(db_session, number, "grace", "link", address)
    regressions.edit(db_session, number, "grace", "link", " HTTPS://example.org:8443/1?a=b#c ")
    assert one(db_session, number).link == "HTTPS://example.org:8443/1?a=b#c"
    regressions.edit(db_session, number, "grace", "link", "")
    assert one(db_session, number).link is None


def test_control_characters_in_words_of_people_are_replaced(db_session: Session) -> None:
    """Postgres stores no NUL, and a terminal takes an escape character for an order."""
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    regressions.edit(db_session, number, "gr\0ace", "note", "first\nsec\0ond\x1b[31m")
    assert one(db_session, number).note == "first\nsec\ufffdond\ufffd[31m"
    assert actions(db_session, number)[-1][0] == "gr\ufffdace"


def test_what_a_state_does_not_allow_is_refused_with_what_it_does(db_session: Session) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    regressions.triage(db_session, number, "resolve", "ada")
    with pytest.raises(regressions.NotPossible, match=r"is resolved: it cannot acknowledge; what is possible: reopen"):
        regressions.triage(db_session, number, "acknowledge", "ada")
    with pytest.raises(regressions.NoSuchRegression, match="no regression 4711"):
        regressions.triage(db_session, 4711, "resolve", "ada")
    with pytest.raises(ValueError, match="needs a name"):
        regressions.triage(db_session, number, "reopen", " ")


def test_a_regression_whose_series_all_recovered_resolves_by_itself_once(db_session: Session) -> None:
    ids, run_id = commits(db_session, 4), run_of(db_session)
    later = one_commit.measure(db_session, one_commit.submit(db_session, key="later"), key="run 2")
    for problem in PROBLEMS[:2]:
        number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id, problem, 0.05)).id
    half = moved(later, PROBLEMS[0], -0.02)
    assert mark_recovered(db_session, half, repository="tilewatch", kernel="gemm_fp8") == []
    back = [moved(later, problem, -0.045) for problem in PROBLEMS[:2]]
    assert mark_recovered(db_session, back[0], repository="tilewatch", kernel="gemm_fp8") == [number]
    assert one(db_session, number).state == "new"
    assert mark_recovered(db_session, back[1], repository="tilewatch", kernel="gemm_fp8") == [number]
    assert mark_recovered(db_session, back[1], repository="tilewatch", kernel="gemm_fp8") == []
    assert one(db_session, number).state == "resolved"
    assert [action for _, action, _, _ in actions(db_session, number)][-2:] == ["recover", "resolve"]


@pytest.mark.parametrize(
    ("size", "back", "is_over"),
    [
        (1.0, -0.5, True),
        (3.0, -0.75, True),
        (1.0, -0.3, False),
        (1.0, 0.0, False),
        (1.0, 1.0, False),
        (0.0, 1.0, False),
    ],
)
def test_what_became_twice_as_slow_has_recovered_by_half(
    db_session: Session, size: float, back: float, is_over: bool
) -> None:
    """The sizes have different bases: any regression of more than 67 % stayed open for ever."""
    ids, run_id = commits(db_session, 4), run_of(db_session)
    later = one_commit.measure(db_session, one_commit.submit(db_session, key="later"), key="run 2")
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id, PROBLEMS[0], size)).id
    mark_recovered(db_session, moved(later, PROBLEMS[0], back), repository="tilewatch", kernel="gemm_fp8")
    assert (one(db_session, number).state == "resolved") == is_over


@pytest.mark.parametrize(("of_node", "is_over"), [(False, False), (True, True)])
def test_a_backfilled_commit_has_not_taken_back_what_is_slow_after_it(
    db_session: Session, of_node: bool, is_over: bool
) -> None:
    """A node may recover at any commit."""
    ids, run_id = commits(db_session, 4), run_of(db_session)
    older = one_commit.submit(db_session, key="backfill", sha=f"{0:040x}", position=0)
    backfilled = one_commit.measure(db_session, older, key="run 2")
    because = replace(cause(ids[2], ids[3]), category="node" if of_node else "code")
    number = open_or_join(db_session, because, moved(run_id)).id
    better = moved(backfilled, size=-0.06)
    mark_recovered(db_session, better, repository="tilewatch", kernel="gemm_fp8", of_node=of_node)
    assert (one(db_session, number).state == "resolved") == is_over


@pytest.mark.parametrize(
    ("differs", "is_over"),
    [
        ({}, True),
        ({"repository": "another"}, False),
        ({"kernel": "norm"}, False),
        ({"problem": PROBLEMS[1]}, False),
        ({"gpu_model": "h200"}, False),
        ({"of_node": True}, False),
        ({"state": "resolved"}, False),
        ({"state": "acknowledged"}, True),
        ({"is_same_run": True}, False),
    ],
    ids=str,
)
def test_a_series_recovers_in_the_open_regressions_of_its_own_alone(
    db_session: Session, differs: dict[str, Any], is_over: bool
) -> None:
    """A regression of another kernel is open all the time."""
    ids, run_id = commits(db_session, 4), run_of(db_session)
    later = one_commit.measure(db_session, one_commit.submit(db_session, key="later"), key="run 2")
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    other = open_or_join(db_session, cause(ids[0], ids[1], kernel="other"), moved(run_id)).id
    db_session.execute(update(Regression).where(Regression.id == number).values(state=differs.get("state", "new")))
    of = {name: differs[name] for name in ("problem", "gpu_model") if name in differs}
    back = replace(moved(run_id if "is_same_run" in differs else later, size=-0.045), **of)
    whose = {name: differs[name] for name in ("repository", "kernel", "of_node") if name in differs}
    found = mark_recovered(db_session, back, **{"repository": "tilewatch", "kernel": "gemm_fp8", **whose})
    assert found == [number] * is_over
    recovered = select(RegressionSeries.regression_id).where(RegressionSeries.recovered_at.is_not(None))
    assert db_session.scalars(recovered).all() == found
    if is_over:
        assert (one(db_session, number).state, one(db_session, other).state) == ("resolved", "new")


def test_a_series_recovers_once_in_each_of_its_regressions(db_session: Session) -> None:
    ids, run_id = commits(db_session, 4), run_of(db_session)
    causes = [cause(*ends) for ends in (ids[:2], ids[1:3])]
    numbers = [open_or_join(db_session, each, moved(run_id)).id for each in causes]
    for each in causes:
        open_or_join(db_session, each, moved(run_id, PROBLEMS[1]))
    later = one_commit.measure(db_session, one_commit.submit(db_session, key="later"), key="run 2")
    of = {"repository": "tilewatch", "kernel": "gemm_fp8"}
    found = [mark_recovered(db_session, moved(later, size=-0.045), **of) for _ in range(2)]
    assert found == [numbers, []]
    assert [one(db_session, number).state for number in numbers] == ["new", "new"], "a series of each is slow"


@pytest.mark.parametrize(
    ("category", "state", "is_same_run", "is_back"),
    [
        ("node", "resolved", False, True),
        ("toolchain", "resolved", False, True),
        ("code", "resolved", False, False),
        ("node", "acknowledged", False, False),
        ("node", "resolved", True, False),
    ],
)
def test_a_series_is_slow_again_in_a_later_run_if_no_commit_is_needed_for_that(
    db_session: Session, category: Any, state: str, is_same_run: bool, is_back: bool
) -> None:
    """A person resolved the regression. Its other series, and those of others, stay as they are."""
    ids, run_id = commits(db_session, 3), run_of(db_session)
    fact_writes.add_gpu_model(db_session, slug="h200", name="H", arch="sm_90", fp8_tflops=None, bandwidth_gbps=None)
    because = replace(cause(ids[0], ids[1]), category=category, what="n1 and n2")
    number = open_or_join(db_session, because, moved(run_id)).id
    others = [replace(because, kernel="norm"), replace(because, what="n3 and n4")]
    other, another = (open_or_join(db_session, each, moved(run_id)).id for each in others)
    for series in (moved(run_id, PROBLEMS[1]), replace(moved(run_id), gpu_model="h200")):
        assert open_or_join(db_session, because, series).id == number
    db_session.execute(update(Regression).values(state="resolved"))
    db_session.execute(update(Regression).where(Regression.id == number).values(state=state))
    later = one_commit.measure(db_session, one_commit.submit(db_session, key="later"), key="run 2")
    open_or_join(db_session, because, moved(run_id if is_same_run else later, size=0.06))
    assert one(db_session, number).state == ("reopened" if is_back else state)
    query = select(RegressionSeries.regression_id, RegressionSeries.problem, RegressionSeries.gpu_model)
    assert [tuple(each) for each in db_session.execute(query.where(RegressionSeries.run_id == later))] == (
        [(number, PROBLEMS[0], "b200")] * is_back
    )
    assert [one(db_session, each).state for each in (other, another)] == ["resolved"] * 2


@pytest.mark.parametrize("sign", [1, -1])
def test_a_regression_has_the_size_of_its_largest_series(db_session: Session, sign: int) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    change = cause(ids[0], ids[1], direction="regression" if sign == 1 else "improvement")
    sizes = []
    for problem, size in zip(PROBLEMS, (0.05, 0.03, 0.07, 0.06), strict=True):
        number = open_or_join(db_session, change, moved(run_id, problem, sign * size)).id
        sizes.append(sign * one(db_session, number).size)
    assert sizes == [0.05, 0.05, 0.07, 0.07]


def test_a_resolved_regression_that_meets_another_series_is_back(db_session: Session) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    regressions.triage(db_session, number, "resolve", "ada")
    open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id))
    assert one(db_session, number).state == "resolved", "judged again, not worse"
    open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id, PROBLEMS[1]))
    assert one(db_session, number).state == "reopened"


def test_a_regression_that_is_back_has_the_size_of_what_is_slow_again(db_session: Session) -> None:
    """A node that was 30 % slow and is 4 % slow again was reported as 30 % slow."""
    ids, run_id = commits(db_session, 3), run_of(db_session)
    of_node = replace(cause(ids[0], ids[1]), category="node", what="n1 -> n2")
    sizes = {PROBLEMS[0]: 0.3, PROBLEMS[1]: 0.05}
    for problem, size in sizes.items():
        number = open_or_join(db_session, of_node, moved(run_id, problem, size)).id
    later = one_commit.measure(db_session, one_commit.submit(db_session, key="later"), key="run 2")
    for problem, size in sizes.items():
        back = moved(later, problem, -size)
        mark_recovered(db_session, back, repository="tilewatch", kernel="gemm_fp8", of_node=True)
    assert one(db_session, number).state == "resolved"
    open_or_join(db_session, of_node, moved(later, PROBLEMS[1], 0.04))
    found = one(db_session, number)
    assert (found.state, found.size, found.low, found.high) == ("reopened", 0.04, 0.03, 0.05)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_regression_that_is_back_has_the_size_of_its_largest_slow_series(db_session: Session, sign: int) -> None:
    """Neither the first nor the newest series is the largest, and that of another regression does not count."""
    ids, run_id = commits(db_session, 3), run_of(db_session)
    change = cause(ids[0], ids[1], direction="regression" if sign == 1 else "improvement")
    open_or_join(db_session, replace(change, kernel="norm"), moved(run_id, size=sign * 0.9))
    for problem, size in zip(PROBLEMS[:3], (0.04, 0.3, 0.05), strict=True):
        number = open_or_join(db_session, change, moved(run_id, problem, sign * size)).id
    regressions.triage(db_session, number, "resolve", "ada")
    open_or_join(db_session, change, moved(run_id, PROBLEMS[3], sign * 0.06))
    found = one(db_session, number)
    assert (found.state, found.size) == ("reopened", sign * 0.3)
    assert (found.low, found.high) == (sign * 0.3 - 0.01, sign * 0.3 + 0.01)


def test_the_newest_word_of_a_person_counts(db_session: Session) -> None:
    ids, run_id = commits(db_session, 3), run_of(db_session)
    number = open_or_join(db_session, cause(ids[0], ids[1]), moved(run_id)).id
    for right in (True, False):
        regressions.mark(db_session, "ada", right=right, regression_id=number, note="hm")
    regressions.mark(db_session, "grace", right=True, regression_id=number)
    regressions.mark(db_session, "ada", right=True, run_id=run_id)
    marks = db_session.scalars(select(Mark).order_by(Mark.who, Mark.regression_id)).all()
    assert [(mark.who, mark.right, mark.regression_id) for mark in marks] == [
        ("ada", False, number),
        ("ada", True, None),
        ("grace", True, number),
    ]
