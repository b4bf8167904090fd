"""Writes and reads the answers of child processes, each one line of JSON."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tilewatch.text import failure_text

FAILURES = frozenset({"failure", "refused", "stays", "sentence", "reason"})
"""Fields of answers with text that may come from a library and is shown on pages."""

_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
r"""Matches an escaped NUL in JSON. An even number of backslashes precedes it, because `\\u0000` is no NUL."""


def make_line(answer: Mapping[str, Any]) -> bytes:
    """Returns an answer as a line of JSON. Undecodable characters become "?"."""
    return json.dumps(answer, ensure_ascii=False).encode(errors="replace") + b"\n"


def read_line(line: bytes | bytearray) -> dict[str, Any] | None:
    """Returns the answer on a line, or None if the line is not a JSON object. NUL becomes U+FFFD for Postgres."""
    try:
        # Few answers have a NUL, and searching for backslashes takes 25 ns per letter (2026-11-25).
        stored = _NUL.sub(rb"\1\\ufffd", line) if b"\\u0000" in line else line
        answer = json.loads(stored.decode(errors="replace"))
        return _clean(answer) if isinstance(answer, dict) else None
    except (ValueError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    """Returns a copy of an answer, with its texts shortened and cleaned."""
    if isinstance(value, list):
        return [_clean(each) if isinstance(each, dict | list) else each for each in value]
    return {
        name: failure_text(each)
        if name in FAILURES and isinstance(each, str)
        else _clean(each)
        if isinstance(each, dict | list)
        else each
        for name, each in value.items()
    }
