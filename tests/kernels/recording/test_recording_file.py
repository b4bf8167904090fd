"""A recording is read whole or refused with a sentence."""

import dataclasses
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewatch import processes
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.recording_file import BadRecording, Header, append, read, write

HEADER = Header("box, NVIDIA H200", "2026-11-21T03:00:00+00:00", "tilewatch", "tilewatch 0.1.0")
COMMIT = {"repository": "r", "sha": "ab", "position": 1, "committed_at": "2026-11-21T03:00:00+00:00", "subject": "s"}
MODEL = {"slug": "h200", "name": "NVIDIA H200", "arch": "sm_90", "fp8_tflops": 1979.0, "bandwidth_gbps": 4800.0}
CONFIG = {"tile_m": 64, "name": "a", "fast": True, "none": None}
SWEEP = {
    "row": "sweep", "id": 1, "commit": COMMIT, "gpu_model": MODEL, "reason": "manual", "night": None, "kernel": "k",
    "problem": "8", "arch": "sm_90", "source_sha256": "ab", "space": {"axes": [["tile_m", [64]]], "tile_table": None},
    "space_size": 1, "flops": 1, "bytes": 1,
}  # fmt: skip
RUN = {
    "row": "run", "key": "a", "sweep": 1, "host": "box", "gpu_uuid": "GPU-1", "gpu_name": "NVIDIA H200",
    "timer": "cupti", "toolchain": {}, "telemetry": [{"when": "before", "unix_s": 1.5, "throttled": ["heat"]}],
    "sweep_gpu_s": 1.0, "tie": [CONFIG], "started_at": "2026-11-21T03:00:00+00:00",
    "finished_at": "2026-11-21T03:00:01+00:00",
}  # fmt: skip
COMPILATION = {
    "row": "compilation", "code_key": "ab", "compiler": "c", "arch": "sm_90", "status": "ok", "failure": None,
    "content_key": "cd", "code_sha256": "ef", "symbol": "k", "registers": 8, "stack_bytes": 0, "shared_bytes": 0,
    "code_bytes": 8, "cubin_bytes": 8, "compile_s": 0.1, "host": "box", "remarks": [{"line": 3, "text": "loaded"}],
}  # fmt: skip
MEASUREMENT = {
    "row": "measurement", "run": "a", "implementation": "kernel", "role": "kernel", "config": CONFIG,
    "samples_us": [1, 2.5], "detail": {"chose": []},
}  # fmt: skip
TRIAL = {
    "row": "trial", "sweep": 1, "config": CONFIG, "code_key": "ab", "compiler": "c", "status": "timed",
    "failure": None, "samples_us": [1.5], "error": 0.0,
}  # fmt: skip
SIDE = {"commit": COMMIT, "config": CONFIG, "content_key": "cd", "code_sha256": "ef", "toolchain": "c"}
REPLAY = {
    "row": "replay", "key": "r", "kernel": "k", "problem": "8", "gpu_model": "h200", "axis": "commit",
    "failure": None, "host": "box", "gpu_uuid": "GPU-1", "telemetry": [], "gpu_s": 1.0, "good": SIDE, "bad": SIDE,
    "good_us": [1.0], "bad_us": [1.0], "at": "2026-11-21T03:00:00+00:00",
}  # fmt: skip
ROWS = [SWEEP, RUN]


def test_what_is_written_is_read_again_and_the_bytes_do_not_depend_on_the_clock(tmp_path: Path) -> None:
    one, other = tmp_path / "one.gz", tmp_path / "other.gz"
    assert write(one, HEADER, ROWS) == 2
    write(other, HEADER, ROWS)
    recording = read(one)
    assert (recording.header, list(recording.rows)) == (HEADER, ROWS)
    assert one.read_bytes() == other.read_bytes()


def test_runs_are_added_to_a_recording_of_the_same_machine(tmp_path: Path) -> None:
    path = tmp_path / "both.gz"
    for key in ("a", "b", "c"):
        assert append(path, HEADER, [SWEEP, COMPILATION, {**RUN, "key": key}]) == (3 if key == "a" else 2)
    rows = read(path).rows
    assert [row["id"] for row in rows if row["row"] == "sweep"] == [1, 2, 3]
    assert [(row["key"], row["sweep"]) for row in rows if row["row"] == "run"] == [("a", 1), ("b", 2), ("c", 3)]
    with pytest.raises(BadRecording, match="is of the machine 'box, NVIDIA H200', this run of 'other'"):
        append(path, dataclasses.replace(HEADER, machine="other"), ROWS)
    with pytest.raises(BadRecording, match="is of the repository 'tilewatch', this run of 'other'"):
        append(path, dataclasses.replace(HEADER, repository="other"), ROWS)
    assert append(path, dataclasses.replace(HEADER, tool="tilewatch 0.2", recorded_at="later"), []) == 0
    assert read(path) == recording_file.RecordingContents(HEADER, rows)


def test_only_a_compilation_by_the_same_compiler_is_there_already() -> None:
    rows = [{**COMPILATION, **changes} for changes in ({}, {"code_key": "cd"}, {"compiler": "d"})]
    assert recording_file.renumber([COMPILATION], rows) == rows[1:]
    sweep = {**SWEEP, "id": 2}
    assert [each["id"] for each in recording_file.renumber([{**SWEEP, "id": 7}, SWEEP], [SWEEP, sweep])] == [8, 9]


def test_a_recording_may_be_given_to_another_repository() -> None:
    """Each commit then has its name, also those of both sides of a replay; other fields stay."""
    contents = recording_file.RecordingContents(HEADER, (SWEEP, RUN, REPLAY))
    sweep, run, replay = recording_file.rename_repository(contents, "new").rows
    assert sweep == {**SWEEP, "commit": {**COMMIT, "repository": "new"}}
    assert run == RUN
    renamed = {**SIDE, "commit": {**COMMIT, "repository": "new"}}
    assert replay == {**REPLAY, "good": renamed, "bad": renamed}
    assert SWEEP["commit"] == COMMIT, "the rows that were given stay as they are"


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "whole.gz"
    write(path, HEADER, ROWS)
    whole = path.read_bytes()
    for length in range(1, len(whole), 7):
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
        (
            {"tilewatch_recording": 1, **HEADER.__dict__, "machine": "\x1b[2J"},
            [],
            r"header's machine is '\\x1b\[2J', which cannot be shown",
        ),
        (None, [SWEEP, SWEEP], "line 3: this sweep is there twice"),
        (None, [{"row": "poem"}], "'poem' is not a kind of row"),
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


GOOD = {row["row"]: row for row in (SWEEP, RUN, COMPILATION, MEASUREMENT, TRIAL, REPLAY)}


def test_every_kind_of_row_is_read(tmp_path: Path) -> None:
    write(tmp_path / "all.gz", HEADER, GOOD.values())
    assert list(read(tmp_path / "all.gz").rows) == list(GOOD.values())


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("measurement", {"samples_us": [0.0]}, "samples_us.0: input should be greater than 0"),
        ("measurement", {"samples_us": []}, "samples_us: list should have at least 1 item"),
        ("measurement", {"samples_us": [1e308]}, "samples_us.0: input should be less than"),
        ("replay", {"bad_us": [0]}, "bad_us.0: input should be greater than 0"),
        ("replay", {"good": {**SIDE, "content_key": "../../../etc/passwd"}}, "good.content_key: string should match"),
        ("compilation", {"content_key": "/etc/passwd"}, "content_key: string should match"),
        ("compilation", {"remarks": "text"}, "remarks: input should be a valid list"),
        ("compilation", {"remarks": ["text"]}, "remarks.0: input should be a valid dictionary"),
        ("sweep", {"space": {}}, "space.axes: field required"),
        ("sweep", {"space": {"axes": "abc"}}, "space.axes: input should be a valid list"),
        ("sweep", {"space": {"axes": [], "tile_table": "text"}}, "space.tile_table: input should be a valid dict"),
        ("sweep", {"commit": {**COMMIT, "position": 2**31 - 1}}, "commit.position: input should be less than"),
        ("sweep", {"commit": {**COMMIT, "sha": ""}}, "commit.sha: string should match"),
        ("sweep", {"gpu_model": {**MODEL, "fp8_tflops": -1.0}}, "gpu_model.fp8_tflops: input should be greater than 0"),
        ("sweep", {"kernel": ""}, "kernel: string should have at least 1 character"),
        ("sweep", {"kernel": "a\x1b[2J"}, "kernel: string should match"),
        ("sweep", {"problem": "a\x9b2J"}, "problem: string should match"),
        ("sweep", {"kernel": "a\u202eb"}, "kernel: string should match"),
        ("sweep", {"space_size": -1}, "space_size: input should be greater than"),
        ("sweep", {"parts_of": {"decode": 28.0}}, "parts_of.decode: input should be a valid dictionary"),
        ("sweep", {"parts_of": {"decode": {"weight": "x", "parts": 1}}}, "parts_of.decode.weight: input should be"),
        ("replay", {"counters": {"good": {}}}, "counters.CountersFields.bad: field required"),
        ("sweep", {"flops": 2**70}, "flops: input should be less than"),
        ("run", {"telemetry": [{"when": "x", "sm_clock_mhz": "fast"}]}, "telemetry.0.sm_clock_mhz: input should be"),
        ("run", {"telemetry": [{"when": "x", "throttled": 7}]}, "telemetry.0.throttled: input should be a valid list"),
        ("run", {"telemetry": [{"when": "x", "unix_s": "x"}]}, "telemetry.0.unix_s: input should be a valid number"),
    ],
)
def test_a_value_that_a_job_or_page_cannot_read_is_refused(
    tmp_path: Path, kind: str, changes: dict[str, object], sentence: str
) -> None:
    write(tmp_path / "odd.gz", HEADER, [{**GOOD[kind], **changes}])
    with pytest.raises(BadRecording, match=f"line 2: the {kind}'s {re.escape(sentence)}"):
        read(tmp_path / "odd.gz")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (b"[" * 200_000, "line 1 is not a JSON object"),
        (b"\n" * (1 << 20), "has more than 200,000 rows"),
        (b"x" * (2 << 20), "is too large: a line may have 1 MiB, the whole 3 MiB"),
    ],
)
def test_a_bomb_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: bytes, sentence: str
) -> None:
    if "too large" in sentence:
        monkeypatch.setattr(recording_file, "LINE_BYTES", 1 << 20)
        monkeypatch.setattr(recording_file, "FILE_BYTES", 3 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(lines))
    with pytest.raises(BadRecording, match=sentence):
        read(tmp_path / "bomb.gz")


@pytest.mark.parametrize("limit", ["LINE_BYTES", "FILE_BYTES"])
def test_a_recording_may_reach_a_limit_and_not_pass_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    path = tmp_path / "runs.gz"
    write(path, HEADER, ROWS)
    content = gzip.decompress(path.read_bytes())
    size_bytes = len(content) if limit == "FILE_BYTES" else max(map(len, content.splitlines(keepends=True)))
    monkeypatch.setattr(recording_file, limit, size_bytes)
    assert list(read(path).rows) == ROWS
    monkeypatch.setattr(recording_file, limit, size_bytes - 1)
    with pytest.raises(BadRecording, match="is too large"):
        read(path)


def write_hostile(file: Path, row: dict[str, Any], field: str, value: bytes, rows: int = 1) -> Path:
    """Writes rows that hold this text as one field, whether JSON can say it or not."""
    head = json.dumps({"tilewatch_recording": recording_file.VERSION, **dataclasses.asdict(HEADER)}).encode()
    with gzip.open(file, "wb", 1) as out:
        out.write(head + b"\n")
        for number in range(rows):
            line = json.dumps({**row, "implementation": f"kernel {number}", field: "@"}).encode()
            out.write(line.replace(b'"@"', value) + b"\n")
    return file


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b"[1e308]", "should be less than 1000000000000000000000000000000"),
        (b"[1e999]", "should be a finite number"),
        (b"[NaN]", "should be a finite number"),
        (b'["1.5"]', "should be a valid number"),
        (b"[true]", "should be a valid number"),
        (b"[" + b"9" * 5000 + b"]", "line 2 is not a JSON object"),
        (b"[" + b"1," * 1_000_000 + b"1]", "at most 1000000 items"),
    ],
)
def test_a_number_that_is_none_is_refused(tmp_path: Path, value: bytes, sentence: str) -> None:
    with pytest.raises(BadRecording, match=sentence):
        read(write_hostile(tmp_path / "odd.gz", MEASUREMENT, "samples_us", value))


def test_rows_that_unfold_take_less_than_a_gigabyte(tmp_path: Path) -> None:
    """Twelve lines of 4 MB would become 1.2 GB."""
    value = b'{"a":[' + b"{}," * 1_300_000 + b"{}]}"
    file = write_hostile(tmp_path / "unfolds.gz", MEASUREMENT, "detail", value, rows=12)
    program = f"""
from pathlib import Path
from tests.peak_memory import read_peak_mib
from tilewatch.kernels.recording.recording_file import BadRecording, read
try:
    read(Path({str(file)!r}))
except BadRecording as error:
    print(error)
print(read_peak_mib())
"""
    here = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True, check=True)
    sentence, most_mib = done.stdout.splitlines()
    assert "takes more than 768 MiB of memory by line " in sentence
    assert int(most_mib) < 1000


def test_a_device_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(BadRecording, match="is not a file"):
        read(tmp_path / "zero")


def test_a_pipe_is_no_recording(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadRecording, match="is not a file"):
        read(tmp_path / "pipe")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadRecording, match="is not gzip"):
        read(tmp_path / "text")
    with pytest.raises(BadRecording, match="there is no file"):
        read(tmp_path / "nothing")
    with pytest.raises(BadRecording, match="is a folder"):
        read(tmp_path)
    (tmp_path / "broken").symlink_to("/proc/self/mem")
    with pytest.raises(BadRecording, match="broken cannot be read: Input/output error"):
        read(tmp_path / "broken")
    (tmp_path / "bits").write_bytes(gzip.compress(b"")[:10] + b"\xff" * 20)
    with pytest.raises(BadRecording, match="is damaged: "):
        read(tmp_path / "bits")


def test_a_file_of_too_many_rows_is_refused_before_the_first_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{**SWEEP, "id": number} for number in (1, 2, 3)]
    write(tmp_path / "three.gz", HEADER, rows)
    monkeypatch.setattr(recording_file, "MOST_ROWS", 3)
    assert len(read(tmp_path / "three.gz").rows) == 3
    monkeypatch.setattr(recording_file, "MOST_ROWS", 2)
    monkeypatch.setattr(recording_file, "_parse", None)
    with pytest.raises(BadRecording, match="has more than 200,000 rows"):
        read(tmp_path / "three.gz")


def test_no_file_is_written_that_would_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_file, "MOST_ROWS", 1)
    with pytest.raises(BadRecording, match="choose a kernel"):
        write(tmp_path / "two.gz", HEADER, ROWS)
    assert list(tmp_path.iterdir()) == []
    assert write(tmp_path / "one.gz", HEADER, ROWS[:1]) == len(read(tmp_path / "one.gz").rows) == 1


def test_rows_take_a_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look finds what the rows since the first one took."""
    write(tmp_path / "two.gz", HEADER, ROWS)
    monkeypatch.setattr(recording_file, "LOOK_EVERY_BYTES", 1)
    taken = iter([0, recording_file.MEMORY_BYTES, recording_file.MEMORY_BYTES + 1])
    monkeypatch.setattr(recording_file, "_measure_memory", lambda: next(taken))
    with pytest.raises(BadRecording, match="more than 768 MiB of memory by line 3"):
        read(tmp_path / "two.gz")


TAKES_MEMORY = "taken = bytearray(b'x') * (64 << 20); print('taken', flush=True); input()"


def test_memory_of_child_processes_is_not_that_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tilewatch up` starts workers while it reads. Here a child takes 64 MiB between two looks, and 32 are allowed."""
    write(tmp_path / "two.gz", HEADER, ROWS)
    monkeypatch.setattr(recording_file, "LOOK_EVERY_BYTES", 1)
    monkeypatch.setattr(recording_file, "MEMORY_BYTES", 32 << 20)
    check = recording_file._check
    children: list[subprocess.Popen[bytes]] = []

    def start_child_and_check(*arguments: Any) -> None:
        check(*arguments)
        if not children:
            child = subprocess.Popen(
                [sys.executable, "-c", TAKES_MEMORY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            children.append(child)
            assert child.stdout is not None
            assert child.stdout.readline() == b"taken\n"

    monkeypatch.setattr(recording_file, "_check", start_child_and_check)
    try:
        assert len(read(tmp_path / "two.gz").rows) == len(ROWS)
        (child,) = children
        assert processes.measure_resident(child.pid) > 64 << 20
    finally:
        for each in children:
            each.communicate(b"\n")
