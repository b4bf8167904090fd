"""Keeps finished runs on this machine's disk until they are in the database: one file each, safe from a power cut.

GPU time is what costs, so a run reaches the disk before it is sent to Postgres, and its file is deleted when Postgres
has committed it (write_run.py).
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from tilewatch.kernels.results import RunResult


@dataclass(frozen=True)
class Spooled:
    """A run, and the measure job that it is the result of. The key is checked on delivery: ids are those of one
    database, and a folder may outlive it."""

    job_id: int
    job_key: str
    result: RunResult


_READ = TypeAdapter(Spooled)


def keep(folder: Path, spooled: Spooled) -> Path:
    """Writes a file that is whole or not there, and returns when the disk has it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"job-{spooled.job_id}-{os.getpid()}-{spooled.result.started_at:%Y%m%dT%H%M%S%f}.json"
    making = file.with_suffix(".making")
    try:
        with making.open("w", encoding="utf-8") as out:
            json.dump(asdict(spooled), out, default=lambda moment: moment.isoformat())
            out.flush()
            os.fsync(out.fileno())
        making.rename(file)
    except OSError:
        making.unlink(missing_ok=True)  # half a file must not keep a full disk full
        raise
    _sync(folder)
    return file


def list_waiting(folder: Path) -> list[Path]:
    """Lists the files of runs that are not in the database, the oldest first."""
    return sorted(folder.glob("*.json"), key=lambda file: file.name)


def list_refused(folder: Path) -> list[Path]:
    """Lists the files that cannot be delivered."""
    return sorted(folder.glob("*.refused"))


def read(file: Path) -> Spooled | None:
    """Reads a run from the spool; None when the file is gone, because another process of this machine delivered it
    meanwhile.

    Raises ValueError for what is not a run, such as one of a release whose results looked different.
    """
    try:
        return _READ.validate_python(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def refuse(file: Path) -> Path:
    """Renames a file that cannot be delivered, so that a person can look at it and nothing tries it again."""
    return file.rename(file.with_suffix(".refused"))


def _sync(folder: Path) -> None:
    """Writes the folder to the disk: only then is a rename safe."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
