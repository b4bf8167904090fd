"""Stores cubins by content, in a folder or in an object store (`s3://`, with the extra s3).

Each cubin is `<key>.cubin`, and `<key>.json` holds what compiling it gave; a timeout or a compiler error has only the
latter, so that a config that failed is not waited for again (`is_final` says which are). `<key>.tileirbc` is the
bytecode that a cubin was made of, 2 to 6 KB beside its 40 to 400; cubins stored before 2026-11-22 have none.
`<code key>.recorded` is the bytecode of a config whose host code can run on some machines only (config_code.py).
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from tilewatch.errors import ExpectedError

DEFAULT_FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tilewatch" / "cubins"
"""Where commands without a queue keep cubins, if nothing else is said."""

EXTRAS = {"s3": ("s3fs", "s3")}
"""The package that reaches a protocol, and the extra that brings it."""

HEALTH_KEY = "health"
"""A key that no cubin has: theirs are hashes."""


class StoreError(ExpectedError):
    """The store cannot be read or written; the message names it."""


class CubinStore:
    def __init__(self, url: str) -> None:
        """A plain path or file:///path is a folder. Raises StoreError when nothing here speaks the URL's protocol."""
        self.url = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise StoreError(f"the cubin store {url} cannot be used: {_find_remedy(url, error)}") from None
        except ValueError as error:
            raise StoreError(f"the cubin store {url} cannot be used: {error}") from None
        self.is_folder = "file" in _list_protocols(self._files)

    def outcome(self, key: str) -> dict[str, Any] | None:
        """Returns the outcome of compiling `key`; None if it was never compiled."""
        return self.outcomes((key,)).get(key)

    def outcomes(self, keys: Collection[str]) -> dict[str, dict[str, Any]]:
        """Returns what compiling each of these keys gave, without those that were never compiled, and without those
        whose cubin was deleted, so that they are compiled again.

        One call reads all of them, which an object store does in parallel.
        """
        of = {self._path(key, "json"): key for key in keys}
        if not of:
            return {}
        with self._trouble("read"):
            read = self._files.cat(list(of), on_error="return")
            contents = {key: read[path] for path, key in of.items() if not isinstance(read[path], FileNotFoundError)}
            found = {key: json.loads(_or_raise(each)) for key, each in contents.items()}
            lost = self._list_lost([key for key, outcome in found.items() if outcome.get("status") == "ok"])
        return {key: outcome for key, outcome in found.items() if key not in lost}

    def _list_lost(self, keys: Collection[str]) -> set[str]:
        """Lists those without a cubin. Of each the first byte is read, which an object store does in parallel."""
        paths = [self._path(key, "cubin") for key in keys]
        if not paths:
            return set()
        read = self._files.cat_ranges(paths, 0, 1, on_error="return")
        return {key for key, each in zip(keys, read, strict=True) if isinstance(each, FileNotFoundError)}

    def put(self, key: str, outcome: Mapping[str, Any], cubin: bytes | None, bytecode: bytes | None = None) -> None:
        """Writes an outcome, its cubin and its bytecode. The outcome is written last: where it is, the cubin is."""
        with self._trouble("written"):
            if bytecode is not None:
                self._write(self._path(key, "tileirbc"), bytecode)
            if cubin is not None:
                self._write(self._path(key, "cubin"), cubin)
            self._write(self._path(key, "json"), json.dumps(outcome).encode())

    def cubin(self, key: str) -> bytes:
        try:
            with self._trouble("read"):
                content: bytes = self._files.cat_file(self._path(key, "cubin"))
        except StoreError as error:
            raise StoreError(f"cubin {key}: {error}") from error
        return content

    def bytecode(self, key: str) -> bytes | None:
        """Returns what the cubin was made of; None where it was not kept."""
        with self._trouble("read"):
            try:
                content: bytes = self._files.cat_file(self._path(key, "tileirbc"))
            except FileNotFoundError:
                return None
            return content

    def put_traced(self, code_key: str, traced: Mapping[str, Any]) -> None:
        with self._trouble("written"):
            self._write(self._path(code_key, "recorded"), json.dumps(traced).encode())

    def find_traced(self, code_key: str) -> dict[str, Any] | None:
        """Returns what a config launches; None where no machine traced it."""
        with self._trouble("read"):
            try:
                found: dict[str, Any] = json.loads(self._files.cat_file(self._path(code_key, "recorded")))
            except FileNotFoundError:
                return None
            return found

    def require_access(self, *, writes: bool) -> None:
        """Raises StoreError unless the store can be read, and written by who `writes`.

        A bucket that is not there reads like one without this cubin, so it is listed.
        """
        if writes:
            self.put(HEALTH_KEY, {}, None)
        self.outcome(HEALTH_KEY)
        with self._trouble("read"):
            top = self._root if self.is_folder else self._root.strip("/").split("/")[0]
            if not self.is_folder or self._files.exists(top):  # the first compile worker makes a folder
                self._files.ls(top, refresh=True)

    def _path(self, key: str, kind: str) -> str:
        return f"{self._root}/{key[:2]}/{key}.{kind}"

    def _write(self, path: str, data: bytes) -> None:
        """Writes the file whole or not at all: two workers may write one key, and one may be killed while it does.

        An object store does that by itself, and has no folders: asked to make one, s3fs would make a missing bucket.
        """
        if not self.is_folder:
            self._files.pipe_file(path, data)
            return
        self._files.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{os.getpid()}.part"
        self._files.pipe_file(partial, data)
        self._files.mv(partial, path)

    @contextmanager
    def _trouble(self, act: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each store's package raises what it likes: those of botocore are no OSError
            reason = str(error) or type(error).__name__
            raise StoreError(f"the cubin store {self.url} cannot be {act}: {reason}") from error


def is_final(outcome: Mapping[str, Any], limit_s: float) -> bool:
    """Returns False for a timeout that used less CPU time than `limit_s`: the machine was slow, not the config, so it
    is compiled again. Until 2026-11 wall time was limited, and such timeouts were stored too.
    """
    cpu_s: float = outcome.get("cpu_s", 0.0)
    return outcome["status"] != "timeout" or cpu_s >= limit_s


def folder(path: Path) -> str:
    """Returns the store URL of a folder."""
    return path.absolute().as_uri()


def find_folder(url: str) -> str:
    """Returns the path of a folder store."""
    return str(fsspec.core.url_to_fs(url)[1])


def _or_raise(read: bytes | Exception) -> bytes:
    if isinstance(read, Exception):
        raise read
    return read


def _list_protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def _find_remedy(url: str, error: ImportError) -> str:
    package, extra = EXTRAS.get(url.partition("://")[0], (None, None))
    if package is None:
        return str(error)
    return (
        f"the package {package} is missing; install the extra {extra} (pip install 'tilewatch[{extra}]'; in "
        f"a checkout: .venv/bin/pip install --no-deps --require-hashes -r requirements/{extra}.txt)"
    )
