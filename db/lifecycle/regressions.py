"""Changes regressions, and stores each change as an event with its author and time."""

import re
from collections.abc import Mapping
from typing import Literal

from sqlalchemy import func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.models import Mark, Regression, RegressionEvent
from tilewatch.errors import ExpectedError
from tilewatch.text import without_controls

ITSELF = "tilewatch"
"""The author of events whose change Tilewatch itself made."""

TRANSITIONS: Mapping[str, Mapping[str, str]] = {
    "acknowledge": {"new": "acknowledged", "reopened": "acknowledged"},
    "expect": {"new": "expected", "acknowledged": "expected", "reopened": "expected"},
    "resolve": {"new": "resolved", "acknowledged": "resolved", "reopened": "resolved"},
    "reopen": {"resolved": "reopened", "expected": "reopened"},
}
"""Maps each action to the states in which it is possible, and each of these to the state that follows."""

Field = Literal["owner", "note", "link"]

WEB_ADDRESS = re.compile(r"https?://[^\s/?#]\S*", re.IGNORECASE)
"""The pattern of a web address. Other links are refused, because browsers would run the code of `javascript:` links."""


class NoSuchRegression(ExpectedError, LookupError):
    """Raised if there is no regression with the given number."""


class NotPossible(ExpectedError, ValueError):
    """Raised if a regression's state forbids a change, or if a value cannot be stored."""


def triage(session: Session, regression_id: int, action: str, who: str, note: str | None = None) -> None:
    """Applies an action, such as "acknowledge", to a regression's state. TRANSITIONS lists the actions."""
    regression = lock(session, regression_id)
    change_state(session, regression, action, who, note)
    if action == "acknowledge" and regression.owner is None:
        regression.owner = who


def edit(session: Session, regression_id: int, who: str, field: Field, text: str | None) -> None:
    """Sets the owner, note or link of a regression. Raises NotPossible for a link that is not a web address."""
    given = _given(text)
    if field == "link" and given is not None and not WEB_ADDRESS.fullmatch(given):
        raise NotPossible(f"'{given}' is not stored as a link: expected an address like https://example.org/issues/12")
    regression = lock(session, regression_id)
    setattr(regression, field, given)
    action = "assign" if field == "owner" else field
    add_remark(session, regression, who, action, given or ("nobody" if field == "owner" else None))


def narrow(session: Session, regression_id: int, who: str, good_commit_id: int, bad_commit_id: int, text: str) -> None:
    """Stores the smaller range of commits that a bisection found."""
    regression = lock(session, regression_id)
    regression.good_commit_id, regression.bad_commit_id = good_commit_id, bad_commit_id
    add_remark(session, regression, who, "bisect", text)


def mark(
    session: Session,
    who: str,
    *,
    right: bool,
    regression_id: int | None = None,
    run_id: int | None = None,
    note: str | None = None,
) -> None:
    """Stores a person's mark, right or wrong, on a regression or run. Replaces the person's earlier mark."""
    if (regression_id is None) == (run_id is None):
        raise TypeError("a mark is of a regression_id or of a run_id, and not of both")
    if regression_id is not None:
        regression = lock(session, regression_id)
        add_remark(session, regression, who, "mark right" if right else "mark wrong", note)
    new = insert(Mark).values(
        regression_id=regression_id, run_id=run_id, right=right, who=_person(who), note=_given(note)
    )
    of = Mark.regression_id if run_id is None else Mark.run_id
    session.execute(
        new.on_conflict_do_update(
            index_elements=[of, Mark.who],
            set_={"right": new.excluded.right, "note": new.excluded.note, "at": func.clock_timestamp()},
        )
    )


def list_possible_actions(state: str) -> list[str]:
    """Lists the actions that are possible for a regression in a state."""
    return [action for action, moves in TRANSITIONS.items() if state in moves]


def lock(session: Session, regression_id: int) -> Regression:
    """Returns a regression and locks it until the transaction ends. Raises NoSuchRegression if it does not exist."""
    regression = session.get(Regression, regression_id, with_for_update=True, populate_existing=True)
    if regression is None:
        raise NoSuchRegression(f"there is no regression {regression_id}")
    return regression


def change_state(session: Session, regression: Regression, action: str, who: str, text: str | None) -> None:
    """Stores the state that follows from an action. Raises NotPossible if no state follows."""
    to = TRANSITIONS[action].get(regression.state)
    if to is None:
        allowed = ", ".join(list_possible_actions(regression.state))
        raise NotPossible(
            f"regression {regression.id} is {regression.state}: it cannot {action}; what is possible: {allowed}"
        )
    add_event(session, regression.id, who, action, regression.state, to, _given(text))
    regression.state = to
    regression.changed_at = func.clock_timestamp()
    session.flush()


def add_remark(session: Session, regression: Regression, who: str, action: str, text: str | None) -> None:
    """Stores an event on a regression that does not change the regression's state."""
    add_event(session, regression.id, who, action, regression.state, regression.state, _given(text))
    regression.changed_at = func.clock_timestamp()
    session.flush()


def add_event(
    session: Session, regression_id: int, who: str, action: str, from_state: str | None, to_state: str, text: str | None
) -> None:
    of = {"regression_id": regression_id, "who": _person(who), "action": action, "note": text}
    states = {"from_state": from_state, "to_state": to_state}
    session.execute(insert(RegressionEvent).values(at=func.clock_timestamp(), **of, **states))


def _person(who: str) -> str:
    if not who.strip():
        raise ValueError("a change of a regression needs a name: who made it")
    return without_controls(who).strip()


def _given(text: str | None) -> str | None:
    """Returns a text without characters that could command a terminal; None if no text is left."""
    return without_controls(text or "").strip() or None
