"""Names what can be wrong with a library folder. Imports no library code, so every process can use it."""

from tilewatch.errors import ExpectedError


class LibraryError(ExpectedError):
    """A library folder or file cannot be used; the message is a sentence."""


class NoConfigs(LibraryError):
    """A kernel that was named has no config for the architecture."""


class PackageMissing(LibraryError):
    """A file or its host code needs a package that is not installed here, but may be installed on another machine."""


def first_line(error: BaseException) -> str:
    """Returns an error's kind and the first line of its message. Further lines are the compiler's notes."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
