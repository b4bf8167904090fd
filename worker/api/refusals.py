"""Defines the errors that refuse a caller, each with a sentence. server.py maps them to HTTP statuses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewatch.errors import ExpectedError

NO_ANSWER = "a server that this needs does not answer; try again later"  # the error itself contains addresses


class NotThere(ExpectedError):
    """Raised if the object that a caller named does not exist."""


class NobodyKnown(ExpectedError):
    """Raised if the caller has no valid token."""


class NotAllowed(ExpectedError):
    """Raised if the caller has a valid token that does not give the needed right."""


class UnknownArgument(ExpectedError):
    """Raised for an argument that an operation does not have. The message lists the known arguments."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        has = f"it has {', '.join(known)}" if known else "this has none"
        super().__init__(f"there is no argument '{name[:100]}'; {has}")


def describe_mistakes(mistakes: Iterable[Mapping[str, Any]]) -> str:
    """Returns one line that names each wrong argument of a call with its error."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in mistakes)
