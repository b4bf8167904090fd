"""A request from the dashboard is submitted once, by the minute's tick, and names the person who asked."""

import pytest
from sqlalchemy import func, select

from tests.worker.fixtures import tiny_repository
from tilewatch.db.lifecycle import actions
from tilewatch.db.models import Action, Submission
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import submit_requests

WHO = "ada@example.org"
SWEEP = {"kernel": tiny_repository.KERNEL, "problem": "1024", "commit": "HEAD", "gpus": []}


def every(context: Context) -> list[Action]:
    with session(context.database_url) as opened:
        return list(opened.scalars(select(Action).order_by(Action.id)))


def submissions(context: Context) -> int:
    with session(context.database_url) as opened:
        return opened.execute(select(func.count(Submission.id))).scalar_one()


def test_a_nightly_a_sweep_and_a_backfill_are_submitted_for_who_asked(settings: Settings, context: Context) -> None:
    start = tiny_repository.git(settings.repository, "rev-parse", "HEAD").strip()
    for number in (3, 4):
        tiny_repository.commit(settings.repository, f"Change {number}", factor=number)
    with session(context.database_url) as opened:
        actions.ask(opened, WHO, "nightly", {"commit": "HEAD", "gpus": ["h200"]})
        actions.ask(opened, WHO, "sweep", {**SWEEP, "gpus": ["b200"]})
        actions.ask(opened, WHO, "backfill", {"revisions": f"{start}..HEAD", "gpus": ["h200"]})
    assert len(submit_requests.carry_out(settings)) == 3
    assert submit_requests.carry_out(settings) == []
    assert submissions(context) == 4
    rows = every(context)
    assert {(row.who, row.state) for row in rows} == {(WHO, "done")}
    assert [row.action for row in rows] == ["nightly", "sweep", "backfill"]
    assert rows[1].outcome is not None
    assert rows[1].outcome.startswith("submitted a sweep of double on 1024")
    assert rows[2].outcome is not None
    assert rows[2].outcome.count("submitted a backfill") == 2


def test_what_cannot_be_submitted_is_refused_with_the_sentence_and_not_tried_again(
    settings: Settings, context: Context
) -> None:
    with session(context.database_url) as opened:
        actions.ask(opened, WHO, "sweep", {**SWEEP, "kernel": "duoble"})
    (sentence,) = submit_requests.carry_out(settings)
    (row,) = every(context)
    assert row.state == "refused"
    library = settings.checkouts / tiny_repository.git(settings.repository, "rev-parse", "HEAD").strip()
    assert row.outcome == f"there is no kernel 'duoble' in the library {library}/library; nearest: double"
    assert sentence == f"{WHO} asked for action {row.id} (sweep): {row.outcome}"
    assert submit_requests.carry_out(settings) == []


def test_an_action_that_redis_was_away_for_is_carried_out_later_and_once(settings: Settings, context: Context) -> None:
    with session(context.database_url) as opened:
        actions.ask(opened, WHO, "sweep", {**SWEEP, "gpus": ["h200"]})
    away = settings.model_copy(update={"broker_url": "redis://127.0.0.1:9/0"})
    with pytest.raises(BrokerUnreachable):
        submit_requests.carry_out(away)
    assert [row.state for row in every(context)] == ["asked"]
    # As after a crash between submitting and saying so.
    list(
        submit_requests.submissions(settings, "sweep", every(context)[0].wanted, once=f"action {every(context)[0].id}")
    )
    submit_requests.carry_out(settings)
    assert [row.state for row in every(context)] == ["done"]
    assert submissions(context) == 1


def test_a_submission_from_the_command_line_says_who_it_was(settings: Settings, context: Context) -> None:
    list(submit_requests.submit_for(settings, "grace", "nightly", {"commit": "HEAD", "gpus": ["h200"]}))
    (row,) = every(context)
    assert (row.who, row.action, row.state) == ("grace", "nightly", "done")
