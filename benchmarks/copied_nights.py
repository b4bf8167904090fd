"""Copies nights inside Postgres: rows with new ids in the same states, by way of as many versions of each row.

The workers' functions write 500 trials a second on two cores, copies are made some sixty times as fast, so that a
hundred million trials can be had. A copied night is a night that `benchmarks.trial_bytes` wrote, anew: its trials are
planned with their code key, then get their compilation and then their times, each in transactions of which every one
changes an eighth of the rows of a page, as the workers' do; its runs, measurements and verdicts are its own. Every
second copy has new compilations, with new keys in no order, and the one after it finds its code compiled. What it does
not do is check foreign keys and wait for the disk.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from sqlalchemy import Connection, TextClause, text

from tilewatch.db.fact_writes import PARTS
from tilewatch.db.models import Base
from tilewatch.db.session import engine

WRITERS = min(12, os.cpu_count() or 2)
"""SQLAlchemy gives 15 connections at a time."""

SETTINGS = ("session_replication_role = replica", "synchronous_commit = off", "temp_buffers = '128MB'")
"""No trigger runs, and with that no check of a foreign key."""

STAGE = text("""
    create temporary table copied as
    select sweeps.submission_id, trials.sweep_id, trials.config_id, trials.compilation_id, trials.status,
           trials.samples_us, trials.median_us, trials.error,
           row_number() over (partition by trials.sweep_id order by trials.config_id) % :parts as part
    from trials join sweeps on sweeps.id = sweep_id join commits on commits.id = commit_id
    where commits.position = any(:nights)
""")
PLAN = text("""
    insert into trials (sweep_id, config_id, code_key)
    select copied.sweep_id + :sweeps, copied.config_id, compilations.code_key
    from copied join compilations on compilations.id = copied.compilation_id + :compilations
    where submission_id = :submission_id
    order by copied.sweep_id, copied.config_id
""")
ATTACH = text("""
    update trials set compilation_id = copied.compilation_id + :compilations, code_key = null, status = 'compiled'
    from copied
    where submission_id = :submission_id and part = :part and copied.sweep_id % :shares = :share
        and trials.sweep_id = copied.sweep_id + :sweeps and trials.config_id = copied.config_id
""")
TIME = text("""
    update trials set status = copied.status, samples_us = copied.samples_us, median_us = copied.median_us,
                      error = copied.error
    from copied
    where submission_id = :submission_id and part = :part and copied.sweep_id % :shares = :share
        and trials.sweep_id = copied.sweep_id + :sweeps and trials.config_id = copied.config_id
""")

LATER = "+ make_interval(days => :days)"
CHANGED: dict[str, tuple[str, dict[str, str]]] = {
    "commits": (
        "position = :night",
        {
            "id": "id + :commits",
            "sha": "lpad(to_hex(cast(:number as int)), 40, '0')",
            "position": ":number",
            "committed_at": f"committed_at {LATER}",
        },
    ),
    "submissions": (
        "commit_id = :commit_id",
        {
            "id": "id + :submissions",
            "key": "'nightly:' || :number || ':' || gpu_model",
            "night": "night + :days",
            "commit_id": "commit_id + :commits",
            "requested_at": f"requested_at {LATER}",
        },
    ),
    "sweeps": (
        "commit_id = :commit_id",
        {
            "id": "id + :sweeps",
            "submission_id": "submission_id + :submissions",
            "commit_id": "commit_id + :commits",
            "created_at": f"created_at {LATER}",
        },
    ),
    "compilations": (
        "id in (select compilation_id from copied)",
        {
            "id": "id + :compilations",
            "code_key": "encode(sha256((code_key || :number)::bytea), 'hex')",
            "content_key": "md5(content_key || :number)",
            "code_sha256": "md5(code_sha256 || :number)",
        },
    ),
    "runs": (
        "sweep_id in (select id from sweeps where submission_id = :submission_id)",
        {
            "id": "id + :runs",
            "key": "'run ' || sweep_id + :sweeps",
            "sweep_id": "sweep_id + :sweeps",
            "started_at": f"started_at {LATER}",
            "finished_at": f"finished_at {LATER}",
        },
    ),
    "measurements": (
        "run_id in (select runs.id from runs join sweeps on sweeps.id = sweep_id where submission_id = :submission_id)",
        {"id": "id + :measurements", "run_id": "run_id + :runs"},
    ),
    "verdicts": (
        "run_id in (select runs.id from runs join sweeps on sweeps.id = sweep_id where submission_id = :submission_id)",
        {"run_id": "run_id + :runs"},
    ),
}
"""Of each table: which rows are copied, and the columns of a copy that differ."""

NUMBERED = [name for name in CHANGED if name != "verdicts"]


class Copies:
    """Copies two nights again and again: of the first, whose number is even, everything was compiled."""

    def __init__(self, connections: Sequence[Connection], nights: tuple[int, int]) -> None:
        self._nights = nights
        self._connections = connections
        self._threads = ThreadPoolExecutor(len(connections))
        for connection in connections:
            for setting in SETTINGS:
                connection.execute(text(f"set {setting}"))
            connection.execute(STAGE, {"nights": list(nights), "parts": PARTS})
            connection.execute(text("create index on copied (submission_id, part)"))
            connection.execute(text("analyze copied"))

    def write(self, number: int) -> None:
        """Adds nights `number`, which is even, and `number + 1`."""
        connection = self._connections[0]
        compilations = _largest_ids(connection)["compilations"]
        for night, source in enumerate(self._nights, number):
            largest = _largest_ids(connection) | {"compilations": compilations}
            self._write_night({"number": night, "night": source, "days": night - source, **largest})
        for table in NUMBERED:
            sequence = f"setval(pg_get_serial_sequence('{table}', 'id'), (select max(id) from {table}))"  # noqa: S608
            connection.execute(text(f"select {sequence}"))

    def _write_night(self, values: dict[str, int]) -> None:
        compiles = values["number"] % 2 == 0
        connection = self._connections[0]
        values |= {
            "commit_id": connection.execute(text("select id from commits where position = :night"), values).scalar_one()
        }
        for table in ("commits", "submissions", "sweeps", *(["compilations"] if compiles else [])):
            _copy(connection, table, values)
        found = text("select id from submissions where commit_id = :commit_id order by id")
        submissions = list(connection.scalars(found, values))
        for submission_id in submissions:  # one after the other, as they are submitted: so the index fills its pages
            connection.execute(PLAN, values | {"submission_id": submission_id})

        shares = math.ceil(len(self._connections) / len(submissions))
        work = [values | {"submission_id": each, "share": share} for each in submissions for share in range(shares)]
        for update in (ATTACH, TIME):
            for part in range(PARTS):
                changed = {"part": part, "shares": shares}
                self._share_out([each | changed for each in work], partial(_change, update))
        self._share_out(work, _copy_runs)

    def _share_out(self, work: Sequence[dict[str, int]], write: Callable[[Connection, dict[str, int]], None]) -> None:
        """Returns when all writers are done, so that no transaction of before is open when a page's next part comes: it
        would keep the old versions, whose room the new ones take. A real sweep writes every 2 s."""
        writers = len(self._connections)

        def write_some(number: int, connection: Connection) -> None:
            for taken in work[number::writers]:
                write(connection, taken)

        list(self._threads.map(write_some, range(writers), self._connections))


def _change(update: TextClause, connection: Connection, values: dict[str, int]) -> None:
    connection.execute(update, values)


def _copy_runs(connection: Connection, values: dict[str, int]) -> None:
    """Copies the runs of a submission, with its first share."""
    if values["share"] == 0:
        for table in ("runs", "measurements", "verdicts"):
            _copy(connection, table, values)


def _copy(connection: Connection, table: str, values: dict[str, int]) -> None:
    where, changed = CHANGED[table]
    columns = [column.name for column in Base.metadata.tables[table].columns]
    new = ", ".join(changed.get(name, name) for name in columns)
    # Its names are this module's and the models' own.
    copy = f"insert into {table} ({', '.join(columns)}) select {new} from {table} where {where}"  # noqa: S608
    connection.execute(text(copy), values)


def _largest_ids(connection: Connection) -> dict[str, int]:
    """What to add to an id of each table so that it is new."""
    largest = ", ".join(f"(select coalesce(max(id), 0) from {table}) as {table}" for table in NUMBERED)  # noqa: S608
    return dict(connection.execute(text(f"select {largest}")).one()._mapping)


@contextmanager
def copies(url: str, nights: tuple[int, int]) -> Iterator[Copies]:
    """Opens connections that copy: each statement is a transaction, and triggers do not run."""
    with ExitStack() as stack:
        opened = [stack.enter_context(engine(url).connect()) for _ in range(WRITERS)]
        yield Copies([each.execution_options(isolation_level="AUTOCOMMIT") for each in opened], nights)
        for each in opened:
            each.invalidate()  # the settings end with it
