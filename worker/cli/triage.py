"""What a person does with regressions from a terminal, as the page does: look, take, judge, close. Needs no GPU stack.

Every change is one of db/lifecycle/regressions.py's, with the name of who made it. Draws nothing (worker/cli/tables.py
does).
"""

import getpass
from collections.abc import Callable

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import actions, messages, regressions
from tilewatch.db.lifecycle.regressions import NoSuchRegression, NotPossible
from tilewatch.db.queries import evidence
from tilewatch.db.queries import messages as message_queries
from tilewatch.db.queries import regressions as regression_queries
from tilewatch.db.queries.messages import RegressionStory
from tilewatch.db.queries.regressions import RegressionRow
from tilewatch.db.session import session
from tilewatch.errors import ExpectedError
from tilewatch.text import short_sha


class NoName(ExpectedError):
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
        known = regression_queries.regressions(opened)
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


def measure_again(database_url: str, regression_id: int, who: str) -> str:
    """Ask for its series once more at its bad commit; a worker queues them within a minute."""
    with session(database_url) as opened:
        known = _story(opened, regression_id)
        gpus: dict[tuple[str, str], set[str]] = {}
        for one in known.series:
            gpus.setdefault((one.kernel, one.problem), set()).add(one.gpu_model)
        for (kernel, problem), models in sorted(gpus.items()):
            actions.ask_sweep(opened, who, kernel, problem, commit=known.regression.bad_sha, gpus=sorted(models))
    return f"asked for {_sweeps(len(known.series))} of {short_sha(known.regression.bad_sha)}"


def bisect(database_url: str, regression_id: int, who: str) -> str:
    """Ask for every commit of its range; the nights of those narrow it down."""
    with session(database_url) as opened:
        row = _story(opened, regression_id).regression
        if row.commits_in_range <= 1:
            raise NotPossible(
                f"regression {regression_id} is of one commit, {short_sha(row.bad_sha)}: nothing is between"
            )
        actions.ask_backfill(opened, who, f"{row.good_sha}..{row.bad_sha}", gpus=sorted(row.gpu_models))
    return f"asked for {row.commits_in_range} commits after {short_sha(row.good_sha)}"


def mark_run(database_url: str, run_id: int, who: str, *, right: bool, note: str | None) -> None:
    with session(database_url) as opened:
        if evidence.run(opened, run_id) is None:
            raise NoSuchRegression(f"there is no run {run_id}; the evidence page of a point shows its number")
        regressions.mark(opened, who, right=right, run_id=run_id, note=note)


def send_again(database_url: str, message_ids: list[int]) -> list[int]:
    with session(database_url) as opened:
        return messages.again(opened, message_ids)


def _sweeps(count: int) -> str:
    return "1 sweep" if count == 1 else f"{count} sweeps"


def _story(opened: Session, regression_id: int) -> RegressionStory:
    known = message_queries.story(opened, regression_id)
    if known is None:
        raise NoSuchRegression(
            f"there is no regression {regression_id}; `tilewatch regressions list` shows their numbers"
        )
    return known
