"""Writes numbers and commits as text, and makes other people's text safe to show."""

import html
import re
from collections.abc import Sequence

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""The control characters except the tab and the new line. They can change a terminal's title, cursor and clipboard.
Those from U+061C on change the direction of text, so that a name can look like another."""

_MARKDOWN = re.compile(r"([\\`*\[\]<>$|~&]|(?<!\w)_|_(?!\w)|:(?=[A-Za-z]))")
_SIGNS = re.compile(r"(?<=[-<])(\\?)(?=[->])|(?<=[<>~])(?==)|(?<=:)(?=[\w+-]+\\?:)")
"""Places inside an arrow, a dash, a comparison or a word like :+1:, which Streamlit draws as one character."""

_BLOCK = re.compile(r"\A(\d{1,9}(?=[.)](?: |\Z))|(?=#{1,6}(?: |\Z)|[+-] ))")
"""The pattern of the place at the beginning of a line by which Markdown recognises a heading or a list."""

_ADDRESS = re.compile(r":(?=//)|\bwww(?=\.)|@", re.IGNORECASE)
WORD_JOINER = "\N{WORD JOINER}"
"""An invisible character. In the right place, it keeps a text from being read as a link, a mention or a formula."""

_MENTION = re.compile(r"<(?=\S)|(?<![\w.+-])@(?=\w)|\](?=[(\[])")

LONGEST_NAME = 500
"""The most characters of a name, because an index of Postgres takes about 2,700 bytes."""

LONGEST_FAILURE = 4_000
"""The most characters of a library's error text, which may contain a whole file."""

_IN_URL = re.compile(r"(?P<before>[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*:)\S+@")
"""The pattern of a password in a URL. It ends at the last @, as an unescaped password may contain an @ or a slash."""

_NAMED = re.compile(
    r"(?i)(?P<before>\b[\w-]*(?:password|passwd|secret|token|api_?key|access_?key)\b['\"]?\s*[=:]\s*)"
    r"(?:'[^']*'|\"[^\"]*\"|[^\s,;&]+)"
)
_BEARER = re.compile(r"(?i)(?P<before>\bBearer\s+)[\w.~+/=-]{8,}")
_PRIVATE_KEY = re.compile(r"(?P<before>-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:(?!-----END).)*", re.DOTALL)
_TOKEN = re.compile(
    r"\b(?P<before>gh[opsur]_|github_pat_|glpat-|xox[abprs]-|AKIA|sk-|hf_|eyJ(?=[\w-]+\.[\w-]+\.))[\w.-]{12,}"
)
"""The pattern of tokens of forges, chats and clouds, which begin with known letters."""

SAME_IN_PLURAL = ("series",)

COMMENT_CHARACTERS = 60_000
"""The most characters of a comment on a forge. GitHub takes 65,536, GitLab 1,000,000 (2026-11)."""

STATUS_CHARACTERS = 140
"""The most characters of a commit status's description, which GitHub limits. GitLab takes 255 (2026-11)."""

LINE_CHARACTERS = 2_000
"""The most characters of a line, such as one that names several hundred problems."""


def is_name(text: object) -> bool:
    """Returns whether a value is short, printable text that can be shown as a name."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and text.isprintable()


def short_sha(sha: str) -> str:
    """Returns the first digits of a commit's hash, for people to read and type."""
    return sha[:10]


def count_text(count: int, noun: str) -> str:
    """Returns a number with its noun: "1 config", "2 configs", "2 series"."""
    several = noun if noun.endswith(SAME_IN_PLURAL) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else several}"


def write_uncounted(examples: int, recorded: int) -> str:
    """Returns a sentence that says how many changes pages leave out; "" if no change is left out."""
    parts = [count_text(examples, "planted example")] if examples else []
    parts += [f"{count_text(recorded, 'change')} that came with recordings"] if recorded else []
    return f"Not counted: {' and '.join(parts)}." if parts else ""


def change_text(change: float) -> str:
    """Returns a relative change as text: 0.0312 is "+3.1 %"."""
    return f"{round(100 * change, 1) + 0.0:+.1f} %"  # + 0.0: a change that rounds to zero is never "-0.0 %"


def write_change(change: float) -> str:
    """Returns a relative change of a time in words: -0.031 is "-3.1 % time, faster"."""
    words = change_text(change)
    if words == "+0.0 %":
        return f"{words} time"
    return f"{words} time, {'slower' if change > 0 else 'faster'}"


def name_version(baseline: str, version: str) -> str:
    """Returns a baseline's name with the version of DeepGEMM or PyTorch, such as "deepgemm 0.2.5"."""
    return f"{baseline} {version}" if baseline.startswith("deepgemm") else f"{baseline} torch {version}"


def has_version(baseline: str) -> bool:
    """Returns whether a baseline's name contains a version. Such a baseline is never a run's main baseline."""
    return " " in baseline


def without_controls(text: str) -> str:
    """Returns other people's text with control characters replaced, so that a terminal can show it."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def without_passwords(text: str) -> str:
    """Returns a text with *** in place of passwords, tokens and private keys."""
    for pattern, end in ((_IN_URL, "@"), (_BEARER, ""), (_PRIVATE_KEY, ""), (_NAMED, ""), (_TOKEN, "")):
        text = pattern.sub(rf"\g<before>***{end}", text)
    return text


def failure_text(text: str) -> str:
    """Returns a library's error text without passwords, with at most LONGEST_FAILURE characters."""
    clean = without_passwords(text[: 2 * LONGEST_FAILURE])
    return clean if len(clean) <= LONGEST_FAILURE else f"{clean[: LONGEST_FAILURE - 4]} ..."


def plain(value: object) -> str:
    """Returns other people's text on one line, escaped so that Markdown shows it unchanged."""
    escaped = _BLOCK.sub(r"\1\\", _MARKDOWN.sub(r"\\\1", one_line(value)))
    return _ADDRESS.sub(lambda found: found[0] + WORD_JOINER, _SIGNS.sub(rf"{WORD_JOINER}\1", escaped))


def plain_code(value: object) -> str:
    """Returns other people's text as Markdown code on one line."""
    return "`" + one_line(value).replace("`", "'") + "`"


def plain_html(value: object) -> str:
    """Returns other people's text on one line, escaped for HTML, for example in a chart."""
    return html.escape(one_line(value), quote=False)


def one_line(value: object) -> str:
    """Returns other people's text on one line, without control characters."""
    return " ".join(without_controls(str(value)).split())


def without_links(markdown: str) -> str:
    """Returns other people's Markdown in which links and pictures are plain text. Headings and tables remain."""
    shown = re.sub(r"\](?=[(\[:])", "]" + WORD_JOINER, without_controls(markdown))
    return _ADDRESS.sub(lambda found: found[0] + WORD_JOINER, shown)


def without_mentions(text: str) -> str:
    """Returns other people's text for a chat, without mentions such as @everyone and without hidden links."""
    return _MENTION.sub(lambda found: found[0] + WORD_JOINER, without_controls(text))


def shorten(text: str, longest: int) -> str:
    """Returns a text with at most `longest` characters. A cut text ends with an ellipsis."""
    return text if len(text) <= longest else f"{text[: max(longest - 1, 0)]}…"


def fit_lines(lines: Sequence[str], longest: int, link: str | None = None) -> list[str]:
    """Returns the first lines that fit into `longest` characters. If lines are missing, a last line says how many."""
    short = [shorten(line, min(LINE_CHARACTERS, longest)) for line in lines]
    if sum(len(line) + 1 for line in short) <= longest:
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
