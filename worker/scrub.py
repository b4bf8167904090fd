"""Passwords out of text that people or log collectors will read. Text in, text out.

Our own sentences hold none. This is for what others write: a driver's error or a bug's traceback may repeat a URL.
"""

import re

_IN_URL = re.compile(r"(?P<before>[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*:)[^\s@/]+@")
_NAMED = re.compile(
    r"(?i)(?P<before>\b(?:password|passwd|secret|token|api_?key)\b['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,;&]+)"
)


def scrubbed(text: str) -> str:
    """scheme://user:password@host and password=... without the password."""
    return _NAMED.sub(r"\g<before>***", _IN_URL.sub(r"\g<before>***@", text))
