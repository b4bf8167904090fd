"""The errors that a person can act on. Every other error is a bug, and its traceback is the message."""


class ExpectedError(Exception):
    """Bad input or a broken set-up. The message is a sentence for a person, so no traceback is shown."""


def sentence(error: BaseException) -> str | None:
    """Returns the message of an expected error, None for a bug."""
    return str(error) if isinstance(error, ExpectedError) else None
