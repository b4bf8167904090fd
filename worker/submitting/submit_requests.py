"""Submits what somebody asks for, by the command line, the dashboard or a token, and writes down who it was.

What is only asked for (the dashboard and a forge do that) is carried out by beat's tick, on a machine that has the
watched repositories. It may be tried twice: the second try finds the submission of the first.
"""

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
from tilewatch.worker.submitting.submit_check import SubmittedChecks, submit_check
from tilewatch.worker.submitting.submit_toolchains import ToolchainsAsked, submit_toolchains

AWAY = (BrokerUnreachable, DatabaseUnreachable, OperationalError)
"""Trouble that passes: the action stays requested, and the next tick tries it again."""

FETCHED_WITHIN = dt.timedelta(minutes=15)
"""How long a check waits for its commit: a forge reports a commit before the watched clone is fetched again."""


@dataclass(frozen=True)
class CheckAsked:
    """The comparison of two revisions that a person or a token asks for. A `fail_over` of 0.02 is 2 %."""

    base: str
    head: str
    kernel: str | None = None
    gpus: tuple[str, ...] = ()
    fail_over: float = 0.0
    repository: str | None = None


@dataclass(frozen=True)
class _Outcome:
    """The end of an asked action. `learned` is added to what was wanted."""

    refused: bool
    sentence: str
    learned: Mapping[str, Any]


def submit_for(settings: Settings, who: str, action: str, wanted: Mapping[str, Any]) -> Iterator[Submitted]:
    """Submits now what a person asks for, and writes down that they did."""
    sentences = []
    for submitted in submissions(settings, action, wanted):
        sentences.append(submitted.sentence)
        yield submitted
    with session(settings.connection().database_url) as opened:
        actions.write_action(opened, who, action, wanted, "\n".join(sentences))


def submit_check_for(settings: Settings, holder: Holder, asked: CheckAsked) -> SubmittedChecks:
    """Submits a check in the name of a token, and writes it down. Raises BudgetSpent and what `submit_check` raises."""
    with session(settings.connection().database_url) as opened:
        submitted = _within_budget(opened, settings, holder, asked)
        _write_check(opened, holder.who, asked, submitted)
    return submitted


def submit_check_by(settings: Settings, who: str, asked: CheckAsked) -> SubmittedChecks:
    """Submits a check for a person, and writes it down. Raises what `submit_check` raises."""
    submitted = _submit_check(settings, who, asked)
    with session(settings.connection().database_url) as opened:
        _write_check(opened, who, asked, submitted)
    return submitted


def carry_out(settings: Settings) -> list[str]:
    """Carries out every requested action, one after the other; returns a sentence for each that ended. Two processes
    that do this at once share the actions."""
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
            settings, kernel, problem, repository=repository, commit=wanted["commit"], gpus=gpus, once=once
        )
    else:
        yield from submit_backfill(settings, wanted["revisions"], repository=repository, gpus=gpus)


def _submit(opened: Session, settings: Settings, asked: RequestedAction) -> _Outcome | None:
    """Returns None for what the next tick goes on with: a check whose commit is not there yet, a bisection that waits
    for a replay. A bug is a refusal too: it would come back with every tick."""
    try:
        with opened.begin_nested():  # what it raised may have been Postgres's, and its outcome is still to be written
            return _carry_out(opened, settings, asked)
    except AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of an action: what it raised is its outcome
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
    """Submits the check that a forge asked for: what its branch changed since it left the other one."""
    name = asked.wanted["token"]
    holder = tokens.find_holder_by_name(opened, name)
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
    return _submit_check(settings, holder.who, asked)


def _submit_check(settings: Settings, who: str, asked: CheckAsked) -> SubmittedChecks:
    return submit_check(
        settings,
        asked.base,
        asked.head,
        who=who,
        repository=asked.repository,
        kernel=asked.kernel,
        gpus=asked.gpus,
        fail_over=asked.fail_over,
    )


def _write_check(opened: Session, who: str, asked: CheckAsked, submitted: SubmittedChecks) -> None:
    actions.write_action(opened, who, "check", {**vars(asked), **_new_checks(submitted)}, submitted.sentence)


def _new_checks(submitted: SubmittedChecks) -> dict[str, Any]:
    """Returns the checks whose cost is the token's: not those that somebody submitted before."""
    return {"checks": list(submitted.check_ids)} if submitted.created else {}


def _bisect(opened: Session, settings: Settings, asked: RequestedAction) -> _Outcome | None:
    from tilewatch.worker.judging import bisection  # numpy and the judge: only a tick with a bisection needs them

    found = bisection.carry_on(opened, Context.of(settings), int(asked.wanted["regression"]), asked.who)
    return None if found is None else _Outcome(False, found, {})
