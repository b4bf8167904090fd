"""Messages leave once: whatever is down, however many send, and whoever dies. The receiver is a real web server."""

import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import delete, func, select, text, update

from tests.worker.fixtures import open_regression
from tests.worker.fixtures.celery_process import environment
from tests.worker.fixtures.http_receiver import Answer, Receiver, receiver
from tilewatch.db.lifecycle import alarms, messages, regressions, repositories
from tilewatch.db.lifecycle.messages import ClaimedMessage
from tilewatch.db.models import Message, Regression, RegressionEvent, RegressionSeries
from tilewatch.db.repository_names import EXAMPLES
from tilewatch.db.session import session
from tilewatch.worker.notify.alarms import OpenAlarm
from tilewatch.worker.notify.forge import Forge
from tilewatch.worker.notify.outbox import (
    Outbox,
    _day,
    _send,
    _sender_of,
    _write_change,
    send_due,
    write_alarm,
    write_and_send,
    write_checks,
)
from tilewatch.worker.notify.routing import Channel, NotifySettings
from tilewatch.worker.notify.senders import Closed, Log, OutgoingMessage, Sender, SendResult, Service, Webhook
from tilewatch.worker.settings import Settings

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
SENDERS = 4


@pytest.fixture
def board() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def outbox_of(database_url: str, board: Receiver, **settings: object) -> Outbox:
    fields = {"channels": {"board": {"webhook": board.url}}, "routes": [{"to": ["board"]}], **settings}
    senders = {"log": Log(), "board": Webhook(board.url)}
    return Outbox(database_url, NotifySettings.model_validate(fields), senders, "http://here")


def regress(database_url: str, **how: object) -> int:
    with session(database_url) as opened:
        return open_regression.regress(opened, **how)  # type: ignore[arg-type]  # passed on


def stored(database_url: str) -> list[Message]:
    with session(database_url) as opened:
        return list(opened.scalars(select(Message).order_by(Message.id)))


def wait_over(database_url: str) -> None:
    """What the hours do to messages that were put off or held, and to those of a sender that died."""
    with session(database_url) as opened:
        opened.execute(update(Message).where(Message.state != "sent").values(not_before=text("now()")))


def test_a_confirmed_regression_is_sent_once_with_all_that_one_needs(database_url: str, board: Receiver) -> None:
    number = regress(database_url)
    regress(database_url, problem="64x2112x7168", size=0.031)
    outbox = outbox_of(database_url, board)
    assert write_and_send(outbox, NOW) == 1
    assert write_and_send(outbox, NOW) == 0
    (asked,) = board.asked
    assert asked.json["subject"] == "gemm_fp8 of tilewatch on b200: +4.2 % time, slower since bad0bad0ba (2 series)"
    for words in (
        "+4.2 % time, slower (95 %: +3.9 % to +4.5 %) at 320x32576x7168 on B200, the worst of 2 series",
        "Cause (code): the commit changed the machine code",
        "registers 96 -> 128",
        "First bad commit: bad0bad0ba Turn the swizzle off",
        "Owner: nobody yet",
        "Evidence: http://here/series?run=",
        f"git checkout {open_regression.BAD_SHA}",
        "python -m tilewatch.kernels sweep gemm_fp8 320x32576x7168",
        f"tilewatch regressions acknowledge {number}",
    ):
        assert words in asked.json["body"]
    assert asked.headers["Idempotency-Key"] == asked.json["key"]
    (message,) = stored(database_url)
    assert (message.state, message.attempts, message.trouble) == ("sent", 1, None)
    assert message.sent_at is not None


def test_what_is_opened_in_the_second_after_a_message_does_not_wait_for_beat(
    database_url: str, board: Receiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(settings).items():
        monkeypatch.setenv(name, value)
    from tilewatch.worker import app

    outbox = outbox_of(database_url, board)
    monkeypatch.setattr(app, "_outbox", lambda: outbox)
    for kernel in ("gemm_fp8", "softmax"):
        regress(database_url, kernel=kernel)
        app.run_tell()
    assert [asked.json["subject"].split()[0] for asked in board.asked] == ["gemm_fp8", "softmax"]


def test_a_service_that_is_down_for_a_while_gets_each_message_once_when_it_is_back(
    database_url: str, board: Receiver
) -> None:
    board.answer = lambda _: Answer(503)
    outbox = outbox_of(database_url, board)
    for number in range(3):
        regress(database_url, kernel=f"kernel_{number}")
    for _ in range(4):
        assert write_and_send(outbox, NOW) == 0
        wait_over(database_url)
    assert {message.state for message in stored(database_url)} == {"queued"}
    assert {message.trouble for message in stored(database_url)} <= {
        None,
        "the webhook answers 503 Service Unavailable",
    }
    board.answer = lambda _: Answer()
    assert write_and_send(outbox, NOW) == 3
    assert write_and_send(outbox, NOW) == 0
    assert len(set(board.subjects())) == len(board.subjects()) == 3


def test_nobody_listening_is_waited_out_and_a_channel_that_fails_is_asked_once_a_round(database_url: str) -> None:
    with receiver() as gone:
        pass
    for number in range(5):
        regress(database_url, kernel=f"kernel_{number}")
    assert write_and_send(outbox_of(database_url, gone), NOW) == 0
    assert sorted(message.attempts for message in stored(database_url)) == [0, 0, 0, 0, 1]
    first = stored(database_url)[0]
    assert (first.state, first.trouble) == ("queued", "the webhook cannot be reached (ConnectionError)")


def test_several_senders_at_once_send_each_message_once(database_url: str, board: Receiver) -> None:
    for number in range(12):
        regress(database_url, kernel=f"kernel_{number}")
    outbox, together = outbox_of(database_url, board), threading.Barrier(SENDERS)
    counts: list[int] = []

    def sender() -> None:
        together.wait()
        counts.append(write_and_send(outbox, NOW))

    threads = [threading.Thread(target=sender) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == len(board.asked) == len(set(board.subjects())) == 12


def test_a_sender_that_dies_in_between_is_made_up_for_where_the_other_side_knows_the_key(
    database_url: str, board: Receiver
) -> None:
    regress(database_url)
    with session(database_url) as opened:
        messages.write(opened, key="k", kind="digest", channel="board", subject="A", body="")
        dead = messages.claim(opened, ["board"], lease_s=120)
    assert dead is not None
    outbox = outbox_of(database_url, board)
    assert send_due(outbox) == 0  # the lease is not over: its sender may be alive
    wait_over(database_url)
    assert send_due(outbox) == 1
    assert board.taken[0].headers["Idempotency-Key"] == "k"


def test_a_sender_that_dies_in_between_never_doubles_a_mail_and_the_message_is_not_forgotten(
    database_url: str, board: Receiver
) -> None:
    with session(database_url) as opened:
        messages.write(opened, key="k", kind="digest", channel="mail", subject="A", body="")
        assert messages.claim(opened, ["board"], lease_s=120) is not None
    wait_over(database_url)
    assert send_due(outbox_of(database_url, board)) == 0
    (message,) = stored(database_url)
    assert (message.state, message.trouble) == ("failed", messages.UNCLEAR)
    with session(database_url) as opened:
        assert messages.retry(opened, [message.id]) == [message.id]
        assert messages.claim(opened, ["mail"], lease_s=120) is not None


def test_a_message_that_a_mail_service_takes_is_sent_and_one_that_it_does_not_is_tried_again(
    database_url: str, board: Receiver
) -> None:
    address = board.url.replace("http://", "json://us:token-of-ours@")
    outbox = Outbox(
        database_url,
        NotifySettings.model_validate({"channels": {"chat": {"apprise": address}}, "routes": [{"to": ["chat"]}]}),
        {"log": Log(), "chat": Service(address)},
        "http://here",
    )
    regress(database_url)
    board.answer = lambda _: Answer(500)
    assert write_and_send(outbox, NOW) == 0
    (message,) = stored(database_url)
    assert (message.state, message.attempts) == ("queued", 1)
    assert message.trouble is not None
    assert "token-of-ours" not in message.trouble
    wait_over(database_url)
    board.answer = lambda _: Answer()
    assert write_and_send(outbox, NOW) == 1
    title = "gemm_fp8 of tilewatch on b200: +4.2 % time, slower since bad0bad0ba (1 series)"
    assert board.taken[0].json["title"] == title


def test_what_a_service_asks_for_is_waited(database_url: str, board: Receiver) -> None:
    regress(database_url)
    board.answer = lambda _: Answer(429, headers={"Retry-After": "3600"})
    write_and_send(outbox_of(database_url, board), NOW)
    with session(database_url) as opened:
        waits_s = opened.scalar(text("select extract(epoch from not_before - now()) from messages"))
    assert 3500 < waits_s <= 3600


def test_what_a_service_will_never_take_is_given_up_with_its_reason(database_url: str, board: Receiver) -> None:
    regress(database_url)
    board.answer = lambda _: Answer(422)
    write_and_send(outbox_of(database_url, board), NOW)
    (message,) = stored(database_url)
    assert (message.state, message.trouble) == ("failed", "the webhook answers 422 Unprocessable Entity")


def test_a_recovery_is_sent_once_and_what_a_person_did_is_not(database_url: str, board: Receiver) -> None:
    number, outbox = regress(database_url), outbox_of(database_url, board)
    write_and_send(outbox, NOW)
    with session(database_url) as opened:
        regressions.triage(opened, number, "resolve", "ada")
    assert write_and_send(outbox, NOW) == 0
    with session(database_url) as opened:
        regressions.triage(opened, number, "reopen", "ada")
    assert write_and_send(outbox, NOW) == 1
    with session(database_url) as opened:
        regressions.triage(opened, number, "resolve", regressions.ITSELF)
    assert write_and_send(outbox, NOW) == 1
    assert [subject.split(":")[0] for subject in board.subjects()[1:]] == ["back again", "recovered"]


def test_a_recovery_never_overtakes_the_regression_that_it_ends(database_url: str, board: Receiver) -> None:
    number, outbox = regress(database_url), outbox_of(database_url, board)
    board.answer = lambda _: Answer(503)
    write_and_send(outbox, NOW)
    with session(database_url) as opened:
        regressions.triage(opened, number, "resolve", regressions.ITSELF)
    board.answer = lambda _: Answer()
    assert write_and_send(outbox, NOW) == 0
    wait_over(database_url)
    assert write_and_send(outbox, NOW) == 2
    assert board.subjects()[1].startswith("recovered: ")


def test_in_quiet_hours_messages_wait_for_their_end(database_url: str, board: Receiver) -> None:
    regress(database_url)
    now = NOW.replace(year=2096)  # the database's clock decides whether the wait is over
    assert write_and_send(outbox_of(database_url, board, quiet={"from": "11:00", "to": "13:00"}), now) == 0
    (message,) = stored(database_url)
    assert (message.state, message.not_before) == ("held", now + dt.timedelta(hours=1))
    wait_over(database_url)
    assert write_and_send(outbox_of(database_url, board), now) == 1


def test_the_owner_of_a_route_gets_the_regression(database_url: str, board: Receiver) -> None:
    number = regress(database_url)
    routes = [{"kernel": "attention*", "to": ["board"], "owner": "eve"}, {"to": ["board"], "owner": "ada"}]
    write_and_send(outbox_of(database_url, board, routes=routes), NOW)
    assert "Owner: ada" in board.taken[0].json["body"]
    with session(database_url) as opened:
        assert opened.get_one(Regression, number).owner == "ada"


@pytest.mark.parametrize(
    ("before", "of_route", "owner", "is_stored"),
    [("eve", "ada", "eve", False), ("eve", None, "eve", False), (None, "ada", "ada", True), (None, None, None, False)],
)
def test_a_route_s_owner_is_stored_where_nobody_owns_the_regression(
    database_url: str, board: Receiver, before: str | None, of_route: str | None, owner: str | None, is_stored: bool
) -> None:
    number = regress(database_url)
    with session(database_url) as opened:
        opened.get_one(Regression, number).owner = before
    routes = [{"to": ["board"], **({"owner": of_route} if of_route else {})}]
    write_and_send(outbox_of(database_url, board, routes=routes), NOW)
    with session(database_url) as opened:
        assert opened.get_one(Regression, number).owner == owner
        actions = opened.scalars(select(RegressionEvent.action).order_by(RegressionEvent.id)).all()
    assert actions == ["open", *(["assign"] if is_stored else [])]
    assert f"Owner: {owner or 'nobody yet'}" in board.taken[0].json["body"]


def test_a_kernel_that_no_route_wants_is_sent_to_nobody(database_url: str, board: Receiver) -> None:
    regress(database_url)
    regress(database_url, kernel="attention")
    write_and_send(outbox_of(database_url, board, routes=[{"kernel": "att*", "to": ["board"]}]), NOW)
    assert [subject.split()[0] for subject in board.subjects()] == ["attention"]


def test_an_improvement_is_sent_to_those_who_asked_for_it(database_url: str, board: Receiver) -> None:
    regress(database_url, size=-0.05)
    assert write_and_send(outbox_of(database_url, board), NOW) == 0
    wanted = [{"to": ["board"], "about": ["improvement"]}]
    assert write_and_send(outbox_of(database_url, board, routes=wanted), NOW) == 1
    assert "-5.0 % time, faster" in board.subjects()[0]


def test_a_forge_gets_what_a_commit_caused_and_what_a_person_did_about_it(database_url: str, board: Receiver) -> None:
    settings = NotifySettings.model_validate(
        {"channels": {"commits": {"forge": "a/b"}}, "routes": [{"to": ["commits"]}]}
    )
    outbox = Outbox(database_url, settings, {"log": Log(), "commits": Forge("a/b", board.url, "t")}, "http://here")
    regress(database_url, kernel="toolchain_did_it", category="toolchain")
    regress(database_url, kernel="faster", size=-0.05)
    assert write_and_send(outbox, NOW) == 0
    number = regress(database_url)
    assert write_and_send(outbox, NOW) == 1
    assert [asked.path.rpartition("/")[2] for asked in board.asked] == [open_regression.BAD_SHA, "comments"]
    with session(database_url) as opened:
        regressions.triage(opened, number, "expect", "ada", "bought accuracy")
    assert write_and_send(outbox, NOW) == 1
    assert board.asked[-1].json["state"] == "success"
    assert board.asked[-1].json["context"] == f"tilewatch/{open_regression.KERNEL}"
    assert board.asked[-1].json["target_url"] == f"http://here/regressions?regression={number}"


def test_the_end_of_a_regression_is_written_to_the_commit_that_was_marked_with_it(
    database_url: str, board: Receiver
) -> None:
    """A bisection blamed an earlier commit, and the status of the one that was blamed first stayed red for ever."""
    settings = NotifySettings.model_validate(
        {"channels": {"commits": {"forge": "a/b"}}, "routes": [{"to": ["commits"]}]}
    )
    outbox = Outbox(database_url, settings, {"commits": Forge("a/b", board.url, "t")}, "http://here")
    number = regress(database_url, commits=4)
    write_and_send(outbox, NOW)
    with session(database_url) as opened:
        good = opened.get_one(Regression, number).good_commit_id
        found = open_regression.commit(opened, 102, "f00d" * 10, "The first bad commit")
        regressions.narrow(opened, number, "ada", good, found, "the first bad commit is f00d")
        regressions.triage(opened, number, "resolve", regressions.ITSELF)
    write_and_send(outbox, NOW)
    states = [asked for asked in board.asked if "/statuses/" in asked.path]
    assert [(each.path.rpartition("/")[2], each.json["state"]) for each in states] == [
        (open_regression.BAD_SHA, "failure"),
        (open_regression.BAD_SHA, "success"),
    ]


def test_a_forge_of_a_watched_repository_gets_only_its_own_commits(database_url: str, board: Receiver) -> None:
    """The others refused each commit with 422, and the digest listed the messages as not sent."""
    forges = {"ours": "a/ours", "theirs": "B/Theirs", "mirror": "c/mirror"}
    with session(database_url) as opened:
        repositories.add(opened, "ours", "https://github.com/a/ours.git", "main")
        repositories.add(opened, "theirs", "git@github.com:b/theirs", "main")
    channels = {name: {"forge": forge} for name, forge in forges.items()}
    settings = NotifySettings.model_validate({"channels": channels, "routes": [{"to": list(forges)}]})
    senders = {name: Forge(forge, board.url, "t") for name, forge in forges.items()}
    regress(database_url, repository="theirs", position=200)
    write_and_send(Outbox(database_url, settings, senders, "http://here"), NOW)
    asked = {asked.path.partition("/repos/")[2].partition("/statuses/")[0] for asked in board.asked}
    assert {each for each in asked if "commits" not in each} == {"B/Theirs", "c/mirror"}
    assert {message.channel for message in stored(database_url)} == {"theirs", "mirror"}


@pytest.mark.parametrize(("gpu_model", "channels"), [("h200", ["board"]), ("b200", []), (None, [])])
def test_an_alarm_goes_to_those_who_get_its_gpu_model(
    database_url: str, board: Receiver, gpu_model: str | None, channels: list[str]
) -> None:
    of = {"kind": "quarantine", "key": "k", "subject": "GPU-7", "detail": "the driver reported Xid 79"}
    outbox = outbox_of(database_url, board, routes=[{"gpu": "h200", "to": ["board"]}])
    with session(database_url) as opened:
        alarm_id, _ = alarms.open_once(opened, **of)
        write_alarm(opened, outbox, alarm_id, OpenAlarm(**of, gpu_model=gpu_model), NOW)
    assert [message.channel for message in stored(database_url)] == channels


def test_an_alarm_waits_for_the_end_of_quiet_hours_and_goes_to_no_forge(database_url: str, board: Receiver) -> None:
    of = {"kind": "quarantine", "key": "k", "subject": "GPU-7", "detail": "the driver reported Xid 79"}
    channels = {"board": {"webhook": board.url}, "commits": {"forge": "a/b"}}
    routes, quiet = [{"to": list(channels)}], {"from": "11:00", "to": "13:00"}
    outbox = outbox_of(database_url, board, channels=channels, routes=routes, quiet=quiet)
    outbox = replace(outbox, senders={**outbox.senders, "commits": Forge("a/b", board.url, "t")})
    now = NOW.replace(year=2096)  # the database's clock decides whether the wait is over
    with session(database_url) as opened:
        alarm_id, _ = alarms.open_once(opened, **of)
        write_alarm(opened, outbox, alarm_id, OpenAlarm(**of), now)
    assert [(each.channel, each.not_before) for each in stored(database_url)] == [
        ("board", now + dt.timedelta(hours=1))
    ]


def test_a_digest_comes_once_a_day_also_on_a_calm_one(database_url: str, board: Receiver) -> None:
    outbox = outbox_of(database_url, board, digest={"at": "08:30", "to": ["board"]}, routes=[])
    assert write_and_send(outbox, NOW.replace(hour=8)) == 0
    assert write_and_send(outbox, NOW.replace(hour=9)) == 1
    assert write_and_send(outbox, NOW.replace(hour=10)) == 0
    assert board.subjects() == ["Tilewatch: 0 new regressions, 0 open, 0 alarms in all repositories"]
    assert write_and_send(outbox, NOW.replace(day=21, hour=9)) == 1


def test_a_digest_goes_to_no_forge(database_url: str, board: Receiver) -> None:
    channels = {"board": {"webhook": board.url}, "commits": {"forge": "a/b"}}
    digest = {"at": "08:30", "to": list(channels)}
    outbox = outbox_of(database_url, board, channels=channels, digest=digest, routes=[])
    outbox = replace(outbox, senders={**outbox.senders, "commits": Forge("a/b", board.url, "t")})
    assert write_and_send(outbox, NOW) == 1
    assert [each.channel for each in stored(database_url)] == ["board"]


def test_a_digest_lists_what_is_new_and_open(database_url: str, board: Receiver) -> None:
    number = regress(database_url)
    today = dt.datetime.now(dt.UTC)
    outbox = outbox_of(
        database_url, board, digest={"at": today.time().replace(tzinfo=None), "to": ["board"]}, routes=[]
    )
    write_and_send(outbox, today)
    (asked,) = board.taken
    assert asked.json["subject"] == "Tilewatch: 1 new regression, 1 open, 0 alarms in all repositories"
    assert f"New:\n  #{number} gemm_fp8 of tilewatch on b200: +4.2 % time, slower" in asked.json["body"]


def write_digest_body(database_url: str, board: Receiver) -> str:
    now = dt.datetime.now(dt.UTC)
    at_once = {"at": now.time().replace(tzinfo=None), "to": ["board"]}
    write_and_send(outbox_of(database_url, board, digest=at_once, routes=[]), now)
    body = board.taken[-1].json["body"]
    assert isinstance(body, str)
    return body


def test_a_note_on_an_old_end_does_not_bring_it_into_the_digest_again(database_url: str, board: Receiver) -> None:
    number = regress(database_url)
    with session(database_url) as opened:
        regressions.triage(opened, number, "resolve", "ada")
        for table in (Regression.opened_at, RegressionEvent.at):
            opened.execute(update(table.class_).values({table: table - dt.timedelta(days=3)}))
        regressions.edit(opened, number, "ada", "note", "the driver did it")
    assert "gemm_fp8" not in write_digest_body(database_url, board)


def test_a_digest_begins_where_the_last_one_ended(database_url: str, board: Receiver) -> None:
    """The last one was written 30 hours ago, and this one is late: the hours between are a day's no more."""
    opened_hours_ago = {regress(database_url, kernel=f"kernel_{hours}"): hours for hours in (28, 30, 32)}
    with session(database_url) as opened:
        messages.write(opened, key="digest of yesterday", kind="digest", channel="board", subject="A", body="")
        opened.execute(update(Message).values(created_at=func.now() - dt.timedelta(hours=30), state="failed"))
        for number, hours in opened_hours_ago.items():
            opened.get_one(Regression, number).opened_at = func.now() - dt.timedelta(hours=hours)
    new = write_digest_body(database_url, board).partition("New:")[2].partition("Still open:")[0]
    assert [hours for hours in opened_hours_ago.values() if f"kernel_{hours}" in new] == [28, 30]


@pytest.mark.parametrize(
    ("opened_h", "ended_h", "sections"),
    [
        (-1, None, ["still_open"]),
        (0, None, ["opened", "still_open"]),
        (1, None, ["opened", "still_open"]),
        (-2, -1, []),
        (-2, 0, ["ended"]),
        (-2, 1, ["ended"]),
        (0, 1, ["ended"]),
    ],
)
@pytest.mark.parametrize("size", [0.05, -0.05])
def test_a_regression_is_in_the_sections_of_a_digest_that_its_times_call_for(
    database_url: str, opened_h: float, ended_h: float | None, sections: list[str], size: float
) -> None:
    """The hours are from the last digest on. An improvement has a section of its own, whatever became of it."""
    number, since = regress(database_url, size=size), NOW - dt.timedelta(days=1)
    with session(database_url) as opened:
        if ended_h is not None:
            regressions.triage(opened, number, "resolve", "ada")
        for hours, to_state in ((opened_h, "new"), (ended_h, "resolved")):
            at = since + dt.timedelta(hours=hours or 0.0)
            opened.execute(update(RegressionEvent).where(RegressionEvent.to_state == to_state).values(at=at))
        opened.get_one(Regression, number).opened_at = since + dt.timedelta(hours=opened_h)
    with session(database_url) as opened:
        day = _day(opened, since, NOW)
    found = [name for name in ("opened", "ended", "still_open", "improvements") if getattr(day, name)]
    assert found == (sections if size > 0 else ["improvements"] if opened_h >= 0 else [])


def test_a_digest_lists_the_messages_that_were_given_up_since_the_last_one(database_url: str) -> None:
    since = NOW - dt.timedelta(days=1)
    with session(database_url) as opened:
        for state in ("failed", "queued"):
            for hours in (-1, 0, 1):
                key = f"{state} {hours}"
                messages.write(opened, key=key, kind="digest", channel="board", subject=key, body="")
                at = since + dt.timedelta(hours=hours)
                opened.execute(update(Message).where(Message.key == key).values(created_at=at, state=state))
        day = _day(opened, since, NOW)
    assert [each.subject for each in day.failed_messages] == ["failed 1", "failed 0"]


def test_a_kernel_of_two_repositories_is_told_apart_in_messages_and_in_the_digest(
    database_url: str, board: Receiver
) -> None:
    """Both have a gemm_fp8, and nobody knew where to check out the commit."""
    names = ("attention-lib", "serving")
    for number, name in enumerate(names):
        regress(database_url, repository=name, position=200 + 10 * number)
    write_and_send(outbox_of(database_url, board), NOW)
    expected = [f"gemm_fp8 of {name} on b200: +4.2 % time, slower" for name in names]
    assert [subject.partition(" since")[0] for subject in board.subjects()] == expected
    digest = write_digest_body(database_url, board)
    assert all(f"{words} since" in digest for words in expected)


def test_a_digest_has_no_planted_example(database_url: str, board: Receiver) -> None:
    number = regress(database_url)
    with session(database_url) as opened:
        opened.get_one(Regression, number).repository = EXAMPLES[0]
    today = dt.datetime.now(dt.UTC)
    outbox = outbox_of(
        database_url, board, digest={"at": today.time().replace(tzinfo=None), "to": ["board"]}, routes=[]
    )
    write_and_send(outbox, today)
    assert board.subjects() == ["Tilewatch: 0 new regressions, 0 open, 0 alarms in all repositories"]


def test_without_a_file_everything_goes_to_the_log(database_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    regress(database_url)
    outbox = Outbox(database_url, NotifySettings(), {"log": Log()}, "http://here")
    assert write_and_send(outbox, NOW) == 1
    assert "gemm_fp8 of tilewatch on b200: +4.2 % time, slower" in capfd.readouterr().out


def test_a_channel_that_was_taken_out_of_the_file_is_named(database_url: str, board: Receiver) -> None:
    regress(database_url)
    board.answer = lambda _: Answer(503)
    write_and_send(outbox_of(database_url, board), NOW)
    wait_over(database_url)
    send_due(Outbox(database_url, NotifySettings(), {"log": Log()}, "http://here"))
    assert stored(database_url)[0].trouble == "there is no channel 'board' any more"


@pytest.mark.parametrize(
    ("channel", "token", "sender"),
    [
        ({"apprise": "json://host"}, None, Service("json://host")),
        ({"webhook": "https://host"}, None, Webhook("https://host")),
        ({"forge": "a/b", "api": "https://host"}, "t", Forge("a/b", "https://host", "t")),
        ({"forge": "a/b"}, None, "channels.x is a forge and TILEWATCH_FORGE_TOKEN is not set"),
        ({"forge": "a/b"}, "", "channels.x is a forge and TILEWATCH_FORGE_TOKEN is not set"),
        ({"apprise": ""}, None, "channels.x has an empty address"),
        ({"webhook": ""}, None, "channels.x has an empty address"),
        ({"apprise_from": "MAIL"}, "t", "channels.x takes its address from MAIL, which is not set"),
        ({"webhook_from": "BOARD"}, "t", "channels.x takes its address from BOARD, which is not set"),
    ],
)
def test_a_channel_without_an_address_or_a_token_is_closed_and_says_why(
    channel: dict[str, str], token: str | None, sender: Sender | str
) -> None:
    made = _sender_of("x", Channel.model_validate(channel), token)
    assert made == (Closed(sender) if isinstance(sender, str) else sender)
    if isinstance(sender, str):
        assert made.send(OutgoingMessage("k", "digest", "s", "b")) == SendResult(sender, again=True)


@pytest.mark.parametrize(
    ("kind", "page"), [("regression", "/regressions?regression=7"), ("check", "/checks?check=7"), ("alarm", "")]
)
def test_a_message_links_to_the_page_of_what_it_is_about(board: Receiver, kind: str, page: str) -> None:
    about = {f"{name}_id": 7 if name == kind else None for name in ("regression", "check")}
    claimed = ClaimedMessage(1, "k", kind, "board", "@all", "@all", 2, **about, sha=None, about=None)
    assert _send(outbox_of("", board), claimed) == SendResult()
    (asked,) = board.asked
    assert asked.json["link"] == f"http://here{page}"
    assert asked.json["subject"] == asked.json["body"] == "@\N{WORD JOINER}all"


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_sender_that_crashes_is_tried_again_only_where_a_message_may_arrive_twice(
    board: Receiver, repeatable: bool
) -> None:
    class Crashing(Closed):
        def send(self, _: OutgoingMessage) -> SendResult:
            raise KeyError("no token")

    sender = Crashing("never said")
    object.__setattr__(sender, "repeatable", repeatable)
    claimed = ClaimedMessage(1, "k", "alarm", "board", "s", "b", 1, None, None, None, None)
    outcome = _send(replace(outbox_of("", board), senders={"board": sender}), claimed)
    end = "" if repeatable else "; the message may have arrived"
    assert outcome == SendResult(f"the sender crashed (KeyError){end}", again=repeatable)


def test_without_a_forge_no_check_is_looked_up(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message would mark it as reported, so each round would look it up."""
    monkeypatch.setattr(messages, "list_unreported_checks", lambda _: pytest.fail("they were looked up"))
    with session(database_url) as opened:
        write_checks(opened, NotifySettings(), [])


def test_a_change_of_a_regression_that_is_gone_or_has_no_series_is_sent_to_nobody(
    database_url: str, board: Receiver
) -> None:
    number, outbox = regress(database_url), outbox_of(database_url, board)
    with session(database_url) as opened:
        (change,) = messages.list_unreported_changes(opened)
        _write_change(opened, outbox, replace(change, regression_id=number + 1), NOW)
        _write_change(opened, outbox, change, NOW)
    assert [each.regression_id for each in stored(database_url)] == [number]
    with session(database_url) as opened:
        opened.execute(delete(Message))
        opened.execute(delete(RegressionSeries))
        _write_change(opened, outbox, change, NOW)
    assert stored(database_url) == []
