"""Submits what a person asks for, from the command line or by an action of the dashboard, and writes down who it was.

An action of the dashboard is carried out by beat's tick, on a machine that has the watched repository. It may be tried
twice: the second try finds the submission of the first.
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
"""Trouble that passes: the action stays requested, and the next tick tries it again."""


def submit_for(settings: Settings, who: str, action: str, wanted: Mapping[str, Any]) -> Iterator[Submitted]:
    """Submits now what a person asks for, and writes down that they did."""
    sentences = []
    for submitted in submissions(settings, action, wanted):
        sentences.append(submitted.sentence)
        yield submitted
    with session(settings.connection().database_url) as opened:
        actions.write_action(opened, who, action, wanted, "\n".join(sentences))


def carry_out(settings: Settings) -> list[str]:
    """Carries out every requested action, one after the other; returns a sentence for each. Two processes that do this
    at once share the actions."""
    sentences = []
    while (sentence := _carry_out_one(settings)) is not None:
        sentences.append(sentence)
    return sentences


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
        refused, sentence = _submit(settings, asked)
        actions.end_request(opened, asked.id, refused=refused, outcome=sentence)
    return f"{asked.who} asked for action {asked.id} ({asked.action}): {sentence}"


def _submit(settings: Settings, asked: RequestedAction) -> tuple[bool, str]:
    """Returns whether the action was refused, and a sentence. A bug is a refusal too: it would come back with every
    tick."""
    try:
        submitted = submissions(settings, asked.action, asked.wanted, once=f"action {asked.id}")
        return False, "\n".join(each.sentence for each in submitted)
    except AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of an action: what it raised is its outcome
        return True, errors.sentence(error) or f"{type(error).__name__}: {error}"
