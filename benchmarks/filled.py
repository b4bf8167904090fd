"""Opens a real Postgres that holds a simulated fleet. It is made for one benchmark, or kept in a folder for the next
one."""

import contextlib
import datetime as dt
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from sqlalchemy import func, select, text

from benchmarks import fleet
from benchmarks.bounds import Figure
from tilewatch.db import migrate
from tilewatch.db.models import Commit, Measurement, Trial
from tilewatch.db.server.embedded import Embedded
from tilewatch.db.session import session

WIDE_NIGHTS = 8


@dataclass(frozen=True)
class Filled:
    """A database with a simulated fleet in it. `size` is a figure with the number of trials and the time it took to
    write them."""

    database_url: str
    home: Path
    size: Figure


@contextlib.contextmanager
def open_filled(nights: int, kept: Path | None) -> Iterator[Filled]:
    """Starts servers with a filled database, and yields it. With a folder `kept`, the database stays there for the next
    benchmark and is used again if it exists."""
    with tempfile.TemporaryDirectory(prefix="tilewatch-bench-", dir="/var/tmp") as folder:
        home = kept or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        with Embedded(home / "home", fsync=False) as servers:
            migrate.upgrade(servers.database_url)
            yield Filled(servers.database_url, home, _fill(servers.database_url, nights))


def yesterday() -> dt.date:
    """Returns the day of the fleet's last night."""
    return dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1)


def _fill(url: str, nights: int) -> Figure:
    started = time.monotonic()
    with session(url) as opened:
        found = opened.scalar(select(func.count()).select_from(Commit))
        if not found:
            fleet.fill(opened, fleet.Fleet(nights=nights, wide_nights=WIDE_NIGHTS, last_night=yesterday()))
    if not found:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("vacuum analyze")
    with session(url) as opened:
        trials, measurements = (
            opened.scalar(select(func.count()).select_from(table)) or 0 for table in (Trial, Measurement)
        )
        size = opened.scalar(text("select pg_size_pretty(pg_database_size(current_database()))"))
    when = "found" if found else f"filled in {time.monotonic() - started:.0f} s"
    return Figure(f"{trials:,} trials and {measurements:,} measurements, {when}", str(size))
