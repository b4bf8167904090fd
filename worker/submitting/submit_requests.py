"""Submits the requests of people and programs. Stored requests of the dashboard are carried out each minute."""

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tilewatch import errors
from tilewatch.db.lifecycle import actions, tokens
from tilewatch.db.lifecycle.actions import RequestedAction
from tilewatch.db.lifecycle.tokens import Holder, TokenInUse
from tilewatch.db.session import DatabaseUnreachable, session
from tilewatch.worker.comparing.check import BUDGET_S
from tilewatch.worker.context import Context
from tilewatch.worker.git import commits as git_reads
from tilewatch.worker.git import watched
from tilewatch.worker.git.commits import RepositoryError
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import Submitted, submit_backfill, submit_nightly, submit_sweep
from tilewatch.worker.submitting.submit_check import CheckAsked, SubmittedChecks, submit_check
from tilewatch.worker.submitting.submit_toolchains import ToolchainsAsked, submit_toolchains

AWAY = (BrokerUnreachable, DatabaseUnreachable, OperationalError)
"""The errors that pass by themselves. The request stays open, and is tried again within a minute."""

FETCHED_WITHIN = dt.timedelta(minutes=15)
"""The time for which a check waits for its commit, because a forge may report a commit before it can be fetched."""


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a request. `learned` contains fields to store with the request."""

    refused: bool
    sentence: str
    learned: Mapping[str, Any]


def submit_for(settings: Settings, who: str, action: str, wanted: Mapping[str, Any]) -> Iterator[Submitted]:
    """Submits a person's request at once, stores who made it, and yields each submission."""
    sentences = []
    for submitted in submissions(settings, action, wanted):
        sentences.append(submitted.sentence)
        yield submitted
    with session(settings.connection().database_url) as opened:
        actions.write_action(opened, who, action, wanted, "\n".join(sentences))


def submit_check_for(settings: Settings, holder: Holder, asked: CheckAsked) -> SubmittedChecks:
    """Submits a check for a token's holder. Raises BudgetSpent if the token's budget is spent."""
    with session(settings.connection().database_url) as opened:
        submitted = _within_budget(opened, settings, holder, asked)
        _write_check(opened, holder.who, asked, submitted)
    return submitted


def submit_check_by(settings: Settings, who: str, asked: CheckAsked) -> SubmittedChecks:
    """Submits a check for a person, and stores who requested it."""
    submitted = submit_check(settings, who, asked)
    with session(settings.connection().database_url) as opened:
        _write_check(opened, who, asked, submitted)
    return submitted


def carry_out(settings: Settings) -> list[str]:
    """Carries out the open requests and returns a sentence for each. Two processes may do this at once."""
    sentences: list[str] = []
    last = 0
    while True:
        with session(settings.connection().database_url) as opened:
            asked = actions.find_next_request(opened, last)
            if asked is None:
                return sentences
            last = asked.id
            outcome = _submit(opened, settings, asked)
            if outcome is None:
                continue
            actions.end_request(
                opened, asked.id, refused=outcome.refused, outcome=outcome.sentence, learned=outcome.learned
            )
        sentences.append(f"{asked.who} asked for action {asked.id} ({asked.action}): {outcome.sentence}")


def submissions(
    settings: Settings, action: str, wanted: Mapping[str, Any], once: str | None = None
) -> Iterator[Submitted]:
    gpus, repository = tuple(wanted["gpus"]), wanted.get("repository")
    if action == "nightly":
        yield submit_nightly(
            settings, repository=repository, commit=wanted["commit"], gpus=gpus, toolchain=wanted.get("toolchain")
        )
    elif action == "sweep":
        kernel, problem = wanted["kernel"], wanted["problem"]
        yield submit_sweep(
            settings,
            kernel,
            problem,
            repository=repository,
            commit=wanted["commit"],
            gpus=gpus,
            once=once,
            wide=wanted.get("wide", False),
        )
    else:
        yield from submit_backfill(settings, wanted["revisions"], repository=repository, gpus=gpus)


def _submit(opened: Session, settings: Settings, asked: RequestedAction) -> _Outcome | None:
    """Carries out a request and returns its outcome; None if it must wait."""
    try:
        with opened.begin_nested():  # what it raised may have been Postgres's, and its outcome is still to be written
            return _carry_out(opened, settings, asked)
    except AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - any error is the outcome of the request
        return _Outcome(True, errors.sentence(error) or f"{type(error).__name__}: {error}", {})


def _carry_out(opened: Session, settings: Settings, asked: RequestedAction) -> _Outcome | None:
    if asked.action == "check":
        return _submit_asked_check(opened, settings, asked)
    if asked.action == "toolchains":
        wanted = {**asked.wanted, "gpus": tuple(asked.wanted["gpus"])}
        return _Outcome(False, submit_toolchains(settings, ToolchainsAsked(**wanted)).sentence, {})
    if asked.action == "bisect":
        return _bisect(opened, settings, asked)
    submitted = submissions(settings, asked.action, asked.wanted, once=f"action {asked.id}")
    return _Outcome(False, "\n".join(each.sentence for each in submitted), {})


def _submit_asked_check(opened: Session, settings: Settings, asked: RequestedAction) -> _Outcome | None:
    """Submits a check that a forge requested for a branch; None if it must wait."""
    name = asked.wanted["token"]
    holder = tokens.find_holder(opened, name=name)
    if holder is None or "check" not in holder.rights:
        return _Outcome(True, f"there is no token {name} that may check (docs/reference/api.md)", {})
    try:
        source = watched.choose(opened, settings, asked.wanted.get("repository"))
        watched.fetch(source)
        head = watched.resolve(source, asked.wanted["head"]).sha
        base = git_reads.find_merge_base(source.folder, asked.wanted["base"], head)
    except RepositoryError as error:
        waited = dt.datetime.now(dt.UTC) - asked.asked_at
        return None if waited < FETCHED_WITHIN else _Outcome(True, str(error), {})
    try:
        submitted = _within_budget(opened, settings, holder, CheckAsked(base, head, repository=source.name))
    except TokenInUse:
        return None
    return _Outcome(False, submitted.sentence, _new_checks(submitted))


def _within_budget(opened: Session, settings: Settings, holder: Holder, asked: CheckAsked) -> SubmittedChecks:
    tokens.require_budget(opened, holder, BUDGET_S)
    return submit_check(settings, holder.who, asked)


def _write_check(opened: Session, who: str, asked: CheckAsked, submitted: SubmittedChecks) -> None:
    actions.write_action(opened, who, "check", {**vars(asked), **_new_checks(submitted)}, submitted.sentence)


def _new_checks(submitted: SubmittedChecks) -> dict[str, Any]:
    """Returns the ids of new checks, which count against a token's budget."""
    return {"checks": list(submitted.new_check_ids)} if submitted.created else {}


def _bisect(opened: Session, settings: Settings, asked: RequestedAction) -> _Outcome | None:
    """Takes the next step of a bisection or a requested replay. Returns the outcome after the last step, else None."""
    # Imported here, as only replays need NumPy and the judge.
    from tilewatch.worker.judging import bisection, requested_replay

    context = Context.of(settings)
    if "run" in asked.wanted:
        found = requested_replay.carry_on(opened, context, asked)
    else:
        found = bisection.carry_on(opened, context, int(asked.wanted["regression"]), asked.who)
    return None if found is None else _Outcome(False, found, {})
