"""What a person does with regressions from a terminal, as the page does: look, take, judge, close. Needs no GPU stack.

Every change is one of db/regressions.py's, with the name of who made it. Draws nothing (worker/triage_shown.py does).
"""

import getpass
from collections.abc import Callable

from sqlalchemy.orm import Session

from db import messages, queries, regressions
from db.queries import RegressionRow, RegressionStory
from db.regressions import NoSuchRegression
from db.session import session


class NoName(Exception):
    """Nobody can be told who made a change; the message is a sentence."""


def whoever(named: str | None) -> str:
    """The name that a change is on record with: as given, else of the account that runs the command."""
    try:
        who = (named if named is not None else getpass.getuser()).strip()
    except (KeyError, OSError):  # an account without a name, as in some containers
        who = ""
    if not who or who == regressions.ITSELF:
        raise NoName("say who you are with --who NAME: every change is on record with a name")
    return who


def found(
    database_url: str, *, states: tuple[str, ...] | None, kernel: str | None, direction: str
) -> list[RegressionRow]:
    with session(database_url) as opened:
        known = queries.regressions(opened)
    return [
        row
        for row in known
        if row.direction == direction
        and (states is None or row.state in states)
        and (kernel is None or row.kernel == kernel)
    ]


def story(database_url: str, regression_id: int) -> RegressionStory:
    with session(database_url) as opened:
        return _story(opened, regression_id)


def change(database_url: str, regression_id: int, act: Callable[[Session], None]) -> RegressionStory:
    """Make one change; how the regression stands after it."""
    with session(database_url) as opened:
        act(opened)
        return _story(opened, regression_id)


def mark_run(database_url: str, run_id: int, who: str, *, right: bool, note: str | None) -> None:
    with session(database_url) as opened:
        if queries.run(opened, run_id) is None:
            raise NoSuchRegression(f"there is no run {run_id}; the evidence page of a point shows its number")
        regressions.mark(opened, who, right=right, run_id=run_id, note=note)


def send_again(database_url: str, message_ids: list[int]) -> list[int]:
    with session(database_url) as opened:
        return messages.again(opened, message_ids)


def _story(opened: Session, regression_id: int) -> RegressionStory:
    known = queries.story(opened, regression_id)
    if known is None:
        raise NoSuchRegression(
            f"there is no regression {regression_id}; `tilewatch regressions list` shows their numbers"
        )
    return known
