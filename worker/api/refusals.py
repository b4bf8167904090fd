"""Refusals: why a caller gets no answer, as a sentence; worker/api/server.py has the status of each."""

from tilewatch.errors import ExpectedError


class NotThere(ExpectedError):
    """The thing that was asked for does not exist."""


class NobodyKnown(ExpectedError):
    """The caller has no token, or none that is valid."""


class NotAllowed(ExpectedError):
    """The caller is known and lacks the right."""
