"""A service's error is shown without the parts of our address that it repeats."""

import datetime as dt
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import requests
from apprise.logger import logger as apprise_logger
from apprise.plugins.custom_form import NotifyForm
from apprise.plugins.custom_json import NotifyJSON

from tests.worker.fixtures.http_receiver import Answer, Receiver, receiver
from tilewatch.text import WORD_JOINER, one_line, without_mentions
from tilewatch.worker.notify.senders import (
    TAKEN,
    OutgoingMessage,
    SendResult,
    Service,
    Webhook,
    read_result,
    requested_wait_s,
    without_secrets,
)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("no such token T0KENT0KEN", "no such token ..."),
        ("cannot reach hooks.example.org", "cannot reach hooks.example.org"),
        ("user robot@hooks.example.org was refused with hunter2!", "user robot@hooks.example.org was refused with ..."),
    ],
)
def test_secrets_of_an_address_are_not_repeated(error: str, shown: str) -> None:
    assert without_secrets(error, "json://robot:hunter2!@hooks.example.org/T0KENT0KEN") == shown


def test_no_end_of_a_secret_is_left_where_another_secret_is_its_beginning() -> None:
    """A shorter piece that is replaced first leaves the rest of a longer one."""
    secrets = ["T0KEN0" + "123456"[:more] for more in range(7)]
    address = f"json://example.org/{'/'.join(secrets)}"
    assert without_secrets(f"unknown: {' '.join(secrets)}", address) == f"unknown: {' '.join(['...'] * len(secrets))}"


def test_an_address_that_no_service_has_is_given_up_without_being_shown() -> None:
    outcome = Service("nosuch://hunter2").send(OutgoingMessage("k", "digest", "subject", "body"))
    assert not outcome.again
    assert outcome.trouble is not None
    assert "hunter2" not in outcome.trouble


@pytest.fixture
def web() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


MESSAGE = OutgoingMessage("k", "digest", "subject", "first\nsecond", link="http://here")


@pytest.mark.parametrize(
    ("room", "body"),
    [
        (len("first\nsecond\n"), "first\nsecond"),
        (len("first\nsecond"), "and 2 more: http://here"),
        (-1, "and 2 more: http://here"),
    ],
)
def test_a_message_that_is_too_long_for_a_service_says_how_many_lines_are_missing(
    web: Receiver, room: int, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subject takes room too: some services show it above the text."""
    monkeypatch.setattr(NotifyJSON, "body_maxlen", len("subject\r\n") + room)
    assert Service(web.url.replace("http", "json")).send(MESSAGE) == TAKEN
    assert web.asked[0].json["message"] == body


def test_a_message_to_two_services_is_no_longer_than_either_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = list[str]()
    for service in (NotifyJSON, NotifyForm):
        monkeypatch.setattr(service, "send", lambda _, body, **__: bodies.append(body) or True)
    monkeypatch.setattr(NotifyJSON, "body_maxlen", len("subject\r\nfirst\nsecond"))
    assert Service("json://here.example.org, form://here.example.org").send(MESSAGE) == TAKEN
    assert bodies == ["and 2 more: http://here"] * 2


def test_a_service_gets_the_text_as_it_is_and_its_address_is_not_logged(
    web: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    text = "gemm<T> &amp; 3 < 4\n* next"
    with caplog.at_level(logging.DEBUG, "apprise"):
        sent = Service(f"{web.url.replace('http', 'json')}/T0KENT0KEN").send(replace(MESSAGE, body=text))
    assert (sent, web.asked[0].json["message"]) == (TAKEN, text)
    assert "T0KENT0KEN" not in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_webhook_that_sends_messages_elsewhere_is_given_up(web: Receiver, status: int) -> None:
    with receiver() as elsewhere:
        web.answer = lambda _: Answer(status, headers={"Location": elsewhere.url})
        sent = Webhook(web.url).send(MESSAGE)
    assert (sent.again, len(web.asked), elsewhere.asked) == (False, 1, [])
    assert sent.trouble is not None
    assert sent.trouble.startswith(f"the webhook answers {status} ")


@pytest.mark.parametrize(
    ("logged", "trouble"),
    [
        ([], "the service refused it"),
        ([("DEBUG", "connecting"), ("INFO", "sent nothing")], "the service refused it"),
        ([("WARNING", "no such room"), ("INFO", "closing")], "no such room"),
        ([("WARNING", "no such room"), ("ERROR", "no user T0KENT0KEN")], "no user ..."),
        ([("ERROR", "no such user"), ("CRITICAL", "no room")], "no room"),
    ],
)
def test_a_service_that_takes_no_message_is_tried_again_and_its_last_error_is_the_trouble(
    monkeypatch: pytest.MonkeyPatch, logged: Sequence[tuple[str, str]], trouble: str
) -> None:
    """Secrets in the error are left out."""

    def refuse(*_: object, **__: object) -> bool:
        for level, words in logged:
            getattr(apprise_logger, level.lower())(words)
        return False

    monkeypatch.setattr(NotifyJSON, "send", refuse)
    assert Service("json://robot:T0KENT0KEN@hooks.example.org").send(MESSAGE) == SendResult(trouble, again=True)


def test_a_webhook_gets_the_fields_of_a_message_under_its_key(web: Receiver) -> None:
    assert Webhook(web.url).send(MESSAGE) == TAKEN
    (asked,) = web.asked
    assert asked.headers["Idempotency-Key"] == "k"
    assert asked.json == {name: getattr(MESSAGE, name) for name in ("key", "kind", "subject", "body", "link")}


def test_a_webhook_that_cannot_be_reached_is_tried_again() -> None:
    with receiver() as gone:
        pass
    expected = SendResult("the webhook cannot be reached (ConnectionError)", again=True)
    assert Webhook(gone.url).send(MESSAGE) == expected


@pytest.mark.parametrize(
    ("asked_s", "wait_s"), [(None, None), (-1.0, 0.0), (0.0, 0.0), (61.0, 61.0), (86_400.0, 86_400.0), (1e9, 86_400.0)]
)
def test_a_wait_is_no_longer_than_a_day(asked_s: float | None, wait_s: float | None) -> None:
    assert SendResult.later("later", asked_s) == SendResult("later", again=True, wait_s=wait_s)


@pytest.mark.parametrize("status", [200, 204, 299, 300, 301, 400, 401, 404, 408, 410, 413, 415, 422, 429, 500, 503])
def test_a_refusal_is_final_and_other_failures_are_tried_again(status: int) -> None:
    answer = requests.Response()
    answer.status_code, answer.reason = status, "Why"
    trouble = f"the hook answers {status} Why"
    expected = TAKEN if status < 300 else SendResult(trouble, again=status not in (301, 400, 410, 413, 415, 422))
    assert read_result(answer, "the hook") == expected


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": " 61 "}, 61.0),
        ({"Retry-After": "Sat, 21 Nov 2026 12:01:00 GMT"}, 60.0),
        ({"Retry-After": "soon"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1795262490"}, 90.0),
        ({"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "1795262490"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}, None),
        ({"X-RateLimit-Remaining": "0"}, None),
        ({"Retry-After": "61", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1795262490"}, 61.0),
    ],
)
def test_a_wait_is_in_seconds_until_a_date_or_until_a_limit_ends(headers: dict[str, str], wait_s: float | None) -> None:
    """It is 12:00 in UTC, which is 1795262400 s after 1970 began."""
    answer, noon = requests.Response(), dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    answer.headers.update(headers)
    assert requested_wait_s(answer, noon) == wait_s


def test_a_commit_s_subject_cannot_fake_a_line() -> None:
    assert one_line("Fix\n\nCause: none") == "Fix Cause: none"


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("<!channel> <@U123> <#C1>", "<!"),
        ("gemm @everyone (@here)", "@e"),
        ("see [the log](http://x.example)", "]("),
        ("<http://x.example|our page>", "<h"),
    ],
)
def test_text_of_others_calls_nobody_and_hides_no_link(text: str, called: str) -> None:
    assert called in text
    assert called not in without_mentions(text)
    assert without_mentions(text).replace(WORD_JOINER, "") == text


def test_a_mail_address_and_a_comparison_stay_as_they_are() -> None:
    assert without_mentions("Owner: kim@example.org, 3 < 4, a <- b") == "Owner: kim@example.org, 3 < 4, a <\u2060- b"
