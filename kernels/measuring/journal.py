"""What a local sweep has found so far, on disk: a sweep that is killed goes on with what it has.

One JSON line per ended trial, flushed to the disk before the next one starts; a line cut by a kill is a trial that did
not end. Under a worker the database plays this part.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from tilewatch.kernels.results import Params, Planned, TrialResult


def config_key(config: Params) -> str:
    return json.dumps(dict(config), sort_keys=True)


def journal_path(folder: Path, trials: Iterable[Planned], conditions: Iterable[str]) -> Path:
    """A file per search space, code and conditions (GPU, driver, harness): another GPU's times are no use here."""
    digest = hashlib.sha256("\n".join([*conditions, *(trial.code_key for trial in trials)]).encode())
    return folder / f"{digest.hexdigest()[:24]}.jsonl"


class Journal:
    """Open while a sweep runs; `known` is what earlier, killed ones found."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[str, TrialResult] = {}

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = b""
        if self._path.exists():
            for line in self._path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break  # the kill came in the middle of this line
                trial = _trial(line)
                self.known[config_key(trial.config)] = trial
                whole += line
        self._file = self._path.open("r+b" if self._path.exists() else "wb")
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        return self

    def add(self, trial: TrialResult) -> None:
        """Once per trial: a config that is there already keeps its first result."""
        key = config_key(trial.config)
        if key in self.known:
            return
        self.known[key] = trial
        self._file.write(json.dumps(asdict(trial)).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def done(self) -> None:
        """The sweep ended: the next one starts afresh."""
        self._path.unlink()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _trial(line: bytes) -> TrialResult:
    found = json.loads(line)
    return TrialResult(**{**found, "samples_us": tuple(found["samples_us"])})
