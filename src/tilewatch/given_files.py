"""Reads and writes files that a user names. Refuses pipes and devices, because reading them might never end."""

import contextlib
import importlib
import os
import re
import stat
import sys
from io import BufferedReader
from pathlib import Path
from typing import Any

from tilewatch.errors import ExpectedError

MOST_BYTES = 16 << 20
"""Most bytes of a file, unless its reader has another limit. security.md names it."""
MOST_TOML_BYTES, MOST_KEY_PARTS = 1 << 18, 32
_STRING_OR_COMMENT = (
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}|\'{3}(?:[^\']|\'(?!\'\'))*+\'{0,5}'''
    r"""|"(?:[^"\\\n]|\\[^\n])*+"?|\'[^\'\n]*+\'?|\#[^\n]*+"""
)
_LONG_KEY = rf"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){{{MOST_KEY_PARTS}}}"


class BadFile(ExpectedError):
    """Raised if a file cannot be read. The message is a sentence."""


class NoFile(BadFile):
    """Raised if a file does not exist, or if this process may not read it."""


def open_given(path: Path) -> BufferedReader:
    """Opens a regular file. Raises BadFile if it cannot be opened."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadFile(f"{path} is a folder" if path.is_dir() else f"{path} is not a file")
        opened = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb")  # noqa: SIM115 - for the caller
    except FileNotFoundError:
        raise NoFile(f"there is no file {path}") from None
    except PermissionError as error:
        raise NoFile(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):  # the path named another file a moment ago
        opened.close()
        raise BadFile(f"{path} is not a file")
    return opened


def read_given(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Returns the content of a file. Raises BadFile if it is too large or cannot be read."""
    with open_given(path) as file:
        try:
            content = file.read(most_bytes + 1)
        except OSError as error:
            raise BadFile(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > most_bytes:
        raise BadFile(f"{path} has more than {most_bytes / 2**20:g} MiB")
    return content


class CannotWrite(ExpectedError):
    """Raised if a file cannot be written. The message is a sentence with the reason."""


def write_given(path: Path, text: str) -> None:
    """Writes a text to a file. Raises CannotWrite if this fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        # Another error would give the exit code 1, which means "slower" or "not safe" after a comparison.
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None


def read_given_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Returns the text of a UTF-8 file. Raises BadFile if it is too large or not UTF-8."""
    try:
        return read_given(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise BadFile(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Returns the tables of a TOML text. Raises BadFile if it is not TOML or has a very long dotted key."""
    reader = _import_reader()
    # Python's parser needs memory that grows with the square of a key's parts: 20 GB for 200 KB (3.11, 2026-11-28).
    # In Python 3.10, `re` lacks `*+`.
    if sys.version_info >= (3, 11) and re.search(_LONG_KEY, re.sub(_STRING_OR_COMMENT, "s", text, flags=re.DOTALL)):
        raise BadFile(f"it has a key of more than {MOST_KEY_PARTS} parts")
    try:
        tables: dict[str, Any] = reader.loads(text)
        return tables
    except (ValueError, RecursionError) as error:
        raise BadFile(f"it is not TOML: {error}") from None


def _import_reader() -> Any:
    """Returns a module that reads TOML. Raises BadFile if none is installed."""
    for name in ("tomllib", "tomli", "pip._vendor.tomli"):  # an owner's environment may have Python 3.10
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise BadFile("this Python has no reader of TOML: `pip install tomli` into its environment")
