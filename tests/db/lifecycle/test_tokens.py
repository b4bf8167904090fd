"""Tokens of programs: which can be made, whom one belongs to, and when its GPU time is used up."""

import datetime as dt
import math
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from tests.db.lifecycle.test_checks import make_check, prepare
from tilewatch.db.lifecycle import checks, tokens
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.lifecycle.tokens import BudgetSpent, Holder, NoToken, TokenInUse
from tilewatch.db.models import Check, CheckOperator, Token
from tilewatch.db.page_reads.tokens import BUDGET_H
from tilewatch.db.session import session

FIELDS: dict[str, Any] = {"name": "ci", "rights": ("read",), "gpu_s": 60.0, "who": "ada"}


@pytest.mark.parametrize("fields", [{"gpu_s": 0.0}, {"gpu_s": 1e9}, {"name": "a"}, {"name": "A" + "._-" * 20 + "z0"}])
def test_a_token_has_any_budget_from_zero_on_and_a_name_of_up_to_63_letters(
    db_session: Session, fields: dict[str, Any]
) -> None:
    token = tokens.add(db_session, **{**FIELDS, **fields})
    holder = tokens.find_holder(db_session, token=token)
    assert holder is not None
    wanted = {**FIELDS, **fields}
    assert (holder.name, holder.rights, holder.gpu_s) == (wanted["name"], ("read",), wanted["gpu_s"])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"gpu_s": -0.001}, "a budget of -0.001 GPU seconds makes no sense; expected 0 or more"),
        ({"gpu_s": math.inf}, "a budget of inf GPU seconds makes no sense"),
        ({"gpu_s": math.nan}, "a budget of nan GPU seconds makes no sense"),
        ({"name": ""}, "'' is not a name for a token"),
        ({"name": ".ci"}, "'.ci' is not a name for a token"),
        ({"name": "ci\n"}, "is not a name for a token"),
        ({"name": "a" * 64}, "is not a name for a token; expected letters, digits, '.', '_' and '-', 63 at most"),
    ],
)
def test_a_token_with_an_impossible_budget_or_name_is_not_made(
    db_session: Session, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(NoToken) as refused:
        tokens.add(db_session, **{**FIELDS, **fields})
    assert sentence in str(refused.value)
    assert db_session.scalar(select(func.count(Token.id))) == 0


def test_a_revoked_token_opens_nothing_and_its_name_stays_taken(db_session: Session) -> None:
    kept = tokens.add(db_session, **{**FIELDS, "name": "other", "rights": ("read", "check", "read")})
    token = tokens.add(db_session, **FIELDS)
    tokens.revoke(db_session, "ci", "eve")
    assert tokens.find_holder(db_session, token=token) is tokens.find_holder(db_session, name="ci") is None
    for holder in (tokens.find_holder(db_session, token=kept), tokens.find_holder(db_session, name="other")):
        assert holder is not None
        assert (holder.name, holder.rights) == ("other", ("check", "read"))
    with pytest.raises(NoToken, match="no token ci to revoke"):
        tokens.revoke(db_session, "ci", "ada")
    with pytest.raises(NoToken, match="there is, or was, a token ci"):
        tokens.add(db_session, **FIELDS)
    db_session.expire_all()
    revoked = db_session.scalars(select(Token).where(Token.revoked_at.is_not(None))).one()
    assert (revoked.name, revoked.revoked_by, revoked.made_by) == ("ci", "eve", "ada")


def make_holder(opened: Session, gpu_s: float) -> Holder:
    tokens.add(opened, **{**FIELDS, "gpu_s": gpu_s})
    holder = tokens.find_holder(opened, name="ci")
    assert holder is not None
    return holder


def submit(opened: Session, holder: Holder, *, who: str = "", age_h: float = 0.0, sha: str = "b") -> int:
    """A check of this holder, or of `who`, that was asked for hours ago and has no operators yet."""
    make_check(opened)  # makes the GPU model
    asked = CheckRequest("tilewatch", "a" * 40, sha * 40, "Tile it", "b200", "gemm", 0.0)
    check_id, _ = checks.open_once(opened, asked, who or holder.who)
    at = func.now() - dt.timedelta(hours=age_h)
    opened.execute(update(Check).where(Check.id == check_id).values(requested_at=at))
    return check_id


def spend(opened: Session, check_id: int, **gpu_s: float) -> None:
    """Stores the GPU seconds of the check's operators, by problem; those that begin with `open` have no outcome."""
    prepare(opened, check_id, **{name: None if name.startswith("open") else "faster" for name in gpu_s})
    for name, seconds in gpu_s.items():
        of = update(CheckOperator).where(CheckOperator.check_id == check_id, CheckOperator.problem == name)
        opened.execute(of.values(gpu_s=seconds))


def require(opened: Session, holder: Holder, gpu_s: float) -> None:
    """Requires a budget of so many GPU seconds, of which an operator that is still to be launched takes 10."""
    tokens.require_budget(opened, replace(holder, gpu_s=gpu_s), 10.0)


@pytest.mark.parametrize(
    ("operators", "spent_s"),
    [
        ({}, 10.0),
        ({"small": 7.0, "large": 30.0}, 37.0),
        ({"small": 7.0, "open": 3.0}, 17.0),
        ({"small": 7.0, "open": 12.0}, 19.0),
        ({"open_1": 0.0, "open_2": 0.0}, 20.0),
    ],
    ids=("no operators yet", "with outcomes", "one without an outcome", "one that took longer", "two to be launched"),
)
def test_a_budget_is_used_up_by_operators_and_by_those_that_are_still_to_be_launched(
    db_session: Session, operators: dict[str, float], spent_s: float
) -> None:
    holder = make_holder(db_session, 60.0)
    check_id = submit(db_session, holder)
    if operators:
        spend(db_session, check_id, **operators)
    require(db_session, holder, spent_s + 1.0)
    sentence = rf"took {spent_s:.0f} GPU seconds in {BUDGET_H} hours and may take {spent_s:.0f} .* counts as 10\)"
    with pytest.raises(BudgetSpent, match=sentence):
        require(db_session, holder, spent_s)


def test_a_budget_counts_only_the_own_checks_of_the_last_hours_that_may_still_cost_something(
    db_session: Session,
) -> None:
    holder = make_holder(db_session, 60.0)
    spend(db_session, submit(db_session, holder, sha="c", age_h=BUDGET_H - 0.1), small=1.0)
    spend(db_session, submit(db_session, holder, sha="d", age_h=BUDGET_H), small=2.0)
    spend(db_session, submit(db_session, holder, sha="e", who="token other"), small=4.0)
    submit(db_session, holder, sha="f", age_h=BUDGET_H)
    failed = submit(db_session, holder, sha="0")
    db_session.execute(update(Check).where(Check.id == failed).values(exit_code=2, failure="no", ended_at=func.now()))
    require(db_session, holder, 1.5)
    with pytest.raises(BudgetSpent, match="took 1 GPU seconds"):
        require(db_session, holder, 1.0)
    require(db_session, make_other(db_session), 0.5)


def make_other(opened: Session) -> Holder:
    tokens.add(opened, **{**FIELDS, "name": "unused"})
    holder = tokens.find_holder(opened, name="unused")
    assert holder is not None
    return holder


def test_two_checks_of_a_token_are_not_submitted_at_once(db_session: Session, database_url: str) -> None:
    """Both would see the same budget left."""
    holder, other = make_holder(db_session, 60.0), make_other(db_session)
    db_session.commit()
    tokens.require_budget(db_session, holder, 1.0)
    with session(database_url) as opened:
        with pytest.raises(TokenInUse, match=f"another check of {holder.who} is being submitted"):
            tokens.require_budget(opened, holder, 1.0)
        tokens.require_budget(opened, other, 1.0)
    db_session.commit()
    with session(database_url) as opened:
        tokens.require_budget(opened, holder, 1.0)
