"""Times the backup and restore of docs/operate/data-safety.md with a simulated fleet's database of 3 GB.

    python -m benchmarks.restore [--nights 520] [--report-only]

It uses a real Postgres with fsync and Postgres' own programs. It needs 8 GB of disk."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import make_url, text

from benchmarks import bounds, fleet, storage
from benchmarks.bounds import Figure
from benchmarks.filled import WIDE_NIGHTS
from tilewatch.db import migrate
from tilewatch.db.models import Base
from tilewatch.db.server import programs
from tilewatch.db.session import engine, session

RESTORED = "tilewatch_restored"

SIZE = text("select pg_database_size(current_database())")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nights", type=int, default=520)
    bounds.add_options(asked)
    options = asked.parse_args()
    sys.exit(bounds.report(measure(options.nights), report_only=options.report_only, write=options.write))


def measure(nights: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="tilewatch-restore-") as folder, storage.database() as url:
        with session(url) as opened:
            fleet.fill(opened, fleet.Fleet(nights=nights, wide_nights=WIDE_NIGHTS))
        with session(url) as opened:
            yield bounds.measure("the database", opened.execute(SIZE).scalar_one() / 1e9, cases=1)
        dump = Path(folder) / "tilewatch.dump"
        dumped_s = run("pg_dump", "--format=custom", f"--file={dump}", libpq_url(url))
        yield Figure("pg_dump", f"{dumped_s:.0f} s, {dump.stat().st_size / 1e9:.2f} GB")
        restored_url = make_url(url).set(database=RESTORED).render_as_string(hide_password=False)
        created_s = run("createdb", f"--maintenance-db={libpq_url(url)}", RESTORED)
        restored_s = run("pg_restore", "--exit-on-error", f"--dbname={libpq_url(restored_url)}", str(dump))
        yield bounds.measure("createdb and pg_restore", created_s + restored_s, cases=1)
        migrate.require_head(restored_url)
        yield bounds.measure(
            "tables with another number of rows", list_different(url, restored_url), cases=len(Base.metadata.tables)
        )
        engine(restored_url).dispose()


def run(program: str, *arguments: str) -> float:
    """Runs a program of the server's version, and returns how many seconds it took."""
    found = programs.find(lambda _: True, Path("unused")).postgres.with_name(program)
    began = time.monotonic()
    subprocess.run([found, *arguments], check=True)
    return time.monotonic() - began


def list_different(url: str, restored_url: str) -> list[str]:
    counts = []
    for each in (url, restored_url):
        with session(each) as opened:
            counts.append(
                {
                    table: opened.execute(text(f"select count(*) from {table}")).scalar_one()  # noqa: S608 - our names
                    for table in Base.metadata.tables
                }
            )
    return [table for table, count in counts[0].items() if counts[1][table] != count]


def libpq_url(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


if __name__ == "__main__":
    main()
