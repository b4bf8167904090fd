"""Gives child processes a folder of this machine in place of an object store.

A child runs other people's code, so it has no credentials for an object store. Its parent downloads the cubins that it
needs and uploads those that it made. A store that is a folder is used directly."""

import contextlib
import tempfile
from pathlib import Path

from tilewatch.kernels.compiling.store import CubinStore, find_folder, folder


class LocalCubins:
    def __init__(self, url: str) -> None:
        """Opens the store. Raises StoreError if it cannot be used at all."""
        self.store = CubinStore(url)
        self._url = url
        self.remote = None if self.store.is_folder else self.store
        """The object store, None if the store is a folder."""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """Returns the URL of the folder that a child uses as its store."""
        if self.remote is None:
            return self._url
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="tilewatch-cubins-")
        return folder(Path(self._scratch.name))

    def make_folder(self) -> str:
        """Makes the child's folder and returns its path. The child may write into the folder, but may not create it."""
        path = find_folder(self.url)
        with contextlib.suppress(OSError):  # the child reports why the folder is unusable
            Path(path).mkdir(parents=True, exist_ok=True)
        return path

    def fetch(self, content_key: str) -> None:
        """Downloads a cubin into the child's folder. Raises StoreError if it cannot be read."""
        if self.remote is None:
            return
        here = CubinStore(self.url)
        if here.outcome(content_key) is None:
            here.put(content_key, {}, self.remote.cubin(content_key))

    def send(self) -> None:
        """Uploads a child's outcomes and cubins, and deletes the local files. Raises StoreError."""
        if self.remote is None or self._scratch is None:
            return
        here = CubinStore(self.url)
        for file in sorted(Path(self._scratch.name).glob("*/*.json")):
            outcome = here.outcome(file.stem)
            assert outcome is not None
            parts = [file.with_suffix(suffix) for suffix in (".cubin", ".tileirbc")]
            self.remote.put(file.stem, outcome, *(each.read_bytes() if each.exists() else None for each in parts))
            for each in (file, *parts):
                each.unlink(missing_ok=True)

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None
