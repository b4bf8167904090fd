"""Defines the exceptions for library folders that cannot be used."""

from tilewatch.errors import ExpectedError


class LibraryError(ExpectedError):
    """Raised if a library folder or file cannot be used."""


class NoConfigs(LibraryError):
    """Raised if the requested kernel has no config for the architecture."""


class PackageMissing(LibraryError):
    """Raised if this machine lacks a Python package. Another machine may have it."""

    compiler: str | None = None


def first_line(error: BaseException) -> str:
    """Returns an error's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
