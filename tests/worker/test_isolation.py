"""Of three repositories the middle one is broken: every loop goes on, says what was wrong and opens one alarm."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert, select, text

from tests.db.fixtures import one_commit
from tests.worker.fixtures import open_regression
from tests.worker.fixtures.http_receiver import receiver
from tilewatch.db import fact_writes
from tilewatch.db.fact_writes import NewVerdict
from tilewatch.db.lifecycle import actions, jobs
from tilewatch.db.models import Action, Alarm, Job
from tilewatch.db.session import session
from tilewatch.db.worker_reads import judging
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.context import Context
from tilewatch.worker.judging.rejudge import rejudge
from tilewatch.worker.notify import alarms, wording
from tilewatch.worker.notify.outbox import Outbox, write_and_send
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.senders import Log, Webhook
from tilewatch.worker.notify.update_alarms import update_alarms
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import submit_requests

NAMES = ("first", "middle", "last")
NOW = dt.datetime.now(dt.UTC)


def break_middle(monkeypatch: pytest.MonkeyPatch, place: object, name: str, find: Callable[..., str]) -> None:
    """Lets a function raise where `find` finds the middle repository in its arguments."""
    real = getattr(place, name)

    def fail(*arguments: Any) -> Any:
        if find(*arguments) == "middle":
            raise ZeroDivisionError("a bug")
        return real(*arguments)

    monkeypatch.setattr(place, name, fail)


def list_failures(database_url: str) -> list[tuple[str, str]]:
    with session(database_url) as opened:
        query = select(Alarm.subject, Alarm.detail).where(Alarm.kind == "repository_failed").order_by(Alarm.id)
        return [tuple(row) for row in opened.execute(query)]


def test_a_repository_that_cannot_be_described_keeps_back_no_message_and_no_digest_of_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(database_url) as opened:
        for name in NAMES:
            open_regression.regress(opened, kernel=f"kernel_of_{name}", repository=name)
    break_middle(monkeypatch, wording, "regression_text", lambda story, *_: story.regression.repository)
    break_middle(monkeypatch, wording, "_line", lambda row: row.repository)
    with receiver() as board:
        digest = {"at": NOW.time().replace(tzinfo=None), "to": ["board"]}
        channels = {"board": {"webhook": board.url}}
        settings = NotifySettings.model_validate(
            {"channels": channels, "routes": [{"to": ["board"]}], "digest": digest}
        )
        out = Outbox(database_url, settings, {"log": Log(), "board": Webhook(board.url)}, "http://here")
        write_and_send(out, NOW)
        write_and_send(out, NOW)
        *changes, day = (asked.json for asked in board.asked)
    assert [change["subject"].split()[0] for change in changes] == ["kernel_of_first", "kernel_of_last"]
    assert day["subject"].startswith("Tilewatch: 2 new regressions")
    assert [f"kernel_of_{name}" in day["body"] for name in NAMES] == [True, False, True]
    ((subject, detail),) = list_failures(database_url)
    assert subject == "middle"
    assert detail.endswith("cannot be reported: ZeroDivisionError: a bug")


def test_a_repository_whose_alarms_cannot_be_found_hides_no_others_and_loses_none(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(database_url) as opened:
        for name in NAMES:
            one_commit.measure(opened, one_commit.submit(opened, f"night of {name}", name), f"run of {name}")
    out = Outbox(database_url, NotifySettings(), {"log": Log()}, "http://here")

    def look(now: dt.datetime) -> list[tuple[str, str]]:
        update_alarms(out, NAMES, NightlyTimes(), 0.1, now)
        with session(database_url) as opened:
            query = select(Alarm.kind, Alarm.subject).where(Alarm.closed_at.is_(None)).order_by(Alarm.subject)
            return [tuple(row) for row in opened.execute(query)]

    late = [("nightly_missing", f"no nightly of {name} since that of 2026-11-20") for name in sorted(NAMES)]
    assert look(NOW) == late
    break_middle(monkeypatch, alarms, "find_late_nightlies", lambda name, *_: name)
    with_failure = sorted([*late, ("repository_failed", "middle")], key=lambda each: each[1])
    assert look(NOW) == look(NOW) == with_failure
    assert list_failures(database_url) == [("middle", "its alarms cannot be looked for: ZeroDivisionError: a bug")]
    monkeypatch.undo()
    assert look(NOW + 2 * alarms.EVENT_STAYS_OPEN) == late


def test_an_action_that_postgres_refuses_keeps_back_no_other(settings: Settings, context: Context) -> None:
    with session(context.database_url) as opened:
        opened.execute(insert(Action).values(who="a", action="bisect", wanted={"regression": 10**30}, state="asked"))
        actions.ask(opened, "ada", "nightly", {"commit": "HEAD", "gpus": ["h200"]})
    assert len(submit_requests.carry_out(settings)) == 2
    with session(context.database_url) as opened:
        refused, done = opened.scalars(select(Action).order_by(Action.id))
    assert (refused.state, done.state) == ("refused", "done")
    assert "out of range" in str(refused.outcome)


def test_a_stranded_job_that_cannot_be_read_is_cancelled_and_the_others_are_sent_again(context: Context) -> None:
    with session(context.database_url) as opened:
        queue, payload = "gpu.b200@GPU-gone", {"repository": "middle"}
        stranded, _ = jobs.add(opened, key="c", kind="confirm", queue=queue, subject="a replay", payload=payload)
        waiting = one_commit.job(opened)
        opened.execute(text("update jobs set created_at = now() - interval '20 min'"))
    assert [unsent.id for unsent in reconcile(context.database_url, context.broker_url)] == [waiting]
    with session(context.database_url) as opened:
        assert opened.get_one(Job, stranded).state == "cancelled"


def test_a_scope_that_cannot_be_judged_again_is_named_and_the_others_are(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(context.database_url) as opened:
        for name in NAMES:
            planned = one_commit.submit(opened, f"night of {name}", name)
            run_id = one_commit.measure(opened, planned, f"run of {name}")
            fact_writes.write_verdicts(
                opened, [NewVerdict(run_id, "undecided", None, None, 0, "default", "the first night of a series")]
            )
    every = rejudge(context, context.policy, one_commit.NOON.date())
    assert (every.runs, every.failures) == (3, ())
    break_middle(monkeypatch, judging, "list_nights", lambda _, scope: scope.repository)
    some = rejudge(context, context.policy, one_commit.NOON.date())
    assert some.runs == 2
    assert some.failures == ("middle on b200 cannot be judged again: ZeroDivisionError: a bug",)
