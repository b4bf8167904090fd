"""Runs a program that reads the database and writes files. Expected errors are printed as a sentence."""

import sys
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from tilewatch.db.session import address, reading_session
from tilewatch.errors import ExpectedError

EXPECTED_ERROR = 2


def write_from(url: str, write: Callable[[Session], str]) -> int:
    """Prints the sentence that `write` returns, or an expected error. Returns the exit code."""
    try:
        with reading_session(url) as opened:
            print(write(opened))
        return 0
    except ExpectedError as error:
        sentence = str(error)
    except DBAPIError:
        sentence = f"the database at {address(url)} does not answer; is Tilewatch running?"
    except OSError as error:
        sentence = f"{error.filename or 'a file'} cannot be written: {error.strerror}"
    print(f"tilewatch: {sentence}", file=sys.stderr)
    return EXPECTED_ERROR
