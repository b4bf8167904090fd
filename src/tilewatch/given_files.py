"""Reads files that a user names. Only regular files up to a size are read. A pipe, a terminal or a device is refused
before it is opened, because reading it might never end."""

import os
import stat
from io import BufferedReader
from pathlib import Path

from tilewatch.errors import ExpectedError


class BadFile(ExpectedError):
    """A file that cannot be read. The message is a sentence."""


class NoFile(BadFile):
    """A file that does not exist or that this process may not read."""


def open_given(path: Path) -> BufferedReader:
    """Opens a regular file, also through a link. Raises BadFile."""
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


def read_given(path: Path, most_bytes: int) -> bytes:
    """Returns the content of a file. Raises BadFile, also if it has more than `most_bytes`."""
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
        raise BadFile(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}") from None
