"""Writes and reads recordings, files of runs on machines without network or database. A recording is gzipped JSON
lines: a header, rows, and the number of rows. A row's field "row" is its kind, such as "trial". The other fields are
the columns of the kind's table in db/models.py."""

import datetime as dt
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.given_files import BadFile, open_given
from tilewatch.text import is_name

VERSION = 1
LINE_BYTES = 4 << 20
FILE_BYTES = 1 << 28
"""Most bytes that the file may have when it is not compressed. A night of 9,000 configs takes 12 MB."""

MOST_ROWS = 200_000
"""Most rows of a file. The largest recording has 27,000 rows of 800 bytes each (2026-11-28)."""

MEMORY_BYTES = 768 << 20
"""Most memory that rows may take while they are read. Python takes 72 bytes for the 3 bytes "{},"."""

LOOK_EVERY_BYTES = 1 << 20
"""Bytes of lines after which memory is measured again. 1,000 rows of 4 MiB had taken 5.7 GB."""

TOO_MANY = f"more than {MOST_ROWS:,} rows, and `tilewatch import` reads no such file"

KEYS: Mapping[str, tuple[str, ...]] = {
    "sweep": ("id",),
    "compilation": ("code_key", "compiler"),
    "trial": ("sweep", "config"),
    "run": ("key",),
    "measurement": ("run", "implementation"),
    "replay": ("key",),
}
"""Maps each kind of row to the fields that identify a row of that kind in a file."""


class BadRecording(ExpectedError):
    """Raised if a recording cannot be written or imported."""


@dataclass(frozen=True)
class Header:
    """The header of a recording: machine, time, repository and Tilewatch version (`tool`)."""

    machine: str
    recorded_at: str
    repository: str
    tool: str


@dataclass(frozen=True)
class RecordingContents:
    header: Header
    rows: tuple[dict[str, Any], ...]


def rename_repository(contents: RecordingContents, repository: str) -> RecordingContents:
    """Returns the recording with another repository's name in all commits."""
    return replace(contents, rows=tuple(_rename_in_row(row, repository) for row in contents.rows))


def write(path: Path, header: Header, rows: Iterable[Mapping[str, Any]]) -> int:
    """Writes the whole file or nothing, and returns the number of rows. Raises BadRecording for too many rows."""
    partial = path.with_name(path.name + ".part")
    count = 0
    # No time stamp in the gzip header: the same runs give the same bytes.
    with partial.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(_make_line({"tilewatch_recording": VERSION, **asdict(header)}))
        for row in rows:
            count += 1
            if count > MOST_ROWS:
                partial.unlink()
                raise BadRecording(f"{path} would have {TOO_MANY}: choose a kernel, a GPU model or later days")
            out.write(_make_line(row))
        out.write(_make_line({"row": "end", "rows": count}))
    partial.replace(path)
    return count


def append(path: Path, header: Header, rows: Iterable[Mapping[str, Any]]) -> int:
    """Adds rows to a file and returns their number. Raises BadRecording for a file of another machine or repository."""
    if not path.exists():
        return write(path, header, rows)
    there = read(path)
    for name in ("machine", "repository"):
        old, new = getattr(there.header, name), getattr(header, name)
        if old != new:
            raise BadRecording(f"{path} is of the {name} '{old}', this run of '{new}': name another file")
    new_rows = renumber(there.rows, rows)
    write(path, there.header, (*there.rows, *new_rows))
    return len(new_rows)


def renumber(there: Sequence[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the new rows with sweep numbers after those in `there`, without compilations that `there` already has."""
    last = max((row["id"] for row in there if row["row"] == "sweep"), default=0)
    known = {(row["code_key"], row["compiler"]) for row in there if row["row"] == "compilation"}
    return [
        {name: value + last if name in ("id", "sweep") else value for name, value in row.items()}
        for row in rows
        if row["row"] != "compilation" or (row["code_key"], row["compiler"]) not in known
    ]


def read(path: Path) -> RecordingContents:
    """Reads and validates a recording. Raises BadRecording if the file is wrong, too large or truncated."""
    for number, _ in enumerate(_read_lines(path)):
        if number > MOST_ROWS + 1:  # the first and the last line are not rows
            raise BadRecording(f"{path} has {TOO_MANY}")
    before_bytes = _measure_memory()
    lines = enumerate(_read_lines(path), start=1)
    number, line = next(lines, (1, b"{}"))
    first = _parse(path, number, line)
    version = first.pop("tilewatch_recording", None)
    if version is None:
        raise BadRecording(f"{path} is not a Tilewatch recording: its first line has no tilewatch_recording version")
    if version is not VERSION:
        raise BadRecording(f"{path} is a recording of version {version!r}; this Tilewatch reads version {VERSION}")
    try:
        header = Header(**first)
    except TypeError:
        raise BadRecording(f"{path} line 1: the header must hold machine, recorded_at, repository and tool") from None
    for field, text in asdict(header).items():
        if not is_name(text):
            raise BadRecording(f"{path} line 1: the header's {field} is {text!r:.60}, which cannot be shown")
    rows: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    unseen_bytes = 0
    for number, line in lines:
        row = _parse(path, number, line)
        kind = str(row.get("row"))
        if kind == "end":
            if row.get("rows") != len(rows) or next(lines, None) is not None:
                raise BadRecording(f"{path} line {number}: {row.get('rows')} rows were written, {len(rows)} are here")
            return RecordingContents(header, tuple(rows))
        if kind not in KEYS:
            raise BadRecording(f"{path} line {number}: '{kind}' is not a kind of row; known: {', '.join(KEYS)}")
        missing = [field for field in KEYS[kind] if field not in row]
        if missing:
            raise BadRecording(f"{path} line {number}: the {kind} has no {', '.join(missing)}")
        _check(path, number, kind, row)
        identity = (kind, json.dumps([row[field] for field in KEYS[kind]], sort_keys=True))
        if identity in seen:
            raise BadRecording(f"{path} line {number}: this {kind} is there twice ({identity[1]})")
        seen.add(identity)
        rows.append(row)
        unseen_bytes += len(line)
        if unseen_bytes >= LOOK_EVERY_BYTES:
            unseen_bytes = 0
            if _measure_memory() - before_bytes > MEMORY_BYTES:
                raise BadRecording(f"{path} takes more than {MEMORY_BYTES >> 20} MiB of memory by line {number}")
    raise BadRecording(f"{path} is truncated: its last line is missing after {len(rows)} rows")


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a file one at a time, because 10 MiB of compressed zeros become 10 GiB."""
    read_bytes = 0
    try:
        with open_given(path) as raw, gzip.open(raw) as file:
            while line := file.readline(LINE_BYTES + 1):
                read_bytes += len(line)
                if len(line) > LINE_BYTES or read_bytes > FILE_BYTES:
                    most = f"a line may have {LINE_BYTES >> 20} MiB, the whole {FILE_BYTES >> 20} MiB"
                    raise BadRecording(f"{path} is too large: {most}")
                yield line
    except BadFile as error:
        raise BadRecording(str(error)) from None
    except EOFError:
        raise BadRecording(f"{path} is truncated: the compressed data stops in the middle") from None
    except gzip.BadGzipFile:
        raise BadRecording(f"{path} is not gzip") from None
    except zlib.error as error:
        raise BadRecording(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise BadRecording(f"{path} cannot be read: {error.strerror}") from None


def _measure_memory() -> int:
    """Returns the resident bytes of this process, without its child processes."""
    return processes.measure_resident(os.getpid())


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise BadRecording(f"{path} line {number} is not a JSON object")
    return row


def _check(path: Path, number: int, kind: str, row: Mapping[str, Any]) -> None:
    """Raises BadRecording if a row has a value that rows.py does not allow."""
    # Imported here, because pydantic takes longer than a help text of the command line.
    from pydantic import ValidationError

    from tilewatch.kernels.recording.rows import SCHEMAS

    try:
        SCHEMAS[kind].validate_python(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadRecording(f"{path} line {number}: the {kind}'s {field}: {first['msg'].lower()}") from None


def _make_line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _rename_in_row(row: Mapping[str, Any], repository: str) -> dict[str, Any]:
    """Returns a row with another repository's name in its commits."""
    changed = dict(row)
    if "commit" in row:
        changed["commit"] = {**row["commit"], "repository": repository}
    for side in ("good", "bad"):
        if side in row:
            changed[side] = _rename_in_row(row[side], repository)
    return changed
