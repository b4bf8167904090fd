"""Reads JSON files with problems. A wrong file raises BadProblem with the file's name and the line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewatch.given_files import BadFile, NoFile, read_given_text
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.problems.outside_files import POINTER, POINTER_ADVICE

MOST_LINES, MOST_FILES = 100_000, 1_000
"""Most lines of a file, and most files that are read. 100,000 lines take 3 s (2 cores, 2026-11-28)."""


def list_files(pattern: str, folder: Path) -> list[Path]:
    """Returns the files in `folder` that match a pattern, sorted. Raises BadProblem if none or too many match."""
    files = sorted(folder.glob(pattern))
    if not files:
        raise BadProblem(f"'{pattern}' matches no file in {folder.name}")
    if len(files) > MOST_FILES:
        raise BadProblem(f"'{pattern}' matches {len(files):,} files; expected {MOST_FILES:,} at most")
    return files


def read_object(file: Path) -> dict[str, Any]:
    """Returns the JSON object in a file. Raises BadProblem if the file has no JSON object."""
    return _parse(_read(file, file.name), file.name)


def read_lines(file: Path, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a pair for each line that is not empty: its place, such as "a.jsonl, line 3", and its JSON object."""
    lines = _read(file, name).splitlines()
    if len(lines) > MOST_LINES:
        raise BadProblem(f"{name}: it has {len(lines):,} lines; expected {MOST_LINES:,} at most")
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{name}, line {number}"
            yield place, _parse(line, place)


def _read(file: Path, name: str) -> str:
    try:
        text = read_given_text(file)
    except NoFile:
        raise BadProblem(f"{name}: there is no such file at this commit") from None
    except BadFile as error:
        raise BadProblem(str(error).replace(str(file), name)) from None
    if text.startswith(POINTER):
        raise BadProblem(f"{name}: {POINTER_ADVICE}")
    return text


def _parse(text: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadProblem(f"{place}: not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, 100,000 brackets
        raise BadProblem(f"{place}: not JSON that can be read: {error}") from None
    if not isinstance(row, dict):
        raise BadProblem(f'{place}: an object is expected, for example {{"rows": 4096}}')
    return row
