"""A regression on the pages of a forge: a status and one comment on its commit, through GitHub's API or one like it.

A status replaces the one before of its name, and a comment carries its note's key where nobody reads, so a note that is
sent twice is there once. Knows no database; the token is in no message, log line or repr.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

from tilewatch.worker.notify.senders import ANSWER_LIMIT_S, CONNECT_LIMIT_S, TAKEN, Note, Outcome, outcome_of

LONGEST_DESCRIPTION = 140  # characters that GitHub takes in a status
COMMENTS_A_PAGE = 100
MOST_PAGES = 10
STATES = {
    "opened": "failure",
    "reopened": "failure",
    "recovered": "success",
    "resolved": "success",
    "expected": "success",
}
"""What a commit's status says, by the kind of the note; a note of another kind is nothing a forge has a place for."""


@dataclass(frozen=True)
class Forge:
    repository: str
    api: str
    token: str = field(repr=False)
    repeatable: bool = True

    def carry(self, note: Note) -> Outcome:
        if note.sha is None or note.kind not in STATES:
            return Outcome.never(f"a forge has no place for a note of the kind {note.kind}")
        try:
            outcome = self._set_status(note, note.sha)
            if outcome.trouble is None and STATES[note.kind] == "failure":
                outcome = self._comment(note, note.sha)
            return outcome
        except requests.RequestException as error:
            return Outcome.later(f"the forge cannot be reached ({type(error).__name__})")

    def probe(self) -> Outcome:
        """Whether the repository is there for this token; nothing is written."""
        try:
            return self._outcome(self._ask("GET", ""))
        except requests.RequestException as error:
            return Outcome.later(f"the forge cannot be reached ({type(error).__name__})")

    def _set_status(self, note: Note, sha: str) -> Outcome:
        told = {
            "state": STATES[note.kind],
            # One per kernel: a commit may slow two, and one that recovers says nothing of the other.
            "context": f"tilewatch/{note.kernel}",
            "description": shortened(note.subject, LONGEST_DESCRIPTION),
            **({"target_url": note.link} if note.link else {}),
        }
        return self._outcome(self._ask("POST", f"statuses/{sha}", json=told))

    def _comment(self, note: Note, sha: str) -> Outcome:
        """Only a second attempt can find the first one's comment there, so only it looks."""
        if note.attempt > 1:
            for answer in self._comment_pages(sha):
                if not answer.ok:
                    return self._outcome(answer)
                if any(marker(note.key) in str(comment.get("body")) for comment in answer.json()):
                    return TAKEN
        return self._outcome(self._ask("POST", f"commits/{sha}/comments", json={"body": comment_of(note)}))

    def _comment_pages(self, sha: str) -> Iterator[requests.Response]:
        for page in range(1, MOST_PAGES + 1):
            asked = {"per_page": COMMENTS_A_PAGE, "page": page}
            answer = self._ask("GET", f"commits/{sha}/comments", params=asked)
            yield answer
            if not answer.ok or len(answer.json()) < COMMENTS_A_PAGE:
                return

    def _ask(self, method: str, path: str, **told: Any) -> requests.Response:
        return requests.request(
            method,
            f"{self.api.rstrip('/')}/repos/{self.repository}/{path}".rstrip("/"),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "X-GitHub-Api-Version": "2022-11-28",
            },
            timeout=(CONNECT_LIMIT_S, ANSWER_LIMIT_S),
            allow_redirects=False,  # a moved repository is said, and the token goes nowhere else
            **told,
        )

    def _outcome(self, answer: requests.Response) -> Outcome:
        return outcome_of(answer, f"the forge ({self.repository})")


def marker(key: str) -> str:
    """Invisible on the page. A key has no `-->` in it, but a comment must not be broken by one that had."""
    return f"<!-- tilewatch: {key.replace('--', '- -')} -->"


def comment_of(note: Note) -> str:
    """The text goes into a fence: what a commit's subject holds then mentions nobody and links nowhere."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", note.body)), default=0)
    fence = "`" * max(3, longest + 1)
    heading = f"**{shortened(note.subject, LONGEST_DESCRIPTION)}**"
    lines = [marker(note.key), heading, f"{fence}text", note.body, fence]
    return "\n".join([*lines, f"[Evidence]({note.link})"] if note.link else lines)


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
