"""Reports regressions and checks on a forge such as GitHub, as statuses and comments. A repeated report does no
harm."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

from tilewatch.text import COMMENT_CHARACTERS, STATUS_CHARACTERS, fit_lines, plain, shorten
from tilewatch.worker.notify.senders import (
    ANSWER_LIMIT_S,
    CONNECT_LIMIT_S,
    TAKEN,
    OutgoingMessage,
    SendResult,
    is_accepted,
    read_result,
)

COMMENTS_A_PAGE = 100
MOST_PAGES = 10
STATES = {
    "opened": "failure",
    "reopened": "failure",
    "recovered": "success",
    "resolved": "success",
    "expected": "success",
    "check_fine": "success",
    "check_slower": "failure",
    "check_unsure": "error",
}
"""The commit status for each kind of message that is sent to a forge."""

COMMENTED = ("opened", "reopened", "check_fine", "check_slower", "check_unsure")
"""The kinds of message that also become a comment. People wait for these or must act on them."""


@dataclass(frozen=True)
class Forge:
    repository: str
    api: str
    token: str = field(repr=False)
    repeatable: bool = True

    def send(self, message: OutgoingMessage) -> SendResult:
        if message.sha is None or message.kind not in STATES:
            return SendResult.never(f"a forge cannot show a message of the kind {message.kind}")
        try:
            outcome = self._set_status(message, message.sha)
            if outcome.trouble is None and message.kind in COMMENTED:
                outcome = self._comment(message, message.sha)
            return outcome
        except requests.RequestException as error:
            return SendResult.later(f"the forge cannot be reached ({type(error).__name__})")

    def probe(self) -> SendResult:
        """Returns whether the token can read the repository, without writing anything."""
        try:
            return self._outcome(self._request("GET", ""))
        except requests.RequestException as error:
            return SendResult.later(f"the forge cannot be reached ({type(error).__name__})")

    def _set_status(self, message: OutgoingMessage, sha: str) -> SendResult:
        status = {
            "state": STATES[message.kind],
            # one status per kernel, because a commit may slow down two kernels, and only one may recover
            "context": f"tilewatch/{message.about}",
            "description": shorten(message.subject, STATUS_CHARACTERS),
            **({"target_url": message.link} if message.link else {}),
        }
        return self._outcome(self._request("POST", f"statuses/{sha}", json=status))

    def _comment(self, message: OutgoingMessage, sha: str) -> SendResult:
        """Writes a comment on a commit. After a failed attempt, checks first whether the comment exists."""
        if message.attempt > 1:
            for answer in self._comment_pages(sha):
                if not is_accepted(answer):
                    return self._outcome(answer)
                if any(marker(message.key) in str(comment.get("body")) for comment in answer.json()):
                    return TAKEN
        return self._outcome(self._request("POST", f"commits/{sha}/comments", json={"body": comment_of(message)}))

    def _comment_pages(self, sha: str) -> Iterator[requests.Response]:
        for page in range(1, MOST_PAGES + 1):
            window = {"per_page": COMMENTS_A_PAGE, "page": page}
            answer = self._request("GET", f"commits/{sha}/comments", params=window)
            yield answer
            if not is_accepted(answer) or len(answer.json()) < COMMENTS_A_PAGE:
                return

    def _request(self, method: str, path: str, **parameters: Any) -> requests.Response:
        return requests.request(
            method,
            f"{self.api.rstrip('/')}/repos/{self.repository}/{path}".rstrip("/"),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "X-GitHub-Api-Version": "2022-11-28",
            },
            timeout=(CONNECT_LIMIT_S, ANSWER_LIMIT_S),
            allow_redirects=False,  # so that the token is not sent to another address
            **parameters,
        )

    def _outcome(self, answer: requests.Response) -> SendResult:
        return read_result(answer, f"the forge ({self.repository})")


def marker(key: str) -> str:
    """Returns a hidden HTML comment with a message's key."""
    # "--" would end the comment.
    return f"<!-- tilewatch: {key.replace('--', '- -')} -->"


def comment_of(message: OutgoingMessage) -> str:
    """Returns a message as a Markdown comment in which mentions and links in commit subjects are disabled."""
    lines = fit_lines(message.body.split("\n"), COMMENT_CHARACTERS)
    longest = max((len(ticks) for line in lines for ticks in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    heading = f"**{plain(shorten(message.subject, STATUS_CHARACTERS))}**"
    before = [marker(message.key), heading, f"{fence}text"]
    after = [fence, f"[Evidence]({message.link})"] if message.link else [fence]
    left = COMMENT_CHARACTERS - sum(len(line) + 1 for line in (*before, *after))
    return "\n".join([*before, *fit_lines(message.body.split("\n"), left, message.link), *after])
