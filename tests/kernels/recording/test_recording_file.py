"""A recording is read whole or refused with a sentence."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from tilewatch.kernels.recording.recording_file import BadRecording, Header, append, read, write

HEADER = Header("box, NVIDIA H200", "2026-11-21T03:00:00+00:00", "tilewatch", "tilewatch 0.1.0")
ROWS = [{"row": "sweep", "id": 1}, {"row": "run", "key": "a", "sweep": 1}]


def test_what_is_written_is_read_again_and_the_bytes_do_not_depend_on_the_clock(tmp_path: Path) -> None:
    one, other = tmp_path / "one.gz", tmp_path / "other.gz"
    assert write(one, HEADER, ROWS) == 2
    write(other, HEADER, ROWS)
    recording = read(one)
    assert (recording.header, list(recording.rows)) == (HEADER, ROWS)
    assert one.read_bytes() == other.read_bytes()


def test_runs_are_added_to_a_recording_of_the_same_machine(tmp_path: Path) -> None:
    path = tmp_path / "both.gz"
    compiled = {"row": "compilation", "code_key": "k", "compiler": "c"}
    for key in ("a", "b", "c"):
        run = {"row": "run", "key": key, "sweep": 1}
        assert append(path, HEADER, [ROWS[0], compiled, run]) == (3 if key == "a" else 2)
    rows = read(path).rows
    assert [row["id"] for row in rows if row["row"] == "sweep"] == [1, 2, 3]
    assert [(row["key"], row["sweep"]) for row in rows if row["row"] == "run"] == [("a", 1), ("b", 2), ("c", 3)]
    with pytest.raises(BadRecording, match="is of the machine 'box, NVIDIA H200', this run of 'other'"):
        append(path, dataclasses.replace(HEADER, machine="other"), ROWS)
    assert read(path).rows == rows


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "whole.gz"
    write(path, HEADER, ROWS)
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(BadRecording):
            read(path)


def test_lines_cut_before_compression_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    write(path, HEADER, ROWS)
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1])))
    with pytest.raises(BadRecording, match="truncated: its last line is missing after 2 rows"):
        read(path)


@pytest.mark.parametrize(
    ("first", "rows", "sentence"),
    [
        ({"tilewatch_recording": 2, **HEADER.__dict__}, [], "version 2; this Tilewatch reads version 1"),
        ({"hello": 1}, [], "is not a Tilewatch recording"),
        ({"tilewatch_recording": 1, "machine": "x"}, [], "the header must hold"),
        (None, [ROWS[0], ROWS[0]], "line 3: this sweep is there twice"),
        (None, [{"row": "poem"}], "'poem' is no kind of row"),
        (None, [{"row": "run"}], "the run has no key"),
        (None, [{"row": "end", "rows": 5}], "5 rows were written, 0 are here"),
    ],
)
def test_a_recording_that_makes_no_sense_is_refused(
    tmp_path: Path, first: dict[str, object] | None, rows: list[dict[str, object]], sentence: str
) -> None:
    path = tmp_path / "odd.gz"
    lines = [first or {"tilewatch_recording": 1, **HEADER.__dict__}, *rows]
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    with pytest.raises(BadRecording, match=sentence):
        read(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadRecording, match="is not gzip"):
        read(tmp_path / "text")
    with pytest.raises(BadRecording, match="there is no file"):
        read(tmp_path / "nothing")
    with pytest.raises(BadRecording, match="cannot be read: Is a directory"):
        read(tmp_path)
