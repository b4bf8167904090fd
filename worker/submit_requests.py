"""Submissions that a person asks for, from the command line or by an action of the dashboard, with who it was.

An asked action is carried out by the tick of the clock, on a machine that has the watched repository. It may be tried
twice: a crash after submitting finds the submission of the first try.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.exc import OperationalError

from tilewatch import errors
from tilewatch.db.lifecycle import actions
from tilewatch.db.lifecycle.actions import RequestedAction
from tilewatch.db.session import DatabaseUnreachable, session
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps.submit import Submitted, submit_backfill, submit_nightly, submit_sweep

AWAY = (BrokerUnreachable, DatabaseUnreachable, OperationalError)
"""Not the asker's mistake: the action stays asked, and the next tick tries it again."""


def submit_for(settings: Settings, who: str, action: str, wanted: Mapping[str, Any]) -> Iterator[Submitted]:
    """Submit now what a person asks for, and write down that they did."""
    said = []
    for submitted in submissions(settings, action, wanted):
        said.append(submitted.sentence)
        yield submitted
    with session(settings.connection().database_url) as opened:
        actions.write_action(opened, who, action, wanted, "\n".join(said))


def carry_out(settings: Settings) -> list[str]:
    """Every asked action, one after the other; what came of each. Two that do this at once share them."""
    said = []
    while (sentence := _carry_out_one(settings)) is not None:
        said.append(sentence)
    return said


def submissions(
    settings: Settings, action: str, wanted: Mapping[str, Any], once: str | None = None
) -> Iterator[Submitted]:
    gpus = tuple(wanted["gpus"])
    if action == "nightly":
        yield submit_nightly(settings, commit=wanted["commit"], gpus=gpus)
    elif action == "sweep":
        kernel, problem = wanted["kernel"], wanted["problem"]
        yield submit_sweep(settings, kernel, problem, commit=wanted["commit"], gpus=gpus, once=once)
    else:
        yield from submit_backfill(settings, wanted["revisions"], gpus=gpus)


def _carry_out_one(settings: Settings) -> str | None:
    with session(settings.connection().database_url) as opened:
        asked = actions.find_next_request(opened)
        if asked is None:
            return None
        refused, said = _answer(settings, asked)
        actions.end_request(opened, asked.id, refused=refused, outcome=said)
    return f"{asked.who} asked for action {asked.id} ({asked.action}): {said}"


def _answer(settings: Settings, asked: RequestedAction) -> tuple[bool, str]:
    """Whether it was refused, and the sentence. A bug is a refusal too: it would come back with every tick."""
    try:
        told = submissions(settings, asked.action, asked.wanted, once=f"action {asked.id}")
        return False, "\n".join(submitted.sentence for submitted in told)
    except AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of an action: what it raised is its answer
        return True, errors.sentence(error) or f"{type(error).__name__}: {error}"
