"""Defines the base class of errors that a person can act on. Other errors are bugs, shown with their traceback."""


class ExpectedError(Exception):
    """Raised for bad input or a broken set-up. The message is a sentence for a person, shown without a traceback."""


def sentence(error: BaseException) -> str | None:
    """Returns the message of an expected error; None for any other error, which is a bug."""
    return str(error) if isinstance(error, ExpectedError) else None
