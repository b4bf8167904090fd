"""Words for numbers and commits that every part of the product writes alike. Knows nothing else of the product."""

import html
import re
from collections.abc import Sequence

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""All but the tab and the new line: a terminal takes them for orders (its title, its cursor, its clipboard). Those of
Unicode show what follows from right to left, so that a name reads as another."""

_MARKDOWN = re.compile(r"([\\`*\[\]<>$|~&]|(?<!\w)_|_(?!\w)|:(?=[A-Za-z]))")
_SIGNS = re.compile(r"(?<=[-<])(\\?)(?=[->])|(?<=[<>~])(?==)|(?<=:)(?=[\w+-]+\\?:)")
"""A place between the letters of an arrow, a dash or a comparison, or in a word like :+1:. Streamlit draws each as one
sign, also where it is escaped."""

_ADDRESS = re.compile(r":(?=//)|\bwww(?=\.)|@", re.IGNORECASE)
WORD_JOINER = "\N{WORD JOINER}"
"""Nobody sees it, and no program takes what it parts for a link, a mention or a formula."""

_MENTION = re.compile(r"<(?=\S)|(?<![\w.+-])@(?=\w)|\](?=[(\[])")

LONGEST_NAME = 500
"""The longest name in characters: an index of Postgres takes about 2,700 bytes."""

LONGEST_FAILURE = 4_000
"""Letters of what a library says of its end: it may have read a file, and raises it."""

_IN_URL = re.compile(r"(?P<before>[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*:)\S+@")
"""Up to the last @: a password that was not escaped may have one, or a slash."""

_NAMED = re.compile(
    r"(?i)(?P<before>\b[\w-]*(?:password|passwd|secret|token|api_?key|access_?key)\b['\"]?\s*[=:]\s*)"
    r"(?:'[^']*'|\"[^\"]*\"|[^\s,;&]+)"
)
_BEARER = re.compile(r"(?i)(?P<before>\bBearer\s+)[\w.~+/=-]{8,}")
_PRIVATE_KEY = re.compile(r"(?P<before>-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:(?!-----END).)*", re.DOTALL)
_TOKEN = re.compile(
    r"\b(?P<before>gh[opsur]_|github_pat_|glpat-|xox[abprs]-|AKIA|sk-|hf_|eyJ(?=[\w-]+\.[\w-]+\.))[\w.-]{12,}"
)
"""Tokens of forges, chats and clouds, which begin by what they are."""

SAME_IN_PLURAL = ("series",)

COMMENT_CHARACTERS = 60_000
"""GitHub takes 65,536 in a comment, GitLab 1,000,000 (2026-11)."""

STATUS_CHARACTERS = 140
"""GitHub takes so many in the description of a status, GitLab 255 (2026-11)."""

LINE_CHARACTERS = 2_000
"""A line of several hundred problems says no more than its beginning."""


def is_name(text: object) -> bool:
    """Returns whether tables, pages and terminals can show this as a name: visible letters on one line, and not too
    many."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and text.isprintable()


def short_sha(sha: str) -> str:
    """Returns the first digits of a commit, which people read and type."""
    return sha[:10]


def count_text(count: int, noun: str) -> str:
    """Writes a number with its noun: "1 config", "2 configs", "2 series"."""
    several = noun if noun.endswith(SAME_IN_PLURAL) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else several}"


def change_text(change: float) -> str:
    """Writes a relative change: 0.0312 is "+3.1 %". A change that rounds to nothing is "+0.0 %" from either side."""
    return f"{round(100 * change, 1) + 0.0:+.1f} %"


def write_change(change: float) -> str:
    """A relative change of a time with the word for it: -0.031 is "-3.1 % time, faster". What rounds to nothing has no
    word."""
    words = change_text(change)
    if words == "+0.0 %":
        return f"{words} time"
    return f"{words} time, {'slower' if change > 0 else 'faster'}"


def name_version(baseline: str, version: str) -> str:
    """Returns the name of a baseline whose library has this version, such as "deepgemm 0.2.5": times of an environment
    are stored under it. PyTorch brings all but DeepGEMM."""
    return f"{baseline} {version}" if baseline.startswith("deepgemm") else f"{baseline} torch {version}"


def has_version(baseline: str) -> bool:
    """Returns whether these are times of an environment of another version, which is never the main baseline."""
    return " " in baseline


def without_controls(text: str) -> str:
    """Returns other people's text as a terminal may show it: each control character becomes a replacement character."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def without_passwords(text: str) -> str:
    """Puts *** for passwords: in scheme://user:password@host, password=... and X_TOKEN=..., after Bearer, in a private
    key, and in tokens that begin by what they are."""
    for pattern, end in ((_IN_URL, "@"), (_BEARER, ""), (_PRIVATE_KEY, ""), (_NAMED, ""), (_TOKEN, "")):
        text = pattern.sub(rf"\g<before>***{end}", text)
    return text


def failure_text(text: str) -> str:
    """Text that a library gave as the reason of a failure: without passwords, and not too long."""
    clean = without_passwords(text[: 2 * LONGEST_FAILURE])
    return clean if len(clean) <= LONGEST_FAILURE else f"{clean[: LONGEST_FAILURE - 4]} ..."


def plain(value: object) -> str:
    """Returns other people's text for a place that draws Markdown: no link, no picture, no formula, no colour, one
    line. An address becomes a link by itself, escaped or not, unless something invisible stands in it."""
    escaped = _MARKDOWN.sub(r"\\\1", one_line(value))
    return _ADDRESS.sub(lambda found: found[0] + WORD_JOINER, _SIGNS.sub(rf"{WORD_JOINER}\1", escaped))


def plain_code(value: object) -> str:
    """Returns text of other people in one line, as code in Markdown."""
    return "`" + one_line(value).replace("`", "'") + "`"


def plain_html(value: object) -> str:
    """Returns text of other people in one line, as HTML, as in the words of a chart."""
    return html.escape(one_line(value), quote=False)


def one_line(value: object) -> str:
    """Returns text of other people without controls, in one line."""
    return " ".join(without_controls(str(value)).split())


def without_links(markdown: str) -> str:
    """Returns a document of others in Markdown: it keeps its headings and tables, and has no link and no picture."""
    shown = re.sub(r"\](?=[(\[:])", "]" + WORD_JOINER, without_controls(markdown))
    return _ADDRESS.sub(lambda found: found[0] + WORD_JOINER, shown)


def without_mentions(text: str) -> str:
    """Returns other people's text as a chat may show it: it calls nobody (<!channel>, @everyone), and none of its words
    hide a link. A mail address stays as it is."""
    return _MENTION.sub(lambda found: found[0] + WORD_JOINER, without_controls(text))


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
