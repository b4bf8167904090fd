"""Keeps what child processes read and write of a cubin store in a folder of this machine.

A child has no credentials, since it runs other people's code, so it cannot use an object store. Its parent fetches what
it needs and sends on what it made. The cubins of a folder store stay where they are.
"""

import contextlib
import tempfile
from pathlib import Path

from tilewatch.kernels.compiling.store import CubinStore, find_folder, folder


class LocalCubins:
    def __init__(self, url: str) -> None:
        """Raises StoreError when the store cannot be used at all."""
        self.store = CubinStore(url)
        self._url = url
        self.remote = None if self.store.is_folder else self.store
        """The store that cubins are fetched from; None if the store is a folder, which needs no fetching."""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """Returns the folder store for a child."""
        if self.remote is None:
            return self._url
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="tilewatch-cubins-")
        return folder(Path(self._scratch.name))

    def make_folder(self) -> str:
        """Returns the path of the folder for a child, which may write into it but not make it."""
        path = find_folder(self.url)
        with contextlib.suppress(OSError):  # the child says what is wrong with it
            Path(path).mkdir(parents=True, exist_ok=True)
        return path

    def fetch(self, key: str) -> None:
        """Brings a cubin here. Raises StoreError when it cannot be read from the store."""
        if self.remote is None:
            return
        here = CubinStore(self.url)
        if here.outcome(key) is None:
            here.put(key, {}, self.remote.cubin(key))

    def send(self) -> None:
        """Sends on what a child made, and deletes it here. Raises StoreError when it cannot be written to the store."""
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
