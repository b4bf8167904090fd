"""A replay of an undecided run is asked for once, by a person with a name, and where it is possible alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.db.fixtures.one_commit import NOON
from tests.worker.fixtures import open_regression
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import actions, suspicions
from tilewatch.db.lifecycle.actions import JobSelection, NoSuchWork
from tilewatch.db.lifecycle.regressions import NoSuchRegression, NotPossible
from tilewatch.db.lifecycle.suspicions import AWAITS_REPLAY
from tilewatch.db.models import (
    TOTAL,
    Action,
    Commit,
    Compilation,
    Job,
    Quarantine,
    Recording,
    RegressionSeries,
    Run,
    Sweep,
    Verdict,
    Worker,
)
from tilewatch.db.page_reads.evidence import find_run
from tilewatch.db.repository_names import name_of_branch
from tilewatch.db.session import session


@pytest.fixture
def undecided(db_session: Session) -> int:
    """The run of the second of two measured commits, with a live worker of its GPU model."""
    for position in (7, 8):
        planned = one_commit.submit(db_session, f"night {position}", sha=f"{position:040x}", position=position)
        fact_writes.add_compilations(db_session, [one_commit.compiled(code) for code in planned.code_keys])
        fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, sweep_ids=[planned.sweep_id])
        run_id = one_commit.measure(db_session, planned, f"run {position}")
    db_session.add(Worker(name="gpu", kind="gpu", host="node-a", gpu_model="b200", gpu_uuid="GPU-1", toolchain={}))
    db_session.flush()
    return run_id


def read_reason(opened: Session, run_id: int) -> str:
    return str(opened.scalar(select(Verdict.reason).where(Verdict.run_id == run_id)))


def test_a_replay_is_asked_for_once_and_the_verdict_and_the_actions_say_so(db_session: Session, undecided: int) -> None:
    before = read_reason(db_session, undecided)
    said = actions.replay(db_session, undecided, "ada")
    assert said == f"a replay of run {undecided} is asked for; a worker queues it within a minute"
    for _ in range(2):
        with pytest.raises(NotPossible, match="a replay is asked for already"):
            actions.replay(db_session, undecided, "eve")
    (asked,) = db_session.scalars(select(Action))
    assert (asked.who, asked.state, asked.wanted) == ("ada", "asked", {"run": undecided})
    assert read_reason(db_session, undecided) == f"{before}; a replay is asked for"
    actions.end_request(db_session, asked.id, refused=False, outcome="not sure enough")
    actions.replay(db_session, undecided, "eve")
    assert read_reason(db_session, undecided) == f"{before}; a replay is asked for", "and not twice"


def judge(opened: Session, run_id: int, verdict: str) -> None:
    opened.execute(update(Verdict).where(Verdict.run_id == run_id).values(verdict=verdict))


def suspect(opened: Session, run_id: int) -> None:
    commit_id = opened.get_one(Sweep, opened.get_one(Run, run_id).sweep_id).commit_id
    of = {"kernel": "gemm_fp8", "problem": "320x32576x7168", "gpu_model": "b200"}
    ends = {"good_commit_id": commit_id, "bad_commit_id": commit_id}
    suspicions.open_once(opened, run_id=run_id, **of, **ends, size=0.05, reason="+5.0%")  # type: ignore[arg-type]  # a test's short hand


def record(opened: Session, run_id: int) -> None:
    recording = Recording(sha256="f" * 64, file_name="r.jsonl.gz", machine="lab", recorded_at=NOON)
    opened.add(recording)
    opened.flush()
    opened.execute(update(Run).where(Run.id == run_id).values(origin="recorded", recording_id=recording.id))


def move_to_branch(opened: Session) -> None:
    name = name_of_branch("tilewatch", "topic")
    opened.execute(update(Commit).values(repository=name))
    opened.execute(update(Sweep).values(repository=name))


OBSTACLES: dict[str, Callable[[Session, int], object]] = {
    "it was recorded elsewhere, so its cubins are not here": record,
    "its verdict is unchanged": lambda opened, run_id: judge(opened, run_id, "unchanged"),
    "it is not judged yet": lambda opened, run_id: opened.execute(delete(Verdict).where(Verdict.run_id == run_id)),
    "a weighted total has no cubin; replay its parts": lambda opened, _: opened.execute(
        update(Sweep).values(kernel=TOTAL)
    ),
    "its night is still being judged": suspect,
    "no earlier commit of its series was measured here": lambda opened, run_id: opened.execute(
        delete(Run).where(Run.id != run_id)
    ),
    "no config gave a right answer, so it has no cubin": lambda opened, _: opened.execute(
        update(Compilation).values(status="timeout", content_key=None, code_sha256=None, failure="15 s")
    ),
    "no B200 has a worker now": lambda opened, _: opened.execute(update(Worker).values(seen_at=NOON)),
}


@pytest.mark.parametrize(("why_not", "bring_about"), OBSTACLES.items(), ids=OBSTACLES)
def test_where_no_replay_is_possible_a_sentence_says_why(
    db_session: Session, undecided: int, why_not: str, bring_about: Callable[[Session, int], object]
) -> None:
    bring_about(db_session, undecided)
    db_session.expire_all()
    with pytest.raises(NotPossible, match=f"^run {undecided} is not replayed: {why_not}$"):
        actions.replay(db_session, undecided, "ada")
    assert db_session.scalar(select(func.count(Action.id))) == 0


def test_a_run_of_a_branch_an_ill_gpu_and_a_run_that_is_not_there_are_refused(
    db_session: Session, undecided: int
) -> None:
    with pytest.raises(NotPossible, match="there is no run 4711"):
        actions.replay(db_session, 4711, "ada")
    db_session.add(Quarantine(gpu_uuid="GPU-1", host="node-a", gpu_model="b200", kind="ecc", reason="hot", evidence={}))
    db_session.flush()
    with pytest.raises(NotPossible, match="no B200 has a worker now"):
        actions.replay(db_session, undecided, "ada")
    move_to_branch(db_session)
    db_session.expire_all()
    with pytest.raises(NotPossible, match="a branch has no series of nights"):
        actions.replay(db_session, undecided, "ada")


@pytest.mark.parametrize(
    ("changed", "is_offered"),
    [
        ({}, True),
        ({"reason": None}, True),
        ({"reason": f"+5.0%{AWAITS_REPLAY}"}, False),
        ({"verdict": "unchanged"}, False),
        ({"verdict": None}, False),
        ({"origin": "recorded"}, False),
        ({"kernel": TOTAL}, False),
        ({"repository": name_of_branch("tilewatch", "topic")}, False),
        ({"verdict": "unchanged", "reason": f"+5.0%{AWAITS_REPLAY}"}, False),
    ],
    ids=str,
)
def test_pages_offer_a_replay_of_an_undecided_run_until_one_is_asked_for(
    db_session: Session, undecided: int, changed: dict[str, Any], is_offered: bool
) -> None:
    run = find_run(db_session, undecided)
    assert run is not None
    assert actions.is_replay_offered(replace(run, **changed)) == is_offered


RANGE = {"commits_in_range": 2, "bad_sha": "b" * 40, "recorded": False, "category": "code"}


@pytest.mark.parametrize(
    ("changed", "why_not"),
    [
        *(({"category": each}, None) for each in ("code", "search_space", "unknown")),
        *(({"commits_in_range": each}, "has one possible commit, bbbbbbbbbb: nothing to bisect") for each in (0, 1)),
        ({"recorded": True}, "was recorded elsewhere: there is no GPU here to bisect it on"),
        ({"category": "toolchain"}, "is of the toolchain and of no commit: nothing to bisect"),
        ({"category": "node"}, "is of the node and of no commit: nothing to bisect"),
    ],
)
def test_a_bisection_needs_several_commits_of_which_one_may_be_the_cause(
    changed: dict[str, Any], why_not: str | None
) -> None:
    assert actions.why_no_bisection({**RANGE, **changed}) == why_not


def test_a_bisection_is_asked_for_once_and_with_a_number_that_exists(db_session: Session) -> None:
    number, narrow = (open_regression.regress(db_session, commits=each, position=100 * each) for each in (3, 1))
    assert actions.bisect(db_session, number, "ada").id == number
    for which, why_not in ((number, "is being bisected"), (narrow, "has one possible commit")):
        with pytest.raises(NotPossible, match=f"^regression {which} {why_not}"):
            actions.bisect(db_session, which, "eve")
    with pytest.raises(NoSuchRegression, match="there is no regression 4711"):
        actions.bisect(db_session, 4711, "ada")
    (asked,) = db_session.scalars(select(Action))
    assert (asked.who, asked.action, asked.wanted) == ("ada", "bisect", {"regression": number})


def test_each_problem_of_a_regression_is_swept_again_on_all_of_its_gpu_models(db_session: Session) -> None:
    """A metric of an operator is no kernel of its own."""
    for problem in ("1x2x3", "4x5x6"):
        number = open_regression.regress(db_session, problem=problem, kernel="softmax span")
    series = db_session.scalars(select(RegressionSeries).where(RegressionSeries.problem == "4x5x6")).one()
    columns = {
        name: getattr(series, name) for name in ("regression_id", "kernel", "problem", "run_id", "size", "low", "high")
    }
    others = ("l40s", "h200", "gb300", "a100", "h100")
    for slug in others:
        fact_writes.add_gpu_model(db_session, slug=slug, name=slug, arch="sm_90", fp8_tflops=None, bandwidth_gbps=None)
        db_session.execute(insert(RegressionSeries).values(**columns, gpu_model=slug))
    assert actions.measure_again(db_session, number, "ada").id == number
    asked = db_session.scalars(select(Action.wanted).where(Action.who == "ada", Action.action == "sweep")).all()
    common = {"repository": "tilewatch", "kernel": "softmax", "commit": open_regression.BAD_SHA}
    assert sorted(asked, key=lambda each: each["problem"]) == [
        {**common, "problem": "1x2x3", "gpus": ["b200"]},
        {**common, "problem": "4x5x6", "gpus": sorted(["b200", *others])},
    ]


def test_requests_are_taken_one_by_one_the_oldest_first(db_session: Session) -> None:
    ids = [actions.ask(db_session, "ada", "sweep", {"kernel": each, "gpu": None}, key=each) for each in ("a", "b")]
    assert actions.ask(db_session, "eve", "sweep", {"kernel": "a"}, key="a") is None, "its key is known"
    db_session.execute(update(Action).where(Action.id == ids[0]).values(key="c"))  # stored after the second one
    first = actions.find_next_request(db_session)
    assert first is not None
    assert (first.id, first.who, first.wanted) == (ids[0], "ada", {"kernel": "a"}), "what is None is not asked for"
    second = actions.find_next_request(db_session, after=first.id)
    assert second is not None
    assert second.id == ids[1]
    actions.end_request(db_session, first.id, refused=True, outcome="no", learned={"run": 7})
    actions.end_request(db_session, first.id, refused=False, outcome="yes")
    ended = db_session.get_one(Action, first.id)
    assert (ended.state, ended.outcome, ended.wanted) == ("refused", "no", {"kernel": "a", "run": 7})
    assert actions.find_next_request(db_session) == second


def choose(job: int | None = None, submission: int | None = None) -> JobSelection:
    return JobSelection.of(job, submission)


def test_what_cannot_be_cancelled_or_tried_again_is_named(db_session: Session) -> None:
    queued, done = (one_commit.job(db_session, key=state, state=state) for state in ("queued", "done"))
    submission = one_commit.submit(db_session).submission_id
    for act, chosen, why in (
        (actions.cancel, choose(4711), "there is no job 4711; `tilewatch status` shows the numbers of jobs"),
        (actions.cancel, choose(done), f"job {done} has ended: it is done"),
        (actions.cancel, choose(submission=4711), "there is no submission 4711"),
        (actions.cancel, choose(submission=submission), f"submission {submission} has nothing left to cancel"),
        (actions.retry, choose(4711), "there is no job 4711"),
        (actions.retry, choose(queued), f"job {queued} is not one of .*: it is queued"),
        (actions.retry, choose(submission=submission), f"submission {submission} has no job that ended short"),
    ):
        with pytest.raises(NoSuchWork, match=f"^{why}"):
            act(db_session, chosen, "ada")
    for both in ((None, None), (queued, submission)):
        with pytest.raises(NoSuchWork, match="name either one job or one submission"):
            choose(*both)
    assert db_session.scalar(select(func.count(Action.id))) == 0
    assert actions.cancel(db_session, choose(queued), "ada") == f"cancelled job {queued}"
    assert actions.retry(db_session, choose(queued), "eve") == f"queued job {queued} again"
    told = db_session.execute(select(Action.who, Action.action, Action.state, Action.wanted).order_by(Action.id)).all()
    assert [tuple(each) for each in told] == [
        ("ada", "cancel", "done", {"job": queued}),
        ("eve", "retry", "done", {"job": queued}),
    ]


def test_jobs_of_a_submission_are_counted_in_the_answer(db_session: Session) -> None:
    submission = one_commit.submit(db_session).submission_id
    ids = [one_commit.job(db_session, key, kind="compile") for key in ("a", "b")]
    db_session.execute(update(Job).where(Job.id.in_(ids)).values(submission_id=submission))
    assert actions.cancel(db_session, choose(submission=submission), "ada") == "cancelled 2 jobs"
    assert actions.retry(db_session, choose(submission=submission), "ada") == "queued 2 jobs again"


@pytest.mark.parametrize(("compiling", "state"), [("done", "queued"), ("queued", "waiting")])
def test_a_measurement_that_is_tried_again_waits_only_for_code_that_is_not_compiled(
    db_session: Session, compiling: str, state: str
) -> None:
    planned = one_commit.submit(db_session)
    one_commit.job(db_session, "compile 1", compiling, kind="compile")
    job_id = one_commit.job(db_session, state="cancelled")
    of = {"submission_id": planned.submission_id, "sweep_id": planned.sweep_id, "payload": {"kernel": "gemm_fp8"}}
    db_session.execute(update(Job).values(**of))
    assert actions.retry(db_session, choose(job_id), "ada") == f"queued job {job_id} again"
    assert db_session.scalar(select(Job.state).where(Job.id == job_id)) == state


def test_a_bisection_of_one_regression_does_not_keep_another_one_from_being_bisected(db_session: Session) -> None:
    first, second = (open_regression.regress(db_session, kernel=each, commits=3) for each in ("gemm", "norm"))
    assert [actions.bisect(db_session, each, "ada").id for each in (first, second)] == [first, second]


def test_of_two_workers_at_once_each_gets_a_request_of_its_own(db_session: Session, database_url: str) -> None:
    ids = [actions.ask(db_session, "ada", "sweep", {"kernel": each}) for each in ("a", "b")]
    db_session.commit()
    with session(database_url) as other:
        other.execute(text("set lock_timeout = '5 s'"))  # fails the test if one waits for the other
        found = [actions.find_next_request(opened) for opened in (db_session, other)]
    assert [each and each.id for each in found] == ids
