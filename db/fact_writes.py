"""Writes submissions, compilations, measurements and verdicts to the database.

Writing a row twice changes nothing, unless a docstring says otherwise. The caller opens the session and commits. Bulk
writes sort their rows, because two workers could otherwise deadlock. A `row` maps names of columns to values.
"""

import dataclasses
import datetime as dt
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, case, cast, delete, exists, func, literal, or_, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.orm import Session

from tilewatch.configs import config_sha256
from tilewatch.db import trial_facts
from tilewatch.db.models import (
    RECORDED_HOST_END,
    CodeDiff,
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Recording,
    Replay,
    Run,
    Submission,
    Sweep,
    Trial,
    Verdict,
    Worker,
)
from tilewatch.db.natural_keys import find_or_add, find_or_add_all
from tilewatch.db.query_parts import committed_runs

Row = Mapping[str, Any]

_ADD_TRIALS = text("""
    insert into trials (sweep_id, config_id, code_key)
    select sweep_id, config_id, code_key
    from json_to_recordset(cast(:planned as json)) as planned (sweep_id int8, config_id int8, code_key text)
    on conflict (sweep_id, config_id) do nothing
""")
_END_TRIALS = text("""
    with result as materialized (
        select * from json_to_recordset(cast(:results as json)) as result (
            sweep_id int8, config_id int8, status text, samples_us float8[], median_us float8, error float8,
            failure text
        )
    )
    update trials set
        status = result.status, samples_us = result.samples_us, median_us = result.median_us, error = result.error,
        failure = result.failure
    from result
    where trials.sweep_id = result.sweep_id and trials.config_id = result.config_id
        and (trials.status in ('waiting', 'compiled') or result.status = any(:measured))
        and (trials.status, trials.samples_us, trials.median_us, trials.error, trials.failure) is distinct from
            (result.status, result.samples_us, result.median_us, result.error, result.failure)
""")
"""Updates trials. Like `_ADD_TRIALS`, it gets all rows as one JSON text, which Postgres reads as fast as a COPY into a
temporary table, in one exchange instead of four. One statement per row would store 5,000 trials a second, a sixth as
many (benchmarks/storage.py, 2 cores, 2026-11-22). A quarter of the time is the check of two foreign keys."""

PARTS = 8
"""The most parts into which `in_parts` splits rows. The new rows of a part then fit into the free tenth of their page
(db/models.py). A compiled trial takes half the space of a planned one."""

PART_ROWS = 12
"""The fewest rows in a part. Each part is a transaction of 5 to 10 ms. A sweep of 50 trials once had sixteen parts, and
its verdict waited for all of them (2 cores, 2026-11-23)."""

MEASURED = ("timed", "wrong", "launch_error", "crashed", "hung")
"""The states of a trial that only a run on a GPU can find."""


@dataclass(frozen=True)
class NewVerdict:
    """A verdict on a run. A change, if any, happened after `good_commit_id` and no later than `bad_commit_id`."""

    run_id: int
    verdict: str
    change: float | None
    noise: float | None
    history_points: int
    policy: str
    reason: str
    low: float | None = None
    high: float | None = None
    smallest: float | None = None
    good_commit_id: int | None = None
    bad_commit_id: int | None = None


def add_gpu_model(session: Session, *, corrects: bool = True, **row: Any) -> None:
    """Adds or updates a GPU model. If `corrects` is False, only missing peak rates are updated."""
    new = insert(GpuModel).values(**row)
    first, second = (new.excluded, GpuModel) if corrects else (GpuModel, new.excluded)
    session.execute(
        new.on_conflict_do_update(
            index_elements=[GpuModel.slug],
            set_={
                "name": first.name,
                "arch": first.arch,
                "fp8_tflops": func.coalesce(first.fp8_tflops, second.fp8_tflops),
                "bandwidth_gbps": func.coalesce(first.bandwidth_gbps, second.bandwidth_gbps),
            },
        )
    )


def add_commit(session: Session, *, corrects: bool = True, **row: Any) -> int:
    """Adds or updates a commit and returns its id. If `corrects` is False, the stored position is kept."""
    new = insert(Commit).values(**row)
    corrected = new.on_conflict_do_update(
        index_elements=[Commit.repository, Commit.sha],
        set_={
            # The larger position is right, because a shallow clone counts too few commits.
            "position": func.greatest(Commit.position, new.excluded.position) if corrects else Commit.position,
            "author": func.coalesce(Commit.author, new.excluded.author),
            **({"left_branch_at": func.coalesce(Commit.left_branch_at, row.get("left_branch_at"))} if corrects else {}),
        },
    )
    return session.execute(corrected.returning(Commit.id)).scalar_one()


def add_recording(
    session: Session, *, sha256: str, file_name: str, machine: str, recorded_at: dt.datetime
) -> tuple[int, bool]:
    """Adds a recording if its SHA-256 is new. Returns the recording's id and whether it is new."""
    about = {"sha256": sha256, "file_name": file_name, "machine": machine, "recorded_at": recorded_at}
    return find_or_add(session, Recording, ("sha256",), about)


def add_submission(session: Session, **row: Any) -> tuple[int, bool]:
    """Adds a submission if its key is new. Returns the submission's id and whether it is new."""
    return find_or_add(session, Submission, ("key",), row)


def add_sweep(session: Session, **row: Any) -> int:
    """Adds a sweep if its kernel and problem are new in the submission. Returns the sweep's id."""
    return add_sweeps(session, [row])[0]


def add_sweeps(session: Session, rows: Sequence[Row]) -> list[int]:
    """Adds the sweeps that are new in their submissions. Returns the ids of all sweeps, in the order of `rows`."""
    of_model = [{**row, "space": dict(row["space"]), "parts_of": dict(row.get("parts_of") or {})} for row in rows]
    return find_or_add_all(session, Sweep, ("submission_id", "kernel", "problem"), of_model)


def lock_sweep(session: Session, sweep_id: int) -> None:
    """Locks a sweep until the transaction ends, so that only one worker stores a run for it."""
    session.execute(select(Sweep.id).where(Sweep.id == sweep_id).with_for_update(key_share=True))


def add_configs(session: Session, params: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Adds the configs that are not stored yet. Returns the ids of all configs by `config_sha256`."""
    by_sha256 = {config_sha256(config): dict(config) for config in params}
    if not by_sha256:
        return {}
    session.execute(
        insert(Config).on_conflict_do_nothing(index_elements=[Config.sha256]),
        [{"sha256": sha256, "params": by_sha256[sha256]} for sha256 in sorted(by_sha256)],
    )
    query = select(Config.sha256, Config.id).where(Config.sha256 == func.any(list(by_sha256)))
    return {row.sha256: row.id for row in session.execute(query)}


def add_trials(session: Session, planned: Mapping[int, Sequence[tuple[int, str]]]) -> None:
    """Adds waiting trials. `planned` maps the id of a sweep to pairs (config_id, code_key)."""
    rows = [
        {"sweep_id": sweep_id, "config_id": config_id, "code_key": code_key}
        for sweep_id in sorted(planned)
        for config_id, code_key in sorted(planned[sweep_id])
    ]
    if rows:
        session.execute(_ADD_TRIALS, {"planned": json.dumps(rows)})


def add_winner(session: Session, sweep_id: int, winner: Measurement, median_us: float) -> None:
    """Copies the trial of a run's winner to the sweep `sweep_id`, unless this sweep has a trial of the config."""
    columns = ("config_id", "compilation_id", "status", "error")
    found = (
        select(literal(sweep_id), literal(median_us), *(getattr(Trial, name) for name in columns))
        .join(Run, Run.sweep_id == Trial.sweep_id)
        .where(Run.id == winner.run_id, Trial.config_id == winner.config_id)
    )
    added = insert(Trial).from_select(["sweep_id", "median_us", *columns], found).on_conflict_do_nothing()
    session.execute(added)


def add_compilations(session: Session, rows: Sequence[Row]) -> None:
    """Stores compilations with every column but id and created_at. A better outcome replaces a stored outcome."""
    if not rows:
        return
    new = insert(Compilation)
    columns = [column.name for column in Compilation.__table__.columns if column.name != "id"]
    better = new.on_conflict_do_update(
        index_elements=[Compilation.code_key, Compilation.compiler],
        set_={name: new.excluded[name] for name in columns},
        where=or_(
            (Compilation.status != "ok") & (new.excluded.status == "ok"),
            # The stored timeout may have come from a busy machine.
            (Compilation.status == "timeout") & (new.excluded.cpu_s > Compilation.cpu_s),
            Compilation.host.endswith(RECORDED_HOST_END) & ~new.excluded.host.endswith(RECORDED_HOST_END),
        ),
    )
    session.execute(better, sorted((dict(row) for row in rows), key=lambda row: (row["code_key"], row["compiler"])))


def attach_compilations(
    session: Session,
    *,
    compiler: str,
    submission_id: int | None = None,
    sweep_ids: Collection[int] | None = None,
    code_keys: Collection[str] | None = None,
) -> int:
    """Links waiting trials to the stored compilations of their code. Returns the number of linked trials."""
    if (submission_id is None) == (sweep_ids is None):
        raise TypeError("attach_compilations needs a submission_id or sweep_ids, and not both")
    wanted = Sweep.submission_id == submission_id if sweep_ids is None else Sweep.id == func.any(list(sweep_ids))
    # The lock makes two workers that finish the last two batches take turns, so that the second sees that no trial
    # waits. A transaction that also writes compilations must write them before, or two of them may deadlock.
    locked = list(session.scalars(select(Sweep.id).where(wanted).order_by(Sweep.id).with_for_update(key_share=True)))
    attached = session.execute(
        update(Trial)
        .where(
            Trial.sweep_id == func.any(locked),
            Trial.status == "waiting",
            Trial.code_key == Compilation.code_key,
            Compilation.compiler == compiler,
            # Timeouts that are stored for other keys may be tried again.
            *(() if code_keys is None else (Trial.code_key == func.any(list(code_keys)),)),
        )
        .values(
            compilation_id=Compilation.id,
            code_key=None,
            status=case((Compilation.status == "ok", "compiled"), else_="not_compiled"),
            failure=Compilation.failure,
        )
        .returning(Trial.sweep_id)
    )
    of_sweeps = attached.scalars().all()
    _keep_trial_facts(session, sorted(set(of_sweeps)))
    return len(of_sweeps)


def _keep_trial_facts(session: Session, sweep_ids: Sequence[int]) -> None:
    """Stores the trial counts of the sweeps in which no trial waits for a compilation."""
    waits = exists().where(Trial.sweep_id == Sweep.id, Trial.status == "waiting")
    session.execute(
        update(Sweep).where(Sweep.id == func.any(list(sweep_ids)), ~waits).values(trial_facts=trial_facts.count())
    )


def in_parts(rows: Sequence[Any]) -> list[Sequence[Any]]:
    """Splits sorted rows into parts, to be written in one transaction each. Of n parts, each has every n-th row."""
    # A part changes a few rows of every page of the table. Postgres can then put a row's new version on the same page,
    # in space that the previous transaction freed. One transaction would leave all pages half empty.
    parts = min(PARTS, -(-len(rows) // PART_ROWS))
    return [rows[part::parts] for part in range(parts)]


def write_trial_results(session: Session, of_sweeps: Mapping[int, Sequence[Row]]) -> None:
    """Stores results of trials, given by sweep id. A result from a GPU replaces any status; another result replaces
    only the statuses "waiting" and "compiled"."""
    # Of several rows for a config the last one counts, as if they had been written one by one.
    last = {
        (sweep_id, row["config_id"]): row
        for sweep_id, rows in of_sweeps.items()
        for row in rows
        if row["status"] != "waiting"
    }
    if not last:
        return
    # The sweeps are locked first, as in attach_compilations, so that two workers that write one sweep take turns.
    sweep_ids = sorted({sweep_id for sweep_id, _ in last})
    chosen = select(Sweep.id, Sweep.pruned_at).where(Sweep.id == func.any(sweep_ids)).order_by(Sweep.id)
    locked = session.execute(chosen.with_for_update(key_share=True)).all()
    results = json.dumps([_result(sweep_id, last[sweep_id, config_id]) for sweep_id, config_id in sorted(last)])
    session.execute(_END_TRIALS, {"results": results, "measured": list(MEASURED)})
    if any(row.pruned_at is not None for row in locked):  # they have samples again
        session.execute(update(Sweep).where(Sweep.id == func.any(sweep_ids)).values(pruned_at=None))
    not_measured = {sweep_id for (sweep_id, _), row in last.items() if row["status"] not in MEASURED}
    if not_measured:
        _keep_trial_facts(session, sorted(not_measured))


def _result(sweep_id: int, row: Row) -> Row:
    """Returns a row with `sweep_id` added and `error` as text, because JSON has neither NaN nor infinity."""
    error = row["error"]
    return {**row, "sweep_id": sweep_id, "error": None if error is None else str(error)}


def add_run(session: Session, **row: Any) -> int:
    """Adds a run if its key is new, and returns its id. Raises ValueError if the key belongs to another sweep."""
    return add_runs(session, [row])[0]


def add_runs(session: Session, rows: Sequence[Row]) -> list[int]:
    """Adds runs with new keys and returns the ids of all runs. Raises ValueError if a key is used in another sweep."""
    whole = [
        {
            **row,
            "toolchain": dict(row["toolchain"]),
            "toolchain_sha256": config_sha256(row["toolchain"]),
            "telemetry": [dict(reading) for reading in row["telemetry"]],
            "tie": list(row["tie"]),
        }
        for row in rows
    ]
    ids = find_or_add_all(session, Run, ("key",), whole)
    sweeps = {
        row.id: row.sweep_id for row in session.execute(select(Run.id, Run.sweep_id).where(Run.id == func.any(ids)))
    }
    for run_id, row in zip(ids, rows, strict=True):
        if sweeps[run_id] != row["sweep_id"]:
            raise ValueError(f"the run {row['key']!r} is known already, and belongs to another sweep")
    return ids


def add_measurements(session: Session, of_runs: Mapping[int, Sequence[Row]]) -> None:
    """Adds measurements, given by run id. Does not replace stored measurements."""
    numbered = [{**row, "run_id": run_id} for run_id, rows in of_runs.items() for row in rows]
    if numbered:
        numbered.sort(key=lambda row: (row["run_id"], row["implementation"]))
        kept = insert(Measurement).on_conflict_do_nothing(
            index_elements=[Measurement.run_id, Measurement.implementation]
        )
        # Otherwise rows without a baseline would need statements of their own, and a night has hundreds of changes.
        session.execute(kept, numbered, execution_options={"render_nulls": True})


def write_counters(session: Session, run_key: str, found: Mapping[str, Any]) -> bool:
    """Adds hardware counters to the measurement of a run's kernel. Returns False if no such measurement is stored."""
    run = select(Run.id).where(Run.key == run_key).scalar_subquery()
    detail = Measurement.detail.op("-")("no_counters").op("||")(cast(found, JSONB))
    changed = update(Measurement).where(Measurement.run_id == run, Measurement.role == "kernel").values(detail=detail)
    return session.execute(changed.returning(Measurement.id)).first() is not None


def write_verdicts(session: Session, new: Iterable[NewVerdict]) -> None:
    """Stores verdicts on runs. Replaces a stored verdict only if it is undecided."""
    rows = [dataclasses.asdict(verdict) for verdict in sorted(new, key=lambda verdict: verdict.run_id)]
    if not rows:
        return
    proposed = insert(Verdict)
    columns = {name: proposed.excluded[name] for name in rows[0] if name != "run_id"}
    differs = (Verdict.reason != proposed.excluded.reason) | (Verdict.verdict != proposed.excluded.verdict)
    decided = proposed.on_conflict_do_update(
        index_elements=[Verdict.run_id],
        set_={**columns, "judged_at": func.now()},
        where=(Verdict.verdict == "undecided") & differs,
    )
    session.execute(decided, rows)


def delete_undecided(session: Session, recording_id: int) -> list[int]:
    """Deletes undecided verdicts on imported runs if a new recording may decide them. Returns the ids of the runs."""
    # A recorded run may decide later commits. A recorded replay may also decide its bad commit.
    run = committed_runs(select(Commit.repository, Sweep.gpu_model, (Commit.position + 1).label("position")))
    replay = select(Commit.repository, Replay.gpu_model, Commit.position).join(
        Replay, Replay.bad_commit_id == Commit.id
    )
    new = run.where(Run.recording_id == recording_id).union_all(replay.where(Replay.recording_id == recording_id)).cte()
    first = select(new.c.repository, new.c.gpu_model, func.min(new.c.position).label("position"))
    first_new = first.group_by(new.c.repository, new.c.gpu_model).subquery()
    later = committed_runs(select(Run.id)).join(
        first_new,
        and_(
            first_new.c.repository == Commit.repository,
            first_new.c.gpu_model == Sweep.gpu_model,
            first_new.c.position <= Commit.position,
        ),
    )
    undecided = delete(Verdict).where(
        Verdict.verdict == "undecided", Verdict.run_id.in_(later.where(Run.origin == "recorded"))
    )
    return list(session.scalars(undecided.returning(Verdict.run_id)))


def write_code_diff(
    session: Session, keys: tuple[str, str], sentence: str, changes: Sequence[Row], instructions: Sequence[Row]
) -> None:
    """Stores the difference between two cubins. `keys` are their content keys."""
    base_key, head_key = keys
    row = {"base_key": base_key, "head_key": head_key, "sentence": sentence}
    session.execute(insert(CodeDiff).values(**row, changes=changes, instructions=instructions).on_conflict_do_nothing())


def mark_compared(session: Session, run_id: int) -> None:
    """Stores that the code of a run's winner was compared with the previous winner's code."""
    session.execute(update(Run).where(Run.id == run_id).values(code_compared_at=func.now()))


def roll_up_trials(session: Session, before: dt.datetime, most: int) -> int | None:
    """Deletes the raw times of losing configs in at most `most` sweeps older than `before`. Returns how many trials
    changed; None if there are no more old sweeps."""
    unpruned = (
        select(Sweep.id)
        .where(Sweep.created_at < before, Sweep.pruned_at.is_(None))
        .order_by(Sweep.created_at)
        .limit(most)
        .with_for_update(key_share=True, skip_locked=True)
    )
    sweep_ids = list(session.scalars(unpruned))
    if not sweep_ids:
        return None
    won = select(Measurement.config_id).join(Run, Run.id == Measurement.run_id).where(Run.sweep_id == Trial.sweep_id)
    tied = exists().where(Run.sweep_id == Trial.sweep_id, Trial.config_id == func.any(Run.tie))
    rolled = (
        update(Trial)
        .where(
            Trial.sweep_id == func.any(sweep_ids),
            Trial.samples_us.is_not(None),
            ~exists(won.where(Measurement.config_id == Trial.config_id)),
            ~tied,
        )
        .values(samples_us=None)
        .returning(Trial.config_id)
    )
    trials = len(session.execute(rolled).all())
    pruned = update(Sweep).where(Sweep.id == func.any(sweep_ids)).values(pruned_at=func.now())
    session.execute(pruned)
    return trials


def write_heartbeat(session: Session, name: str, **row: Any) -> None:
    """Stores that a worker is alive, and its activity."""
    nothing: dict[str, Any] = {"gpu_model": None, "gpu_uuid": None, "queues": [], "doing": None}
    columns = {**nothing, **row, "toolchain": dict(row["toolchain"]), "queues": list(row.get("queues", ()))}
    # A toolchain without environments keeps the stored environments.
    known = func.jsonb_build_object("environments", Worker.toolchain["environments"])
    toolchain = func.jsonb_strip_nulls(known, type_=JSONB) + cast(columns["toolchain"], JSONB)
    latest = {**columns, "toolchain": toolchain, "seen_at": func.now()}
    session.execute(
        insert(Worker).values(name=name, **columns).on_conflict_do_update(index_elements=[Worker.name], set_=latest)
    )


def remove_worker(session: Session, name: str) -> None:
    session.execute(delete(Worker).where(Worker.name == name))
