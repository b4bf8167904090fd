"""Stores cubins by content, in a folder or anything else that fsspec reaches (an object store in a cluster).

Each cubin is `<key>.cubin`, and `<key>.json` holds what compiling it gave; a timeout or a compiler error has only the
latter, so that a config that failed is not waited for again (`is_final` says which are).
"""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import fsspec

from tilewatch.errors import ExpectedError


class StoreError(ExpectedError):
    """The store cannot be read or written; the message names it."""


class CubinStore:
    def __init__(self, url: str) -> None:
        """`url` is anything fsspec takes; a plain path or file:///path is a folder."""
        self.url = url
        self._files, self._root = fsspec.core.url_to_fs(url)

    def outcome(self, key: str) -> dict[str, Any] | None:
        """Returns what compiling `key` gave, or None when it was never compiled."""
        return self.outcomes((key,)).get(key)

    def outcomes(self, keys: Collection[str]) -> dict[str, dict[str, Any]]:
        """Returns what compiling each of these keys gave, without those that were never compiled.

        One call reads all of them, which an object store does in parallel.
        """
        of = {self._path(key, "json"): key for key in keys}
        if not of:
            return {}
        read = self._files.cat(list(of), on_error="return")
        contents = {key: read[path] for path, key in of.items() if not isinstance(read[path], FileNotFoundError)}
        try:
            return {key: json.loads(_or_raise(each)) for key, each in contents.items()}
        except (OSError, ValueError) as error:
            raise StoreError(f"the cubin store {self.url} cannot be read: {error}") from error

    def put(self, key: str, outcome: Mapping[str, Any], cubin: bytes | None) -> None:
        """Writes an outcome and its cubin. The outcome is written last: where it is, the cubin is."""
        try:
            self._files.makedirs(os.path.dirname(self._path(key, "json")), exist_ok=True)
            if cubin is not None:
                self._replace(self._path(key, "cubin"), cubin)
            self._replace(self._path(key, "json"), json.dumps(outcome).encode())
        except OSError as error:
            raise StoreError(f"the cubin store {self.url} cannot be written: {error}") from error

    def cubin(self, key: str) -> bytes:
        try:
            content: bytes = self._files.cat_file(self._path(key, "cubin"))
        except OSError as error:
            raise StoreError(f"cubin {key} cannot be read from the store {self.url}: {error}") from error
        return content

    def _path(self, key: str, kind: str) -> str:
        return f"{self._root}/{key[:2]}/{key}.{kind}"

    def _replace(self, path: str, data: bytes) -> None:
        """Writes the file whole or not at all: two workers may write one key, and one may be killed while it does."""
        partial = f"{path}.{os.getpid()}.part"
        self._files.pipe_file(partial, data)
        self._files.mv(partial, path)


def is_final(outcome: Mapping[str, Any], limit_s: float) -> bool:
    """Returns False for a timeout that used less CPU time than `limit_s`: the machine was slow, not the config, so it
    is compiled again. Until 2026-11 wall time was limited, and such timeouts were stored too.
    """
    cpu_s: float = outcome.get("cpu_s", 0.0)
    return outcome["status"] != "timeout" or cpu_s >= limit_s


def _or_raise(read: bytes | Exception) -> bytes:
    if isinstance(read, Exception):
        raise read
    return read


def folder(path: Path) -> str:
    """The store URL of a folder."""
    return path.absolute().as_uri()
