"""Keeps the finished trials of a sweep on disk, as JSON lines, so that a killed sweep can continue."""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Self

from tilewatch.configs import config_key
from tilewatch.kernels.results import PlannedTrial, TrialResult


def journal_path(folder: Path, trials: Iterable[PlannedTrial], conditions: Iterable[str]) -> Path:
    """Returns the path of a journal. The file name is a hash of the trials' code and of conditions such as the GPU."""
    digest = hashlib.sha256("\n".join([*conditions, *(trial.code_key for trial in trials)]).encode())
    return folder / f"{digest.hexdigest()[:24]}.jsonl"


class Journal:
    """The journal file of a sweep. `trials` has its finished trials by config."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.trials: dict[str, TrialResult] = {}

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = b""
        if self._path.exists():
            for line in self._path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break  # the kill cut off this line
                trial = _read_trial(line)
                self.trials[config_key(trial.config)] = trial
                whole += line
        self._file = self._path.open("r+b" if self._path.exists() else "wb")
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        return self

    def add(self, trial: TrialResult) -> None:
        """Writes a finished trial, unless the journal already has a trial of this config."""
        key = config_key(trial.config)
        if key in self.trials:
            return
        self.trials[key] = trial
        self._file.write(json.dumps(asdict(trial)).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def delete(self) -> None:
        """Deletes the file after a complete sweep."""
        self._path.unlink()

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _read_trial(line: bytes) -> TrialResult:
    fields = json.loads(line)
    return TrialResult(**{**fields, "samples_us": tuple(fields["samples_us"])})
