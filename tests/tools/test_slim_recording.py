"""Whole nights are kept: with the winners of all series, and without the trials and counters that take most bytes."""

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tilewatch.kernels.recording import recording_file
from tilewatch.worker.transfer.importing import import_file
from tools.slim_recording import Row, slim

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "recordings"
NIGHT = RECORDINGS / "h100-f727a301.jsonl.gz"
MOST_BYTES = 24 << 20


def test_a_slim_night_has_each_series_with_its_winner_and_baselines() -> None:
    whole = recording_file.read(NIGHT).rows
    kept = list(slim(whole))
    assert len(kept) < len(whole) / 5
    count, before = (Counter(row["row"] for row in rows) for rows in (kept, whole))
    assert (count["sweep"], count["run"], count["measurement"]) == (
        before["sweep"],
        before["run"],
        before["measurement"],
    )
    assert count["trial"] == count["sweep"]

    def list_times(rows: Sequence[Row]) -> list[object]:
        return [(row["run"], row["implementation"], row["samples_us"]) for row in rows if row["row"] == "measurement"]

    assert list_times(kept) == list_times(whole)
    wholes = [row["detail"]["whole_sweep"] for row in kept if row.get("role") == "kernel"]
    assert sum(each["tried"] for each in wholes) == before["trial"]
    timed = sum(row["row"] == "trial" and row["status"] == "timed" for row in whole)
    assert sum(each["timed"] for each in wholes) == timed
    assert not any({"counters", "checklist"} & row["detail"].keys() for row in kept if row["row"] == "measurement")


def test_a_slim_night_can_be_imported_and_knows_its_code(database_url: str, tmp_path: Path) -> None:
    """Without the machine code of its winners, a night could not be told from one of a commit that changed nothing."""
    contents = recording_file.read(RECORDINGS / "h200-f76abdf4.jsonl.gz")
    file = tmp_path / "slim.jsonl.gz"
    recording_file.write(file, contents.header, slim(contents.rows))
    assert import_file(database_url, file).created
    code = {row["code_sha256"] for row in recording_file.read(file).rows if row["row"] == "compilation"}
    assert code <= {row["code_sha256"] for row in contents.rows if row["row"] == "compilation"}
    assert len(code) > 1


def test_a_recording_that_was_once_here_stays() -> None:
    """It may move to the nights, slim."""
    named = subprocess.run(
        ["git", "-C", ROOT, "log", "--format=", "--diff-filter=D", "--name-only", "--no-renames", "--", "recordings"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    gone = {Path(name).name for name in named if name.endswith(".jsonl.gz")}
    gone -= {"h200-story.jsonl.gz"}  # recordings/story/h200.jsonl.gz, which its pages are named after
    kept = {file.name for file in RECORDINGS.rglob("*.jsonl.gz")}
    assert gone - kept == set(), "a night is never replaced by a later one: tools/slim_recording.py makes it small"


def test_all_recordings_fit_into_their_limit() -> None:
    assert sum(file.stat().st_size for file in RECORDINGS.rglob("*") if file.is_file()) <= MOST_BYTES
