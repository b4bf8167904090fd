"""Opens, changes and closes pull requests on GitHub and merge requests on GitLab."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import requests

from tilewatch.errors import ExpectedError
from tilewatch.worker.notify.routing import PullRequestPlace
from tilewatch.worker.notify.senders import ANSWER_LIMIT_S, CONNECT_LIMIT_S, read_result

State = Literal["open", "merged", "closed"]


class ForgeFailed(ExpectedError):
    """Raised if the forge refuses a request. The message is a sentence."""


class ForgeAway(ForgeFailed):
    """Raised if the forge does not answer now. A later attempt may succeed."""


class Found(NamedTuple):
    number: int
    url: str
    state: State


class _Words(NamedTuple):
    """The names of paths and fields in a forge's API."""

    api: str
    project: str
    pulls: str
    number: str
    url: str
    body: str
    source: str
    target: str
    change: str
    closed: dict[str, str]
    comments: str


GITHUB = ("https://api.github.com", "repos/{}", "pulls", "number", "html_url", "body", "head", "base")
GITLAB = ("https://gitlab.com/api/v4", "projects/{}", "merge_requests", "iid", "web_url", "description")
WORDS = {
    "github": _Words(*GITHUB, "PATCH", {"state": "closed"}, "issues/{}/comments"),
    "gitlab": _Words(
        *GITLAB, "source_branch", "target_branch", "PUT", {"state_event": "close"}, "merge_requests/{}/notes"
    ),
}


@dataclass(frozen=True)
class PullRequestForge:
    """A project on a forge, with methods for its pull requests. Each may raise ForgeFailed."""

    place: PullRequestPlace
    token: str = field(repr=False)

    def find(self, branch: str) -> Found | None:
        """Returns the newest pull request of a branch, open or closed; None if there is none."""
        owner = f"{self.place.forge.partition('/')[0]}:" if self.place.kind == "github" else ""
        found = self._ask("GET", self._words.pulls, params={self._words.source: f"{owner}{branch}", "state": "all"})
        return self._read(found[0]) if isinstance(found, list) and found else None

    def read(self, number: int) -> Found:
        return self._read(self._ask("GET", f"{self._words.pulls}/{number}"))

    def create(self, branch: str, target: str, title: str, body: str) -> Found:
        words = self._words
        asked = {words.source: branch, words.target: target, "title": title, words.body: body}
        return self._read(self._ask("POST", words.pulls, json=asked))

    def change(self, number: int, title: str, body: str) -> Found:
        words, asked = self._words, {"title": title, self._words.body: body}
        return self._read(self._ask(words.change, f"{words.pulls}/{number}", json=asked))

    def close(self, number: int, comment: str) -> None:
        """Closes a pull request with a comment."""
        self._ask("POST", self._words.comments.format(number), json={"body": comment})
        self._ask(self._words.change, f"{self._words.pulls}/{number}", json=self._words.closed)

    @property
    def _words(self) -> _Words:
        return WORDS[self.place.kind]

    def _read(self, answer: Any) -> Found:
        try:
            is_merged = answer.get("merged_at") is not None or answer["state"] == "merged"
            state: State = "merged" if is_merged else "open" if answer["state"] in ("open", "opened") else "closed"
            return Found(int(answer[self._words.number]), str(answer[self._words.url]), state)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ForgeFailed(f"the forge ({self.place.forge}) answers something else than a pull request") from None

    def _ask(self, method: str, path: str, **parameters: Any) -> Any:
        words, who = self._words, f"the forge ({self.place.forge})"
        project = words.project.format(self.place.forge if self.place.kind == "github" else quote(self.place.forge, ""))
        try:
            answer = requests.request(
                method,
                f"{(self.place.api or words.api).rstrip('/')}/{project}/{path}",
                headers={"Accept": "application/json", "Authorization": f"Bearer {self.token}"},
                timeout=(CONNECT_LIMIT_S, ANSWER_LIMIT_S),
                allow_redirects=False,  # so that the token is not sent to another address
                **parameters,
            )
            if (trouble := read_result(answer, who).trouble) is not None:
                raise (ForgeAway if answer.status_code >= 500 or answer.status_code == 429 else ForgeFailed)(trouble)
            return answer.json()
        except requests.RequestException as error:
            raise ForgeAway(f"{who} cannot be reached ({type(error).__name__})") from None
