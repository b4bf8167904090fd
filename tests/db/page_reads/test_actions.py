"""Actions are listed with what their checks took."""

from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.db.lifecycle.test_tokens import make_holder, spend, submit
from tilewatch.db.lifecycle import actions
from tilewatch.db.models import Action
from tilewatch.db.page_reads.actions import list_actions


def test_an_action_has_the_gpu_time_of_its_own_checks(db_session: Session) -> None:
    holder = make_holder(db_session, 60.0)
    checks = [submit(db_session, holder, sha=each) for each in "cde"]
    for seconds, check_id in enumerate(checks, 1):
        spend(db_session, check_id, small=float(seconds), large=10.0)
    for number, of in enumerate(([checks[0], checks[2]], [checks[1]], [], None)):
        actions.ask(db_session, "ada", "check", {"number": number, "checks": of})
    db_session.execute(update(Action).where(Action.wanted["number"].as_integer() == 0).values(key="moves its row"))
    listed = [(each.wanted["number"], each.gpu_s) for each in list_actions(db_session)]
    assert listed == [(3, None), (2, None), (1, 12.0), (0, 24.0)]
    assert [each.wanted["number"] for each in list_actions(db_session, limit=2)] == [3, 2]
