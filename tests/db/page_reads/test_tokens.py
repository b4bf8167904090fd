"""Tokens are listed with what their own checks of the last hours took."""

from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.db.lifecycle.test_tokens import FIELDS, make_holder, spend, submit
from tilewatch.db.lifecycle import tokens
from tilewatch.db.models import Token
from tilewatch.db.page_reads.tokens import BUDGET_H, list_tokens


def test_a_token_has_spent_what_its_own_checks_of_the_last_hours_took(db_session: Session) -> None:
    holder = make_holder(db_session, 60.0)
    for name in ("build", "a"):
        tokens.add(db_session, **{**FIELDS, "name": name})
    spend(db_session, submit(db_session, holder, sha="c", age_h=BUDGET_H - 0.1), small=1.0, large=2.0)
    spend(db_session, submit(db_session, holder, sha="d", age_h=BUDGET_H), small=4.0)
    spend(db_session, submit(db_session, holder, sha="e", who="ci"), small=8.0)
    spend(db_session, submit(db_session, holder, sha="f", who="token build"), small=16.0)
    db_session.execute(update(Token).where(Token.name == "a").values(made_by="eve"))
    listed = [(each.name, each.spent_gpu_s, each.made_by) for each in list_tokens(db_session)]
    assert listed == [("a", 0.0, "eve"), ("build", 16.0, "ada"), ("ci", 3.0, "ada")]
