"""Defines the base of errors that a person can act on. Every other error is a bug, and is shown with its traceback."""


class ExpectedError(Exception):
    """Bad input or a broken set-up. The message is a sentence for a person, and is shown without a traceback."""


def sentence(error: BaseException) -> str | None:
    """Returns the message of an expected error; None for a bug."""
    return str(error) if isinstance(error, ExpectedError) else None
