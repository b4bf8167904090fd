"""Refusals: why a caller gets no answer, as a sentence with the HTTP status that says the same."""

from http import HTTPStatus
from typing import ClassVar

from tilewatch.errors import ExpectedError


class CallRefused(ExpectedError):
    """The caller gets no answer; the message is a sentence for them."""

    status: ClassVar[HTTPStatus] = HTTPStatus.BAD_REQUEST


class NotThere(CallRefused):
    status = HTTPStatus.NOT_FOUND


class NobodyKnown(CallRefused):
    """The caller has no token, or none that is valid."""

    status = HTTPStatus.UNAUTHORIZED


class NotAllowed(CallRefused):
    """The token lacks the right."""

    status = HTTPStatus.FORBIDDEN
