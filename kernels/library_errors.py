"""Names what can be wrong with a library folder. Imports nothing, so that who runs no library file can tell, too."""

from tilewatch.errors import ExpectedError


class LibraryError(ExpectedError):
    """A library folder or file that cannot be used; the message is a sentence."""


class NoConfigs(LibraryError):
    """A kernel that was asked for by name and has no config for the architecture."""


class PackageMissing(LibraryError):
    """A file or its host code needs a package that is not installed here, but may be on another machine."""
