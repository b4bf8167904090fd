"""Defines the errors that refuse a caller, with a sentence. server.py has the HTTP status of each."""

from tilewatch.errors import ExpectedError


class NotThere(ExpectedError):
    """The thing that was asked for does not exist."""


class NobodyKnown(ExpectedError):
    """The caller has no valid token."""


class NotAllowed(ExpectedError):
    """The caller's token does not have the right."""
