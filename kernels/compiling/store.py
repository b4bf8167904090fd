"""Stores cubins by content key, in a folder or in an object store (`s3://`, if the extra `s3` is installed).

`<content key>.json` is the outcome of a compilation, `<content key>.cubin` its machine code, and `<content
key>.tileirbc` its bytecode. A failed compilation has only an outcome. `<key>.recorded` holds the traced launches of a
config for machines that cannot run the config's host code."""

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tilewatch.errors import ExpectedError

DEFAULT_FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tilewatch" / "cubins"
"""Cubin store of commands that work without the queue."""

EXTRAS = {"s3": ("s3fs", "s3")}
"""Maps a URL's protocol to the package that supports it and to Tilewatch's extra that installs this package."""

HEALTH_KEY = "health"  # which `require_access` reads and writes; keys of cubins are hashes
ROOM_BYTES = 64 << 20


class StoreError(ExpectedError):
    """Raised if the store cannot be used, or the disk of temporary files is full."""


class CubinStore:
    def __init__(self, url: str, made: str | None = None) -> None:
        """Opens the store at a path or URL. New files go into the folder `made`, if it is given."""
        self.url, self._made = url, made
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise StoreError(f"the cubin store {url} cannot be used: {_find_remedy(url, error)}") from None
        except ValueError as error:
            raise StoreError(f"the cubin store {url} cannot be used: {error}") from None
        self.is_folder = isinstance(self._files, LocalFileSystem)

    def outcome(self, content_key: str) -> dict[str, Any] | None:
        """Returns the outcome of a compilation, or None if the outcome or the cubin is missing."""
        return self.outcomes((content_key,)).get(content_key)

    def outcomes(self, keys: Collection[str]) -> dict[str, dict[str, Any]]:
        """Returns the stored outcomes of compilations by key, without outcomes whose cubin is missing."""
        of = {self._path(key, "json"): key for key in keys}
        if not of:
            return {}
        with self._raise_store_errors("read"):
            # An object store reads all at once in parallel.
            read = self._files.cat(list(of), on_error="return")
            contents = {key: read[path] for path, key in of.items() if not isinstance(read[path], FileNotFoundError)}
            found = {key: json.loads(_raise_if_error(each)) for key, each in contents.items()}
            lost = self._list_lost([key for key, outcome in found.items() if outcome.get("status") == "ok"])
        return {key: outcome for key, outcome in found.items() if key not in lost}

    def _list_lost(self, keys: Collection[str]) -> set[str]:
        """Lists the keys whose cubin is missing."""
        paths = [self._path(key, "cubin") for key in keys]
        # An object store reads the first bytes in parallel.
        read = self._files.cat_ranges(paths, 0, 1, on_error="return")
        return {key for key, each in zip(keys, read, strict=True) if isinstance(each, FileNotFoundError)}

    def put(self, key: str, outcome: Mapping[str, Any], cubin: bytes | None, bytecode: bytes | None = None) -> None:
        """Stores the outcome of a compilation. Its cubin is written first, so that each stored outcome has a cubin."""
        with self._raise_store_errors("written"):
            if bytecode is not None:
                self._write(key, "tileirbc", bytecode)
            if cubin is not None:
                self._write(key, "cubin", cubin)
            self._write(key, "json", json.dumps(outcome).encode())

    def cubin(self, content_key: str) -> bytes:
        try:
            with self._raise_store_errors("read"):
                content: bytes = self._files.cat_file(self._path(content_key, "cubin"))
        except StoreError as error:
            raise StoreError(f"cubin {content_key}: {error}") from error
        return content

    def bytecode(self, content_key: str) -> bytes | None:
        """Returns the bytecode of a cubin, or None if it was not kept."""
        with self._raise_store_errors("read"), suppress(FileNotFoundError):
            content: bytes = self._files.cat_file(self._path(content_key, "tileirbc"))
            return content
        return None

    def put_traced(self, code_key: str, traced: Mapping[str, Any]) -> None:
        with self._raise_store_errors("written"):
            self._write(code_key, "recorded", json.dumps(traced).encode())

    def find_traced(self, code_key: str) -> dict[str, Any] | None:
        """Returns the traced launches of a config, or None if no machine traced it."""
        with self._raise_store_errors("read"), suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads(self._files.cat_file(self._path(code_key, "recorded")))
            return found
        return None

    def require_access(self, *, writes: bool) -> None:
        """Raises StoreError if the store cannot be read. With `writes`, tries to write too."""
        if writes:
            self.put(HEALTH_KEY, {}, None)
        self.outcome(HEALTH_KEY)
        with self._raise_store_errors("read"):
            # The bucket is listed, because reading a key fails in the same way without the bucket.
            top = self._root if self.is_folder else self._root.strip("/").split("/")[0]
            if not self.is_folder or self._files.exists(top):  # the first compile worker makes a folder
                self._files.ls(top, refresh=True)

    def _path(self, key: str, kind: str) -> str:
        name = f"{key[:2]}/{key}.{kind}"
        is_made = self._made is not None and os.path.exists(f"{self._made}/{name}")
        return f"{self._made if is_made else self._root}/{name}"

    def _write(self, key: str, kind: str, data: bytes) -> None:
        """Writes a file atomically, because two workers, or two threads of one, may write the same file."""
        path = f"{self._made or self._root}/{key[:2]}/{key}.{kind}"
        if not self.is_folder:
            # No folder is made here: s3fs would create a missing bucket.
            self._files.pipe_file(path, data)
            return
        self._files.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{os.getpid()}.{threading.get_ident()}.part"
        self._files.pipe_file(partial, data)
        self._files.mv(partial, path)

    @contextmanager
    def _raise_store_errors(self, act: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # packages of stores raise errors of any type; botocore's are not OSErrors
            reason = str(error) or type(error).__name__
            raise StoreError(f"the cubin store {self.url} cannot be {act}: {reason}") from error


def require_room() -> None:
    """Raises StoreError if the disk of temporary files is full, which could make any config fail."""
    if shutil.disk_usage(tempfile.gettempdir()).free < ROOM_BYTES:
        raise StoreError(f"no space is left in {tempfile.gettempdir()}")


def folder(path: Path) -> str:
    """Returns the URL of the store in a folder."""
    return path.absolute().as_uri()


def find_folder(url: str) -> str:
    """Returns the path of the folder in which a store lies."""
    return str(fsspec.core.url_to_fs(url)[1])


def _raise_if_error(read: bytes | Exception) -> bytes:
    if isinstance(read, Exception):
        raise read
    return read


def _find_remedy(url: str, error: ImportError) -> str:
    package, extra = EXTRAS.get(url.partition("://")[0], (None, None))
    if package is None:
        return str(error)
    return (
        f"the package {package} is missing; install the extra {extra} (pip install 'tilewatch[{extra}]'; in "
        f"a checkout: .venv/bin/pip install --no-deps --require-hashes -r requirements/{extra}.txt)"
    )
