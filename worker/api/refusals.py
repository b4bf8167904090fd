"""Defines the errors that refuse a caller, with a sentence. server.py has the HTTP status of each."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewatch.errors import ExpectedError


class NotThere(ExpectedError):
    """The thing that was asked for does not exist."""


class NobodyKnown(ExpectedError):
    """The caller has no valid token."""


class NotAllowed(ExpectedError):
    """The caller is known and lacks the right."""


class UnknownArgument(ExpectedError):
    """An argument that an operation does not have; the message is a sentence with those that it has."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        has = f"it has {', '.join(known)}" if known else "this has none"
        super().__init__(f"there is no argument '{name[:100]}'; {has}")


def describe_mistakes(mistakes: Iterable[Mapping[str, Any]]) -> str:
    """Returns what is wrong with arguments in one line, from Pydantic's errors."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in mistakes)
