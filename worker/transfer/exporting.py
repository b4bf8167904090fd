"""Exports the runs that this database's workers measured, as a recording."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewatch.db.models import Compilation, GpuModel
from tilewatch.db.session import session
from tilewatch.db.worker_reads import export
from tilewatch.db.worker_reads.export import ExportFilter, SweepExport
from tilewatch.errors import ExpectedError
from tilewatch.kernels import HARNESS
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.recording_file import Header
from tilewatch.text import LONGEST_NAME, shorten
from tilewatch.worker.transfer import replays as transfer_replays
from tilewatch.worker.transfer.recorded_commits import MEASUREMENT_COLUMNS, RUN_COLUMNS, SWEEP_COLUMNS, write_commit

TRAVELLING = [each.name for each in Compilation.__table__.columns if each.name not in ("id", "created_at")]
"""The columns of a compilation that are exported. The others mean nothing in another database."""


class NothingToExport(ExpectedError):
    """Raised if no run passes the filter. The message is a sentence."""


def export_file(database_url: str, path: Path, wanted: ExportFilter) -> int:
    """Writes the runs that this database's workers measured, and returns the number of rows."""
    with session(database_url) as opened:
        sweeps = [
            export.read_sweep_export(opened, sweep_id) for sweep_id in export.list_sweeps_to_export(opened, wanted)
        ]
        if not sweeps:
            raise NothingToExport(
                "nothing to export: no worker of this database has measured such a sweep. "
                "What came with a recording is not written again: pass on its file"
            )
        replays = transfer_replays.replay_rows(export.list_replays_to_export(opened, wanted))
        return recording_file.write(path, _header(sweeps), itertools.chain(_rows(sweeps), replays))


def _header(found: Sequence[SweepExport]) -> Header:
    runs = [run for each in found for run, _ in each.runs]
    return Header(
        machine=_join({f"{run.host}, {run.gpu_name}" for run in runs}),
        recorded_at=max(run.finished_at for run in runs).isoformat(timespec="seconds"),
        repository=_join({each.commit.repository for each in found}),
        tool=f"tilewatch harness {HARNESS}",
    )


def _join(names: Iterable[str]) -> str:
    """Returns the names in one line that is short enough to be imported."""
    return shorten("; ".join(sorted(names)), LONGEST_NAME)


def _rows(found: Sequence[SweepExport]) -> Iterator[dict[str, Any]]:
    written: set[int] = set()
    for number, each in enumerate(found, start=1):
        yield _sweep_row(number, each)
        for trial, params, compilation in each.trials:
            if compilation is not None and compilation.id not in written:
                written.add(compilation.id)
                yield {"row": "compilation", **{name: getattr(compilation, name) for name in TRAVELLING}}
            yield {
                "row": "trial",
                "sweep": number,
                "config": params,
                "code_key": compilation.code_key if compilation else trial.code_key,
                "compiler": compilation.compiler if compilation else None,
                **{name: getattr(trial, name) for name in ("status", "failure", "error")},
                # Of an old sweep's loser only the median is left (fact_writes.roll_up_trials).
                "samples_us": [trial.median_us]
                if trial.status == "timed" and not trial.samples_us
                else trial.samples_us,
            }
        yield from _run_rows(number, each)


def _sweep_row(number: int, each: SweepExport) -> dict[str, Any]:
    sweep, submission, commit, model = each.sweep, each.submission, each.commit, each.gpu_model
    return {
        "row": "sweep",
        "id": number,
        "commit": write_commit(commit),
        "gpu_model": {column.name: getattr(model, column.name) for column in GpuModel.__table__.columns},
        "reason": submission.reason,
        "night": submission.night.isoformat() if submission.night else None,
        **{name: getattr(sweep, name) for name in SWEEP_COLUMNS},
        "space": {name: value for name, value in sweep.space.items() if name not in ("rest", "listed")},
        **({"parts_of": sweep.parts_of} if sweep.parts_of else {}),
    }


def _run_rows(number: int, each: SweepExport) -> Iterator[dict[str, Any]]:
    for run, measurements in each.runs:
        yield {
            "row": "run",
            "sweep": number,
            **{name: getattr(run, name) for name in RUN_COLUMNS},
            "tie": [each.params[config_id] for config_id in run.tie],
            "started_at": run.started_at.isoformat(),
            "finished_at": run.finished_at.isoformat(),
        }
        for measurement, params in measurements:
            yield {
                "row": "measurement",
                "run": run.key,
                "config": params,
                **{name: getattr(measurement, name) for name in MEASUREMENT_COLUMNS},
            }
