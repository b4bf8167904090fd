"""What the dashboard costs with a simulated fleet in a real Postgres: each question it asks, and its pages in Chromium.

    python -m benchmarks.dashboard [--nights 365] [--repeats 20] [--home FOLDER]

Prints the median and the 95th percentile of each query, and for each page the time from opening its address to its
first plot in a new browser session with the server warm, with the bytes it sent. 365 nights are the whole year: 9.5
million trials, several GB and minutes. Figures go to docs/measurements.md by hand, with machine and date.
"""

import argparse
import contextlib
import datetime as dt
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psycopg
from playwright.sync_api import Browser, sync_playwright
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from benchmarks import fleet
from db import migrate, queries
from db.embedded import Embedded
from db.models import Commit, Measurement, Sweep, Trial
from db.session import session

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PAGES = {
    "Overview": "/",
    "Overview, a year": "/?since=a+year+ago",
    "Trends": "/trends",
    "Sweeps": "/sweeps",
    "Compare": "/compare",
    "Architectures": "/architectures",
    "Evidence": "/evidence?run=1",
}
PAGE_REPEATS = 5
START_LIMIT_S = 60
WIDE_NIGHTS = 8
NOON = dt.time(12, tzinfo=dt.UTC)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nights", type=int, default=365)
    asked.add_argument("--repeats", type=int, default=20)
    asked.add_argument("--home", type=Path, help="keep the filled servers in this folder, and use what is there")
    asked.add_argument("--serve", action="store_true", help="fill, print where the database is, and wait for Ctrl-C")
    options = asked.parse_args()
    with _home(options.home) as home, Embedded(home / "home", fsync=False) as servers:
        migrate.upgrade(servers.database_url)
        _fill(servers.database_url, options.nights)
        if options.serve:
            print(servers.database_url, flush=True)
            signal.pause()
        _queries(servers.database_url, options.repeats)
        _pages(servers.database_url, home)


@contextlib.contextmanager
def _home(kept: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tilewatch-bench-", dir="/var/tmp") as folder:
        home = kept or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        yield home


def _fill(url: str, nights: int) -> None:
    started = time.monotonic()
    with session(url) as opened:
        found = opened.scalar(select(func.count()).select_from(Commit))
        if not found:
            # Half of the time would go to checking that the rows made here point at each other.
            opened.execute(text("set local session_replication_role = replica"))
            fleet.fill(opened, fleet.Fleet(nights=nights, wide_nights=WIDE_NIGHTS, last_night=_yesterday()))
    if not found:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("vacuum analyze")
    with session(url) as opened:
        trials, measurements = (
            opened.scalar(select(func.count()).select_from(table)) or 0 for table in (Trial, Measurement)
        )
        size = opened.scalar(text("select pg_size_pretty(pg_database_size(current_database()))"))
    print(
        f"{trials:,} trials and {measurements:,} measurements, {size}, "
        + ("found" if found else f"filled in {time.monotonic() - started:.0f} s"),
        flush=True,
    )


def _yesterday() -> dt.date:
    return dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1)


def _queries(url: str, repeats: int) -> None:
    print(f"\n{'query':34}{'median ms':>12}{'p95 ms':>10}{'rows':>8}")
    for name, question in _questions(url).items():
        took_ms, rows = [], 0
        for _ in range(repeats):
            with session(url) as opened:
                started = time.perf_counter()
                answer = question(opened)
                took_ms.append(1000 * (time.perf_counter() - started))
            rows = len(answer) if isinstance(answer, list) else 1
        print(f"{name:34}{median(took_ms):12.1f}{quantiles(took_ms, n=20)[-1]:10.1f}{rows:8}")


def _questions(url: str) -> dict[str, Callable[[Session], Any]]:
    noon = dt.datetime.combine(_yesterday(), NOON)
    year = noon - dt.timedelta(days=365)
    with session(url) as opened:
        shas = [row.sha for row in queries.commits(opened)]
        newest = queries.newest_runs(opened)[0].run_id
        series = queries.series(opened)[0]
        sweep_id = opened.scalar(select(func.max(Sweep.id))) or 0
        about = (series.kernel, series.problem, series.gpu_model)
        statics = queries.statics(opened, *about)
    return {
        "newest nightly per GPU model": queries.last_nights,
        "newest submissions": lambda opened: queries.submissions(opened, 10),
        "all series now": lambda opened: queries.standing(opened, noon),
        "all series a year ago": lambda opened: queries.standing(opened, year),
        "changes judged in a year": lambda opened: queries.changes_judged(opened, year),
        "commits": queries.commits,
        "all series at a commit": lambda opened: queries.standing_at(opened, shas[0]),
        "series": queries.series,
        "points of a series": lambda opened: queries.points(opened, *about),
        "sweeps of a search space": lambda opened: queries.sweeps(opened, *about),
        "winners of a search space": lambda opened: queries.winners(opened, *about),
        "trials of a sweep": lambda opened: queries.trials(opened, sweep_id),
        "static facts over commits": lambda opened: queries.statics(opened, *about),
        "cubins that moved": lambda opened: queries.moved(opened, statics[0].sweep_id, statics[-1].sweep_id),
        "search spaces": queries.spaces,
        "one run": lambda opened: queries.run(opened, newest),
        "the run before": lambda opened: queries.run_before(opened, newest),
        "samples of a run": lambda opened: queries.sampled(opened, newest),
        "newest runs": queries.newest_runs,
    }


def _pages(url: str, home: Path) -> None:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        print("\nno Chromium on PATH: the pages were not measured")
        return
    with _served(url, home) as (address, server), sync_playwright() as playwright:
        quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=path, args=quiet)
        print(f"\n{'page, to its first plot':34}{'first s':>12}{'median s':>10}{'sent kB':>10}")
        for name, view in PAGES.items():
            seen = [_opened(browser, address + view) for _ in range(PAGE_REPEATS)]
            took = [took_s for took_s, _ in seen]
            print(f"{name:34}{took[0]:12.2f}{median(took):10.2f}{seen[-1][1] / 1000:10.0f}")
        browser.close()
        print(f"\nthe dashboard's resident memory afterwards: {_resident_mb(server.pid):.0f} MB")


def _opened(browser: Browser, view: str) -> tuple[float, int]:
    """Seconds until a plot is drawn in a session of its own, and the bytes that came."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    sent = [0]

    def count(payload: str | bytes) -> None:
        sent[0] += len(payload)

    page.on("websocket", lambda socket_: socket_.on("framereceived", count))
    page.on("response", lambda response: count(b"0" * int(response.headers.get("content-length", "0"))))
    started = time.perf_counter()
    page.goto(view)
    page.locator(".js-plotly-plot .main-svg").first.wait_for(state="attached", timeout=60_000)
    took_s = time.perf_counter() - started
    context.close()
    return took_s, sent[0]


@contextlib.contextmanager
def _served(url: str, home: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "dashboard" / "app.py")]
    command += ["--server.address", "127.0.0.1", "--server.port", str(port), "--server.headless", "true"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWATCH_DATABASE_URL": url}
    server = subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not _healthy(port):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the dashboard was not up after {START_LIMIT_S} s")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", server
    finally:
        server.terminate()
        server.wait()


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2):
            return True
    except (urllib.error.URLError, TimeoutError):
        return False


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
