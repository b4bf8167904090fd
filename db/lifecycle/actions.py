"""Carries out requests of people and programs, or stores them for a worker. A worker makes submissions, because they
need a clone of the repository."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import cast, exists, func, insert, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs, suspicions
from tilewatch.db.lifecycle.regressions import NoSuchRegression, NotPossible
from tilewatch.db.lifecycle.suspicions import AWAITS_REPLAY
from tilewatch.db.models import ENDED_SHORT, OPEN_JOB, TOTAL, Action, Job, Submission, Verdict
from tilewatch.db.page_reads import regressions as regression_queries
from tilewatch.db.page_reads.evidence import RunRow, find_run
from tilewatch.db.page_reads.regressions import RegressionRow
from tilewatch.db.repository_names import is_branch
from tilewatch.db.worker_reads import gpus, judging, steps, winners
from tilewatch.errors import ExpectedError
from tilewatch.metrics import split_kernel
from tilewatch.text import short_sha

BY_A_COMMIT = ("code", "search_space", "unknown")
"""The categories of a regression whose cause may be a commit of the watched repository."""


class NoSuchWork(ExpectedError):
    """Raised if a job or submission does not exist, or if its state does not allow the action."""


@dataclass(frozen=True)
class JobSelection:
    """The jobs that a person selected: one job, or all jobs of a submission."""

    job_id: int | None
    submission_id: int | None

    @classmethod
    def of(cls, job_id: int | None, submission_id: int | None) -> Self:
        if (job_id is None) == (submission_id is None):
            raise NoSuchWork("name either one job or one submission; `tilewatch status` shows their numbers")
        return cls(job_id, submission_id)

    def named(self) -> dict[str, int]:
        return {"job": self.job_id} if self.job_id is not None else {"submission": self.submission_id or 0}


@dataclass(frozen=True)
class RequestedAction:
    """A stored request for a worker. `wanted` has its arguments."""

    id: int
    who: str
    action: str
    wanted: Mapping[str, Any]
    asked_at: dt.datetime


def cancel(session: Session, chosen: JobSelection, who: str) -> str:
    """Cancels open jobs and returns a message like "cancelled job 7". Raises NoSuchWork if no selected job is open."""
    ended = jobs.cancel(session, _list_chosen(session, chosen, OPEN_JOB))
    if not ended:
        raise NoSuchWork(_nothing(session, chosen, "has ended", "nothing left to cancel"))
    return write_action(session, who, "cancel", chosen.named(), f"cancelled {_counted(ended)}")


def retry(session: Session, chosen: JobSelection, who: str) -> str:
    """Queues selected jobs again and returns a message. Raises NoSuchWork if none of them failed or was cancelled."""
    ended = select(Job.check_id).where(Job.id == chosen.job_id, Job.state.in_(ENDED_SHORT))
    if (check_id := session.scalar(ended)) is not None:
        raise NoSuchWork(f"job {chosen.job_id} is of check {check_id}, which ends with it: submit the check again")
    again = jobs.retry(session, _list_chosen(session, chosen, ENDED_SHORT))
    if not again:
        raise NoSuchWork(
            _nothing(session, chosen, f"is not one of {', '.join(ENDED_SHORT)}", "no job that ended short")
        )
    jobs.release(session, steps.list_ready_to_measure(session, chosen.submission_id))
    return write_action(session, who, "retry", chosen.named(), f"queued {_counted(again)} again")


def ask(session: Session, who: str, action: str, wanted: Mapping[str, Any], key: str | None = None) -> int | None:
    """Stores a request for an action and returns its id; None if an earlier action has the same key."""
    given = {name: value for name, value in wanted.items() if value is not None}
    asked = postgresql.insert(Action).values(who=who, action=action, wanted=given, state="asked", key=key)
    once = asked.on_conflict_do_nothing(index_elements=[Action.key]).returning(Action.id)
    return session.execute(once).scalar_one_or_none()


def measure_again(session: Session, regression_id: int, who: str) -> RegressionRow:
    """Requests new sweeps at a regression's bad commit, for each kernel and problem. Returns the regression."""
    row = _regression(session, regression_id)
    gpus: dict[tuple[str, str], set[str]] = {}
    for series in regression_queries.list_series(session, regression_id):
        # A sweep of an operator measures its time and its spans, so one sweep serves these series.
        gpus.setdefault((split_kernel(series.kernel)[0], series.problem), set()).add(series.gpu_model)
    for (kernel, problem), models in gpus.items():
        about = {"repository": row.repository, "kernel": kernel, "problem": problem, "commit": row.bad_sha}
        ask(session, who, "sweep", {**about, "gpus": sorted(models)})
    return row


def bisect(session: Session, regression_id: int, who: str) -> RegressionRow:
    """Requests replays that narrow a regression's range of commits. Raises NotPossible if this is impossible now."""
    row = _regression(session, regression_id)
    if (why_not := why_no_bisection(vars(row))) is not None:
        raise NotPossible(f"regression {regression_id} {why_not}")
    wanted = {"regression": regression_id}
    if _is_asked(session, wanted):
        raise NotPossible(f"regression {regression_id} is being bisected")
    ask(session, who, "bisect", wanted)
    return row


def why_no_bisection(row: Mapping[Any, Any]) -> str | None:
    """Returns why a regression can never be bisected; None if it can. `row` has the fields of RegressionRow."""
    if row["commits_in_range"] <= 1:
        return f"has one possible commit, {short_sha(row['bad_sha'])}: nothing to bisect"
    if row["recorded"]:
        return "was recorded elsewhere: there is no GPU here to bisect it on"
    if row["category"] not in BY_A_COMMIT:
        return f"is of the {row['category']} and of no commit: nothing to bisect"
    return None


def replay(session: Session, run_id: int, who: str) -> str:
    """Requests a replay of an undecided run and returns a message. Raises NotPossible if the run cannot be replayed."""
    # With the lock, two clicks make one replay.
    suspicions.lock_run(session, run_id)
    run = find_run(session, run_id)
    if run is None:
        raise NotPossible(f"there is no run {run_id}; the Series page shows the number of a run")
    why_not = _why_not_replayed(session, run)
    if why_not is not None:
        raise NotPossible(f"run {run_id} is not replayed: {why_not}")
    reason = (run.reason or "").removesuffix(AWAITS_REPLAY)
    session.execute(update(Verdict).where(Verdict.run_id == run_id).values(reason=f"{reason}{AWAITS_REPLAY}"))
    ask(session, who, "bisect", {"run": run_id})
    return f"a replay of run {run_id} is asked for; a worker queues it within a minute"


def is_replay_offered(run: RunRow) -> bool:
    """Returns whether pages offer a replay of a run."""
    return _why_never_replayed(run) is None and not (run.reason or "").endswith(AWAITS_REPLAY)


def find_next_request(session: Session, after: int = 0) -> RequestedAction | None:
    """Returns and locks the oldest open request with an id over `after`; None if there is none."""
    query = (
        select(Action.id, Action.who, Action.action, Action.wanted, Action.asked_at)
        .where(Action.state == "asked", Action.id > after)
        .order_by(Action.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    row = session.execute(query).one_or_none()
    return None if row is None else RequestedAction(**row._mapping)


def end_request(
    session: Session, action_id: int, *, refused: bool, outcome: str, learned: Mapping[str, Any] | None = None
) -> None:
    """Ends a request with an outcome, and adds `learned` to the request's arguments."""
    columns = {"state": "refused" if refused else "done", "outcome": outcome, "ended_at": func.now()}
    wanted = Action.wanted.concat(cast(dict(learned or {}), JSONB))
    ended = update(Action).where(Action.id == action_id, Action.state == "asked").values(**columns, wanted=wanted)
    run_id = session.scalar(ended.returning(Action.wanted["run"].as_integer()))
    if run_id is not None:
        suspicions.await_no_replay(session, [run_id])


def write_action(session: Session, who: str, action: str, wanted: Mapping[str, Any], outcome: str) -> str:
    """Stores an action that is done already, and returns its outcome."""
    session.execute(
        insert(Action).values(
            who=who, action=action, wanted=dict(wanted), state="done", outcome=outcome, ended_at=func.now()
        )
    )
    return outcome


def _is_asked(session: Session, wanted: Mapping[str, int]) -> bool:
    return bool(session.scalar(select(exists().where(Action.state == "asked", Action.wanted.contains(wanted)))))


def _why_not_replayed(session: Session, run: RunRow) -> str | None:
    """Returns why a run cannot or need not be replayed; None if it can."""
    if (why_not := _why_never_replayed(run)) is not None:
        return why_not
    scope = judging.read_scope(session, run.run_id)
    if _is_asked(session, {"run": run.run_id}):
        return "a replay is asked for already"
    if not judging.is_settled(session, scope):
        return "its night is still being judged"
    measured = winners.read_measured_commits(session, scope, run.kernel, run.problem)
    if min(measured) == scope.position:
        return "no earlier commit of its series was measured here"
    if not winners.read_winners_of_runs(session, [run.run_id]):
        return "no config gave a right answer, so it has no cubin"
    if not gpus.list_available_gpus(session, run.gpu_model):
        return f"no {run.gpu_name} has a worker now"
    return None


def _why_never_replayed(run: RunRow) -> str | None:
    if run.verdict != "undecided":
        return f"its verdict is {run.verdict}" if run.verdict else "it is not judged yet"
    if run.origin == "recorded":
        return "it was recorded elsewhere, so its cubins are not here"
    if run.kernel == TOTAL:
        return "a weighted total has no cubin; replay its parts"
    return "a branch has no series of nights" if is_branch(run.repository) else None


def _regression(session: Session, regression_id: int) -> RegressionRow:
    row = regression_queries.find_regression(session, regression_id)
    if row is None:
        raise NoSuchRegression(
            f"there is no regression {regression_id}; `tilewatch regressions list` shows their numbers"
        )
    return row


def _list_chosen(session: Session, chosen: JobSelection, states: Sequence[str]) -> list[int]:
    if chosen.submission_id is not None:
        return steps.list_jobs_in(session, chosen.submission_id, states)
    assert chosen.job_id is not None
    if steps.find_job_state(session, chosen.job_id) is None:
        raise NoSuchWork(f"there is no job {chosen.job_id}; `tilewatch status` shows the numbers of jobs")
    return [chosen.job_id]


def _nothing(session: Session, chosen: JobSelection, wrong: str, none_left: str) -> str:
    if chosen.job_id is not None:
        return f"job {chosen.job_id} {wrong}: it is {steps.find_job_state(session, chosen.job_id)}"
    assert chosen.submission_id is not None
    if session.get(Submission, chosen.submission_id) is None:
        return f"there is no submission {chosen.submission_id}; `tilewatch status` shows their numbers"
    return f"submission {chosen.submission_id} has {none_left}"


def _counted(job_ids: list[int]) -> str:
    return f"job {job_ids[0]}" if len(job_ids) == 1 else f"{len(job_ids)} jobs"
