"""Reads files that somebody else wrote or named: regular ones, up to a size. A pipe, a terminal or a device, for which
one could wait without end, is refused before it is opened."""

import os
import stat
from io import BufferedReader
from pathlib import Path

from tilewatch.errors import ExpectedError


class BadFile(ExpectedError):
    """A file that is not read; the message is a sentence."""


class NoFile(BadFile):
    """A file that is not there, or that this process may not read."""


def open_given(path: Path) -> BufferedReader:
    """Opens a regular file, or what a link to one names. Raises BadFile."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadFile(f"{path} is a folder" if path.is_dir() else f"{path} is no file")
        opened = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb")  # noqa: SIM115 - for the caller
    except FileNotFoundError:
        raise NoFile(f"there is no file {path}") from None
    except PermissionError as error:
        raise NoFile(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):  # it was another file when it was looked at
        opened.close()
        raise BadFile(f"{path} is no file")
    return opened


def read_given(path: Path, most_bytes: int) -> bytes:
    """Returns what a file holds. Raises BadFile, also where it holds more than `most_bytes`."""
    with open_given(path) as file:
        try:
            content = file.read(most_bytes + 1)
        except OSError as error:
            raise BadFile(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > most_bytes:
        raise BadFile(f"{path} has more than {most_bytes / 2**20:g} MiB")
    return content


def read_given_text(path: Path, most_bytes: int) -> str:
    """Returns the text of a file in UTF-8. Raises BadFile."""
    try:
        return read_given(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise BadFile(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from None
