"""Pull requests on GitHub and GitLab, and which failures pass by themselves. A real web server plays the forge."""

import re
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from tests.worker.fixtures.http_receiver import Answer, Receiver, receiver
from tilewatch.worker.notify.pull_requests import ForgeAway, ForgeFailed, Found, PullRequestForge
from tilewatch.worker.notify.routing import PullRequestPlace

Kind = Literal["github", "gitlab"]
TOKEN = "token-of-ours"  # noqa: S105 - made up
PAGE = "https://forge.example.org/7"
GITHUB = {"number": 7, "html_url": PAGE, "state": "open", "merged_at": None}
GITLAB = {"iid": 7, "web_url": PAGE, "state": "opened"}
OPEN: dict[Kind, dict[str, Any]] = {"github": GITHUB, "gitlab": GITLAB}


@pytest.fixture
def web() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def open_project(web: Receiver, kind: Kind = "github") -> PullRequestForge:
    return PullRequestForge(PullRequestPlace(forge="owner/kernels", kind=kind, api=f"{web.url}/"), TOKEN)


@pytest.mark.parametrize(
    ("status", "is_away"),
    [(301, False), (401, False), (404, False), (422, False), (428, False), (429, True), (499, False), (500, True)],
)
def test_a_forge_that_limits_or_fails_is_away_and_one_that_refuses_is_not(
    web: Receiver, status: int, is_away: bool
) -> None:
    web.answer = lambda _: Answer(status)
    with pytest.raises(ForgeFailed, match=rf"^the forge \(owner/kernels\) answers {status}") as failed:
        open_project(web).read(7)
    assert isinstance(failed.value, ForgeAway) == is_away
    assert len(web.asked) == 1, "a redirect is not followed, because it would get the token"


def test_a_forge_that_cannot_be_reached_is_away_and_its_token_stays_secret() -> None:
    with receiver() as gone:
        pass
    forge = open_project(gone)
    with pytest.raises(ForgeAway, match=r"^the forge \(owner/kernels\) cannot be reached \(ConnectionError\)$"):
        forge.read(7)
    assert TOKEN not in repr(forge)


@pytest.mark.parametrize(
    ("kind", "answer", "state"),
    [
        ("github", GITHUB, "open"),
        ("github", {**GITHUB, "state": "closed"}, "closed"),
        ("github", {**GITHUB, "state": "closed", "merged_at": "2026-11-28T12:00:00Z"}, "merged"),
        ("gitlab", GITLAB, "open"),
        ("gitlab", {**GITLAB, "state": "closed"}, "closed"),
        ("gitlab", {**GITLAB, "state": "locked"}, "closed"),
        ("gitlab", {**GITLAB, "state": "merged"}, "merged"),
        ("gitlab", {**GITLAB, "iid": "7"}, "open"),
    ],
)
def test_a_pull_request_is_open_merged_or_closed(web: Receiver, kind: Kind, answer: dict[str, Any], state: str) -> None:
    web.answer = lambda _: Answer(200, answer)
    assert open_project(web, kind).read(7) == Found(7, PAGE, state)  # type: ignore[arg-type]  # one of them


@pytest.mark.parametrize("answer", [7, [], {}, {**GITHUB, "number": "seven"}, {**GITHUB, "number": None}])
def test_an_answer_that_is_no_pull_request_is_a_failure_that_stays(web: Receiver, answer: Any) -> None:
    web.answer = lambda _: Answer(200, answer)
    with pytest.raises(ForgeFailed, match="answers something else than a pull request") as failed:
        open_project(web).read(7)
    assert not isinstance(failed.value, ForgeAway)


def test_the_newest_pull_request_of_a_branch_is_found_or_none(web: Receiver) -> None:
    for kind, branch in (("github", "head=owner%3Atuned"), ("gitlab", "source_branch=tuned")):
        web.answer = lambda _, kind=kind: Answer(200, [OPEN[kind], {}])  # type: ignore[misc]  # one per forge
        assert open_project(web, kind).find("tuned") == Found(7, PAGE, "open")  # type: ignore[arg-type]
        assert set(web.asked[-1].path.partition("?")[2].split("&")) == {branch, "state=all"}
    for nothing in ([], {}, None):
        web.answer = lambda _, nothing=nothing: Answer(200, nothing)  # type: ignore[misc]  # one per answer
        assert open_project(web).find("tuned") is None


COMMENT, TEXT = {"body": "why"}, {"title": "t", "body": "b"}
REQUESTS: dict[Kind, list[tuple[str, str, dict[str, str]]]] = {
    "github": [
        ("POST", "/repos/owner/kernels/pulls", {"head": "tuned", "base": "main", **TEXT}),
        ("PATCH", "/repos/owner/kernels/pulls/7", TEXT),
        ("POST", "/repos/owner/kernels/issues/7/comments", COMMENT),
        ("PATCH", "/repos/owner/kernels/pulls/7", {"state": "closed"}),
    ],
    "gitlab": [
        (
            "POST",
            "/projects/owner%2Fkernels/merge_requests",
            {"source_branch": "tuned", "target_branch": "main", "title": "t", "description": "b"},
        ),
        ("PUT", "/projects/owner%2Fkernels/merge_requests/7", {"title": "t", "description": "b"}),
        ("POST", "/projects/owner%2Fkernels/merge_requests/7/notes", COMMENT),
        ("PUT", "/projects/owner%2Fkernels/merge_requests/7", {"state_event": "close"}),
    ],
}
"""The requests that create, change and close a pull request, by the documentation of each API (2026-11)."""


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_pull_request_is_created_changed_and_closed_in_the_words_of_its_forge(web: Receiver, kind: Kind) -> None:
    web.answer = lambda _: Answer(200, OPEN[kind])
    forge = open_project(web, kind)
    assert forge.create("tuned", "main", "t", "b") == forge.change(7, "t", "b") == Found(7, PAGE, "open")
    forge.close(7, "why")
    assert [(each.method, each.path, each.json) for each in web.asked] == REQUESTS[kind]
    assert {each.headers["Authorization"] for each in web.asked} == {f"Bearer {TOKEN}"}
    assert re.match("application/json", web.asked[0].headers["Accept"])
