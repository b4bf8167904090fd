"""Gives child processes the cubins of a store, and stores the cubins that these processes made.

The children run other people's code, so they get folders instead of the store's credentials."""

import contextlib
import functools
import tempfile
from pathlib import Path

from tilewatch.kernels.compiling.store import CubinStore, find_folder, folder


class LocalCubins:
    def __init__(self, url: str) -> None:
        """Opens the store. Raises StoreError if the URL's protocol is unknown."""
        self.store = CubinStore(url)
        self._url = url
        self.remote = None if self.store.is_folder else self.store  # an object store
        self.made = ""  # the folder into which the newest child writes
        self._folders = contextlib.ExitStack()

    @functools.cached_property
    def url(self) -> str:
        """Returns the URL of the folder that a child reads as its store."""
        return self._url if self.remote is None else folder(Path(self._make_folder()))

    def prepare_child(self) -> str:
        """Makes a new output folder for a child, and returns the child's input folder."""
        path, self.made = find_folder(self.url), self._make_folder()
        with contextlib.suppress(OSError):  # the child reports why the folder is unusable
            Path(path).mkdir(parents=True, exist_ok=True)
        return path

    def fetch(self, content_key: str) -> None:
        """Downloads a cubin into the child's folder. Raises StoreError if that fails."""
        if self.remote is None:
            return
        here = CubinStore(self.url)
        if here.outcome(content_key) is None:
            here.put(content_key, {}, self.remote.cubin(content_key))

    def send(self) -> None:
        """Moves all that the child wrote into the store. Raises StoreError if that fails."""
        here = CubinStore(folder(Path(self.made)))
        for file in sorted(Path(self.made).glob("*/*.json")):
            outcome = here.outcome(file.stem)
            assert outcome is not None
            parts = [file.with_suffix(suffix) for suffix in (".cubin", ".tileirbc")]
            self.store.put(file.stem, outcome, *(each.read_bytes() if each.exists() else None for each in parts))
            for each in (file, *parts):
                each.unlink(missing_ok=True)

    def close(self) -> None:
        self._folders.close()

    def _make_folder(self) -> str:
        return self._folders.enter_context(tempfile.TemporaryDirectory(prefix="tilewatch-cubins-"))
