"""Imports recordings: runs that were measured elsewhere. A file is imported completely or not at all."""

import datetime as dt
import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.exc import CompileError, DBAPIError, StatementError
from sqlalchemy.orm import Session

from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.models import RECORDED_HOST_END
from tilewatch.db.session import DATABASE_IS_AWAY, filling_session, session
from tilewatch.db.worker_reads import export, judging
from tilewatch.given_files import BadFile, open_given
from tilewatch.grouping import group_by
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.recording_file import BadRecording
from tilewatch.kernels.statistics import median_interval
from tilewatch.text import count_text, is_name, short_sha
from tilewatch.worker.measurement_rows import Sampled, measurement_rows
from tilewatch.worker.queue import follow_up
from tilewatch.worker.transfer import replays as transfer_replays
from tilewatch.worker.transfer.recorded_commits import MEASUREMENT_COLUMNS, RUN_COLUMNS, SWEEP_COLUMNS, RecordedCommits

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Imported:
    """The result of an import. `created` is False if the file was imported before."""

    created: bool
    sentence: str


def import_file(database_url: str, path: Path, *, named: str | None = None) -> Imported:
    """Imports a recording and queues its judge jobs. Raises BadRecording, after which nothing has changed."""
    if named is not None and not is_name(named):
        raise BadRecording(f"{named!r:.60} cannot be the name of a repository")
    try:
        with open_given(path) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except BadFile as error:
        raise BadRecording(str(error)) from None
    with session(database_url) as opened:
        if export.has_recording(opened, sha256):  # asked first, because reading all shipped recordings takes 7 s
            return _describe_known(path)
    contents = recording_file.read(path)
    try:
        with filling_session(database_url) as opened:
            return _import(
                opened,
                path,
                sha256,
                contents if named is None else recording_file.rename_repository(contents, named),
            )
    except KeyError as error:
        raise BadRecording(f"{path} cannot be imported: a row names or lacks {error}") from None
    except (DBAPIError, StatementError) as error:
        if isinstance(error, DATABASE_IS_AWAY):
            raise
        raise BadRecording(f"{path} cannot be imported: {str(error.orig).splitlines()[0]}") from None
    except (TypeError, ValueError, AttributeError, CompileError) as error:  # CompileError: a column of a newer release
        raise BadRecording(f"{path} cannot be imported: a value does not fit its column: {error}") from None


def _describe_known(path: Path) -> Imported:
    return Imported(False, f"{path.name} was imported before; nothing changed")


def _import(opened: Session, path: Path, sha256: str, contents: recording_file.RecordingContents) -> Imported:
    header = contents.header
    recorded_at = dt.datetime.fromisoformat(header.recorded_at)
    recording_id, new = fact_writes.add_recording(
        opened, sha256=sha256, file_name=path.name, machine=header.machine, recorded_at=recorded_at
    )
    if not new:
        return _describe_known(path)
    rows = group_by(contents.rows, lambda row: row["row"])
    known_keys = export.find_known_run_keys(opened, [run["key"] for run in rows["run"]])
    runs = [run for run in rows["run"] if run["key"] not in known_keys]
    # A sweep whose runs are all here came with another file, or was measured here.
    held = {run["sweep"] for run in rows["run"]} - {run["sweep"] for run in runs}
    sweeps = [sweep for sweep in rows["sweep"] if sweep["id"] not in held]
    columns = [{name: value for name, value in row.items() if name != "row"} for row in rows["compilation"]]
    fact_writes.add_compilations(opened, [{**row, "host": row["host"] + RECORDED_HOST_END} for row in columns])
    config_ids = _config_ids(opened, contents.rows)
    commits = RecordedCommits(opened)
    for sweep in rows["sweep"]:  # also of runs that are here: a later file knows which commits left the branch since
        commits.add(sweep["commit"])
    measured = {run["sweep"] for run in runs}
    sweep_ids = _import_sweeps(opened, sweeps, commits, recording_id, f"recorded:{sha256}", measured)
    _import_trials(opened, [row for row in rows["trial"] if row["sweep"] not in held], sweep_ids, config_ids)
    _import_runs(opened, runs, rows["measurement"], recording_id, sweep_ids, config_ids)
    transfer_replays.write_replays(opened, rows["replay"], commits, recording_id)
    _judge(opened, recording_id)
    repeated = f", {len(known_keys)} more were here already" if known_keys else ""
    return Imported(
        True,
        f"imported {count_text(len(runs), 'run')} recorded on {header.machine}, {recorded_at.date()}, from {path.name}"
        + repeated,
    )


def _judge(opened: Session, recording_id: int) -> None:
    """Queues a judge job for each night of a recording, and for each undecided night that its replays may decide."""
    undecided = fact_writes.delete_undecided(opened, recording_id)
    for night in judging.list_recorded_nights(opened, recording_id, undecided):
        follow_up.add_judge_job(
            opened,
            night.run_id,
            submission_id=night.submission_id,
            subject=f"recorded {short_sha(night.sha)} on {night.gpu_model}",
            priority=Priority.BACKFILL,
            again=f"recording {recording_id}",
        )


def _config_ids(opened: Session, rows: Sequence[Row]) -> dict[str, int]:
    configs = [row["config"] for row in rows if row.get("config") is not None]
    ties = [config for row in rows if row["row"] == "run" for config in row["tie"]]
    return fact_writes.add_configs(opened, [*configs, *ties])


def _import_sweeps(
    opened: Session, rows: Sequence[Row], commits: RecordedCommits, recording_id: int, key: str, measured: set[Any]
) -> dict[Any, int]:
    """Adds the sweeps of a recording. Returns {id in the file: new id}."""
    submission_ids, of_submissions = dict[str, int](), list[Row]()
    for model in {tuple(sorted(row["gpu_model"].items())): row["gpu_model"] for row in rows}.values():
        fact_writes.add_gpu_model(opened, **model, corrects=False)
    met: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        commit, model = row["commit"], row["gpu_model"]
        group = (row["reason"], row["night"], commit["repository"], commit["sha"], model["slug"])
        again = met[*group, row["kernel"], row["problem"]]
        met[*group, row["kernel"], row["problem"]] += 1
        commit_id = commits.add(commit)
        submission = ":".join(str(part) for part in (key, *group, again))
        if submission not in submission_ids:
            submission_ids[submission], _ = fact_writes.add_submission(
                opened,
                key=submission,
                reason="recorded",
                night=dt.date.fromisoformat(row["night"]) if row["night"] else None,
                commit_id=commit_id,
                gpu_model=model["slug"],
                measure=row["id"] in measured,
                recording_id=recording_id,
            )
        of_submissions.append(
            {
                "submission_id": submission_ids[submission],
                "commit_id": commit_id,
                "gpu_model": model["slug"],
                "parts_of": row.get("parts_of"),
                **{name: row[name] for name in SWEEP_COLUMNS},
            }
        )
    ids = fact_writes.add_sweeps(opened, of_submissions)
    return dict(zip((row["id"] for row in rows), ids, strict=True))


def _import_trials(
    opened: Session, rows: Sequence[Row], sweep_ids: Mapping[Any, int], config_ids: Mapping[str, int]
) -> None:
    by_sweep: dict[int, list[tuple[int, Row]]] = defaultdict(list)
    by_compiler: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        by_sweep[sweep_ids[row["sweep"]]].append((config_ids[config_sha256(row["config"])], row))
        if row["compiler"] is not None:
            by_compiler[row["compiler"]].add(sweep_ids[row["sweep"]])
    planned = {key: [(config_id, row["code_key"]) for config_id, row in trials] for key, trials in by_sweep.items()}
    fact_writes.add_trials(opened, planned)
    for compiler, compiled in sorted(by_compiler.items()):
        fact_writes.attach_compilations(opened, compiler=compiler, sweep_ids=compiled)
    results = {key: [_trial_result(*trial) for trial in trials] for key, trials in by_sweep.items()}
    fact_writes.write_trial_results(opened, results)


def _trial_result(config_id: int, row: Row) -> dict[str, Any]:
    median_us = median_interval(row["samples_us"]).median if row["status"] == "timed" and row["samples_us"] else None
    alike = {name: row[name] for name in ("status", "samples_us", "error", "failure")}
    return {**alike, "config_id": config_id, "median_us": median_us}


def _import_runs(
    opened: Session,
    runs: Sequence[Row],
    measurements: Sequence[Row],
    recording_id: int,
    sweep_ids: Mapping[Any, int],
    config_ids: Mapping[str, int],
) -> None:
    of_sweeps = [
        {
            "sweep_id": sweep_ids[row["sweep"]],
            "origin": "recorded",
            "recording_id": recording_id,
            "tie": [config_ids[config_sha256(config)] for config in row["tie"]],
            "started_at": dt.datetime.fromisoformat(row["started_at"]),
            "finished_at": dt.datetime.fromisoformat(row["finished_at"]),
            **{name: row[name] for name in RUN_COLUMNS},
        }
        for row in runs
    ]
    run_ids = dict(zip((row["key"] for row in runs), fact_writes.add_runs(opened, of_sweeps), strict=True))
    sampled: dict[int, list[Sampled]] = defaultdict(list)
    for row in measurements:
        if row["run"] in run_ids:
            config_id = None if row["config"] is None else config_ids[config_sha256(row["config"])]
            columns = {name: row[name] for name in MEASUREMENT_COLUMNS}
            sampled[run_ids[row["run"]]].append(Sampled(**columns, config_id=config_id))
    measured = {run_id: measurement_rows(of_run) for run_id, of_run in sampled.items()}
    fact_writes.add_measurements(opened, measured)
