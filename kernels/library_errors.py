"""Defines the errors of a library folder. Imports no library code, so that every process can import this module."""

from tilewatch.errors import ExpectedError


class LibraryError(ExpectedError):
    """Raised if a library folder or file cannot be used. The message is a sentence."""


class NoConfigs(LibraryError):
    """Raised if a kernel that was asked for by name has no config for the architecture."""


class PackageMissing(LibraryError):
    """Raised if a file or its host code needs a package that is missing here, but that another machine may have.
    `compiler` is the version for which that machine must trace the code, or None if the code is not compiled here."""

    compiler: str | None = None


def first_line(error: BaseException) -> str:
    """Returns an error's type and the first line of its message. Other lines are left out, as the compiler's notes."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
