"""Keeps finished runs on this machine's disk until they are in the database, one file each."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from tilewatch.kernels.results import RunResult


@dataclass(frozen=True)
class Spooled:
    """A finished run with the id and key of its measure job. The key shows whether a database contains this job."""

    job_id: int
    job_key: str
    result: RunResult


_READ = TypeAdapter(Spooled)


def keep(folder: Path, spooled: Spooled) -> Path:
    """Writes a run atomically to the spool folder and returns the file."""
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
        making.unlink(missing_ok=True)  # the disk may be full
        raise
    _sync(folder)
    return file


def list_waiting(folder: Path) -> list[Path]:
    """Lists the files of runs that are not in the database yet."""
    return sorted(folder.glob("*.json"))


def list_refused(folder: Path) -> list[Path]:
    """Lists the files of runs that cannot be written to the database."""
    return sorted(folder.glob("*.refused"))


def read(file: Path) -> Spooled | None:
    """Returns a run from the spool; None if another process delivered it. Raises ValueError if the file is wrong."""
    try:
        return _READ.validate_python(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def refuse(file: Path) -> Path:
    """Renames a file that cannot be delivered, for a person to look at, and returns its new path."""
    refused = file.with_suffix(".refused")
    with contextlib.suppress(FileNotFoundError):
        file.rename(refused)
    return refused


def _sync(folder: Path) -> None:
    """Writes a folder's list of files to disk, so that a power cut cannot undo a rename."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
