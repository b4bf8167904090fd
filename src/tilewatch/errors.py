"""Defines the base class of errors that a person can repair. Any other error is a bug."""


class ExpectedError(Exception):
    """Raised for bad input or a broken set-up. People see its message without a traceback."""


def sentence(error: BaseException) -> str | None:
    """Returns the message of an expected error; None for any other error."""
    return str(error) if isinstance(error, ExpectedError) else None
