"""A commit's page says once that it slowed a kernel, through an API that limits and fails as GitHub's does."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
import requests

from tests.worker.fixtures.http_receiver import Answer, Asked, Receiver, receiver
from tilewatch.text import COMMENT_CHARACTERS
from tilewatch.worker.notify.forge import COMMENTS_A_PAGE, Forge, comment_of
from tilewatch.worker.notify.senders import TAKEN, OutgoingMessage, SendResult, read_result, requested_wait_s

KNOWN = "ghp_hunter2"
SHA = "bad0" * 10
MESSAGE = OutgoingMessage(
    "event 7 to commits",
    "opened",
    "gemm is 4.2 % slower",
    "+4.2 %\n@all ```",
    sha=SHA,
    about="gemm",
    link="http://here/e?run=7",
)
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


@dataclass
class Hub:
    """The part of GitHub's API that is used here, with its status codes."""

    receiver: Receiver
    statuses: list[dict[str, str]] = field(default_factory=list)
    comments: list[dict[str, str]] = field(default_factory=list)
    fail_after_comment: bool = False

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("Authorization") != f"Bearer {KNOWN}":
            return Answer(401, {"message": "Bad credentials"})
        path, _, query = asked.path.partition("?")
        if path == f"/repos/owner/name/statuses/{SHA}":
            if len(asked.json["description"]) > 140:
                return Answer(422, {"message": "Validation Failed"})
            self.statuses.append(asked.json)
            return Answer(201, asked.json)
        if path != f"/repos/owner/name/commits/{SHA}/comments":
            return Answer(404, {"message": "Not Found"})
        if asked.method == "GET":
            page = int(re.findall(r"\bpage=(\d+)", query)[-1]) - 1
            return Answer(200, self.comments[page * COMMENTS_A_PAGE : (page + 1) * COMMENTS_A_PAGE])
        self.comments.append(asked.json)
        return Answer(502) if self.fail_after_comment else Answer(201, asked.json)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with receiver() as running:
        made = Hub(running)
        running.answer = made.answer
        yield made


def forge(hub: Hub, token: str = KNOWN, repository: str = "owner/name") -> Forge:
    return Forge(repository, hub.receiver.url, token)


def test_a_regression_is_a_status_and_a_comment_of_its_commit(hub: Hub) -> None:
    assert forge(hub).send(MESSAGE).trouble is None
    (status,) = hub.statuses
    assert (status["state"], status["context"]) == ("failure", "tilewatch/gemm")
    assert (status["description"], status["target_url"]) == (MESSAGE.subject, MESSAGE.link)
    (comment,) = hub.comments
    assert "+4.2 %\n@all ```\n````" in comment["body"]  # a fence that is longer than the one in the text
    assert f"[Evidence]({MESSAGE.link})" in comment["body"]


@pytest.mark.parametrize(
    ("kind", "state"), [("check_fine", "success"), ("check_slower", "failure"), ("check_unsure", "error")]
)
def test_a_check_is_a_status_and_a_comment_for_good_commits_too(hub: Hub, kind: str, state: str) -> None:
    assert forge(hub).send(replace(MESSAGE, kind=kind, about="check h200")).trouble is None
    assert [(status["state"], status["context"]) for status in hub.statuses] == [(state, "tilewatch/check h200")]
    assert len(hub.comments) == 1


def test_a_kernel_s_name_mentions_nobody_in_the_heading_of_a_comment(hub: Hub) -> None:
    assert forge(hub).send(replace(MESSAGE, subject="@owner [a](http://x.example) is slower")).trouble is None
    heading = hub.comments[0]["body"].splitlines()[1]
    assert heading.replace("\u2060", "").replace("\\", "") == "**@owner [a](http://x.example) is slower**"
    assert not any(markup in heading for markup in ("@o", " [", "://"))


def test_recovery_is_a_status_alone(hub: Hub) -> None:
    assert forge(hub).send(replace(MESSAGE, kind="recovered")).trouble is None
    assert [status["state"] for status in hub.statuses] == ["success"]
    assert hub.comments == []


def test_a_comment_whose_answer_was_lost_is_not_written_twice(hub: Hub) -> None:
    hub.comments += [{"body": "something else"}] * COMMENTS_A_PAGE
    hub.fail_after_comment = True
    assert forge(hub).send(MESSAGE) == SendResult.later("the forge (owner/name) answers 502 Bad Gateway")
    hub.fail_after_comment = False
    assert forge(hub).send(replace(MESSAGE, attempt=2)).trouble is None
    assert len(hub.comments) == COMMENTS_A_PAGE + 1
    assert forge(hub).send(replace(MESSAGE, key="event 8 to commits", attempt=2)).trouble is None
    assert len(hub.comments) == COMMENTS_A_PAGE + 2


def test_a_description_is_as_long_as_the_api_takes(hub: Hub) -> None:
    assert forge(hub).send(replace(MESSAGE, subject="x" * 200)).trouble is None


def test_a_wrong_token_or_repository_is_waited_for_and_never_shown(hub: Hub) -> None:
    wrong = forge(hub, "ghp_wrong").send(MESSAGE)
    assert wrong == SendResult.later("the forge (owner/name) answers 401 Unauthorized")
    assert forge(hub, repository="owner/other").send(MESSAGE).again
    assert "ghp_" not in repr(forge(hub))


def test_a_limit_is_respected_for_as_long_as_it_says(hub: Hub) -> None:
    hub.receiver.answer = lambda _: Answer(403, headers={"Retry-After": "61"})
    assert forge(hub).send(MESSAGE).wait_s == 61


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"Retry-After": "30"}, 30),
        ({"Retry-After": "Sat, 21 Nov 2026 12:01:00 GMT"}, 60),
        ({"Retry-After": "Sat, 21 Nov 2026 12:01:00 -0000"}, 60),  # a date without a zone for Python
        ({"Retry-After": "Sat, 21 Nov 2026 13:01:00 +0100"}, 60),
        ({"Retry-After": "soon"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW.timestamp()) + 90)}, 90),
        ({"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": str(int(NOW.timestamp()) + 90)}, None),
    ],
)
def test_how_long_to_wait_is_read_from_the_answer(headers: dict[str, str], wait_s: float | None) -> None:
    answer = requests.Response()
    answer.status_code = 403
    answer.headers.update(headers)
    assert requested_wait_s(answer, NOW) == wait_s
    assert read_result(answer, "the forge", NOW).again


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
def test_a_redirect_is_no_message_that_was_sent(status: int) -> None:
    """A webhook whose address moved was marked as sent: requests calls everything below 400 ok."""
    answer = requests.Response()
    answer.status_code = status
    result = read_result(answer, "the hook", NOW)
    assert result.trouble == f"the hook answers {status}"
    assert result.again == (status == 304)


def test_a_forge_that_cannot_be_reached_is_waited_out() -> None:
    with receiver() as gone:
        pass
    unreached = Forge("owner/name", gone.url, KNOWN)
    assert (
        unreached.send(MESSAGE)
        == unreached.probe()
        == SendResult.later("the forge cannot be reached (ConnectionError)")
    )


@pytest.mark.parametrize("status", [404, 422, 503])
def test_a_commit_whose_status_is_refused_gets_no_comment(hub: Hub, status: int) -> None:
    """The next attempt begins with the status again, and would not look for a comment if it counted as the first."""
    hub.receiver.answer = lambda asked: Answer(status) if "/statuses/" in asked.path else hub.answer(asked)
    outcome = forge(hub).send(MESSAGE)
    assert outcome.trouble is not None
    assert f"the forge (owner/name) answers {status}" in outcome.trouble
    assert hub.comments == []


@pytest.mark.parametrize(("status", "is_taken"), [(200, True), (401, False), (404, False)])
def test_whether_a_token_reads_a_repository_is_asked_without_writing(hub: Hub, status: int, is_taken: bool) -> None:
    hub.receiver.answer = lambda _: Answer(status, {})
    outcome = forge(hub).probe()
    assert (outcome == TAKEN) == is_taken
    assert is_taken or f"the forge (owner/name) answers {status}" in (outcome.trouble or "")
    assert [(asked.method, asked.path) for asked in hub.receiver.asked] == [("GET", "/repos/owner/name")]


def test_a_digest_has_no_place_on_a_commit(hub: Hub) -> None:
    assert not forge(hub).send(replace(MESSAGE, kind="digest", sha=None)).again
    assert hub.receiver.asked == []


def test_a_comment_of_500_operators_keeps_githubs_limit_and_counts_the_rest() -> None:
    lines = [f"gemm_fp8 {number}x4096x7168: slower +{600 - number} % {'x' * 150}" for number in range(500)]
    body = comment_of(replace(MESSAGE, body="\n".join(lines)))
    assert len("\n".join(lines)) > 65_536
    assert len(body) <= 60_000
    assert lines[0] in body
    left_out = int(re.findall(r"^and (\d+) more: http://here/e\?run=7$", body, re.MULTILINE)[0])
    assert sum(line in body for line in lines) == 500 - left_out
    assert body.splitlines()[-2:] == ["```", "[Evidence](http://here/e?run=7)"]


def test_the_longest_comment_that_keeps_the_limit_is_whole() -> None:
    """Each line counts with its end, so the limit is met but for the end of the last one."""
    room = COMMENT_CHARACTERS - 1 - len(comment_of(replace(MESSAGE, body="")))
    longest = (f"{'x' * 99}\n" * (room // 100 + 1))[:room]
    whole = comment_of(replace(MESSAGE, body=longest))
    assert longest in whole
    assert len(whole) == COMMENT_CHARACTERS - 1
    assert re.search(r"^and \d more: ", comment_of(replace(MESSAGE, body=f"{longest}y")), re.MULTILINE)


def test_a_body_of_backticks_keeps_the_limit() -> None:
    assert len(comment_of(replace(MESSAGE, body="`" * 200_000))) <= 60_000
