"""The limits of the services that take a message, and how a text is made to keep them.

A forge refuses a longer text for good (GitHub with 422), so each text is cut before it is sent.
"""

from collections.abc import Sequence

COMMENT_CHARACTERS = 60_000
"""GitHub takes 65,536 in a comment, GitLab 1,000,000 (2026-11)."""

STATUS_CHARACTERS = 140
"""GitHub takes so many in the description of a status, GitLab 255 (2026-11)."""

LINE_CHARACTERS = 2_000
"""A line of several hundred problems says no more than its beginning."""


def shorten(text: str, longest: int) -> str:
    """Returns a text of at most so many characters, the last one an ellipsis where some are left out."""
    return text if len(text) <= longest else f"{text[: max(longest - 1, 0)]}…"


def fit_lines(lines: Sequence[str], longest: int, link: str | None = None) -> list[str]:
    """Returns the first lines that have at most so many characters together. The last line then counts the others,
    with a link to all of them."""
    short = [shorten(line, min(LINE_CHARACTERS, longest)) for line in lines]
    if _count_characters(short) <= longest:
        return short
    end = f"and {len(lines):,} more" + (f": {link}" if link else "")
    kept: list[str] = []
    left = longest - len(end) - 1
    for line in short:
        if len(line) + 1 > left:
            break
        kept.append(line)
        left -= len(line) + 1
    return [*kept, end.replace(f"{len(lines):,}", f"{len(lines) - len(kept):,}", 1)]


def _count_characters(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)
