"""Measures the dashboard with a simulated fleet in a real Postgres: its queries, its pages, and many people at once.

    python -m benchmarks.dashboard [--nights 365] [--home FOLDER] [--only PART...] [--report-only]

365 nights are a whole year: 9.5 million trials, 2.9 GB, two minutes to write. With --home they are kept for the next
run. Queries are timed in Postgres' own client, and pages in headless Chromium, from the click to the plot. Twenty
people are sessions that speak the browser's protocol. Bounds hold for medians; for queries and many people they hold
for the 95th percentile."""

import argparse
import contextlib
import datetime as dt
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import parse_qsl

import streamlit as st
from playwright.sync_api import Browser
from sqlalchemy import event, func, select
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from benchmarks import bounds, browsing, fleet, visitors
from benchmarks.bounds import Figure
from benchmarks.filled import open_filled, yesterday
from tilewatch import processes
from tilewatch.db.models import Run, Sweep
from tilewatch.db.page_reads import (
    actions,
    evidence,
    gpu_health,
    queue,
    regressions,
    snapshots,
    static_facts,
    submissions,
    sweeps,
)
from tilewatch.db.page_reads import series as series_queries
from tilewatch.db.server.free_ports import find_free_port
from tilewatch.db.session import engine, session
from tilewatch.processes import tune_memory

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "Overview": "/",
    "Overview, a year": "/?since=a+year+ago",
    "Series": "/series",
    "Compare": "/compare",
    "Architectures": "/architectures",
    "Regressions": "/regressions?regression=1",
    "Series, a run": "/series?run=1&view=This+run",
}
SERVER = ROOT / "dashboard" / "server.py"
BARE = "import plotly.graph_objects as go\nimport streamlit as st\nst.plotly_chart(go.Figure(go.Heatmap(z=[[1, 2]])))\n"
"""Source of the smallest Streamlit page with a Plotly plot. What a page of ours takes longer than this one is our own
time."""
PAGE_REPEATS, AGAIN_REPEATS = 5, 15
COLD_STARTS = 3
PEOPLE, VIEWS_EACH = 20, 10
MANY_VIEWS = 1_000
PARTS = ("queries", "opened", "again", "inside", "people", "memory")
START_LIMIT_S = 60
NOON = dt.time(12, tzinfo=dt.UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--home", type=Path, help="keep the filled servers in this folder, and use what is there")
    parser.add_argument("--serve", action="store_true", help="fill, print where the database is, and wait for Ctrl-C")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    bounds.add_options(parser)
    options = parser.parse_args()
    sys.exit(bounds.report(_measure(options), report_only=options.report_only, write=options.write))


def _measure(options: argparse.Namespace) -> Iterator[Figure]:
    with open_filled(options.nights, options.home) as filled:
        url, home = filled.database_url, filled.home
        yield filled.size
        if options.serve:
            print(url, flush=True)
            signal.pause()
        if "queries" in options.only:
            yield from _queries(url, options.repeats)
        if "opened" in options.only:
            yield from _in_browser(_opened, url, home)
        if "again" in options.only:
            yield from _in_browser(_again, url, home)
        if "inside" in options.only:
            yield from _in_browser(_inside, url, home)
        if "people" in options.only:
            yield from _people(url, home)
        if "memory" in options.only:
            yield from _memory(url, home)


def _queries(url: str, repeats: int) -> Iterator[Figure]:
    tune_memory()  # as the server does
    for name, question in _questions(url).items():
        took_ms, rows = [], 0
        for _ in range(repeats):
            with session(url) as opened:
                started = time.perf_counter()
                answer = question(opened)
                took_ms.append(1000 * (time.perf_counter() - started))
            rows = len(answer) if isinstance(answer, list) else 1
        what = f"query: {name} ({rows:,} rows, median {median(took_ms):.1f} ms): p95"
        yield bounds.measure(what, quantiles(took_ms, n=20)[-1], cases=repeats)


def _questions(url: str) -> dict[str, Callable[[Session], Any]]:
    noon = dt.datetime.combine(yesterday(), NOON)
    year = noon - dt.timedelta(days=365)
    with session(url) as opened:
        shas = [row.sha for row in snapshots.list_commits(opened, fleet.REPOSITORY)]
        newest = opened.scalar(select(func.max(Run.id))) or 0
        series = series_queries.list_series(opened)[0]
        sweep_id = opened.scalar(select(func.max(Sweep.id))) or 0
        about = (series.repository, series.kernel, series.problem, series.gpu_model)
        statics = static_facts.list_static_facts(opened, *about)
    return {
        "newest nightly per GPU model": submissions.list_last_nights,
        "newest submissions": lambda opened: submissions.list_submissions(opened, 10),
        "all series now": lambda opened: snapshots.list_points_as_of(opened, fleet.REPOSITORY, noon),
        "all series a year ago": lambda opened: snapshots.list_points_as_of(opened, fleet.REPOSITORY, year),
        "changes judged in a year": lambda opened: snapshots.list_judged_changes(opened, fleet.REPOSITORY, year),
        "ratios at 30 commits": lambda opened: snapshots.list_recent_ratios(opened, fleet.REPOSITORY, 30),
        "repositories": series_queries.list_repositories,
        "commits": lambda opened: snapshots.list_commits(opened, fleet.REPOSITORY),
        "commits of all repositories": lambda opened: snapshots.list_commits(opened, None),
        "all series at a commit": lambda opened: snapshots.list_points_at_commit(opened, fleet.REPOSITORY, shas[0]),
        "series": series_queries.list_series,
        "points of a series": lambda opened: series_queries.list_points(opened, *about),
        "sweeps of a search space": lambda opened: sweeps.list_sweeps(opened, *about),
        "winners of a search space": lambda opened: sweeps.list_winners(opened, *about),
        "trials of a sweep": lambda opened: sweeps.list_trials(opened, sweep_id),
        "static facts over commits": lambda opened: static_facts.list_static_facts(opened, *about),
        "cubins that moved": lambda opened: static_facts.list_cubin_changes(
            opened, statics[0].sweep_id, statics[-1].sweep_id
        ),
        "search spaces": static_facts.list_spaces,
        "one run": lambda opened: evidence.find_run(opened, newest),
        "the run before": lambda opened: evidence.find_run_before(opened, newest),
        "samples of a run": lambda opened: evidence.list_samples(opened, newest),
        "regressions": regressions.list_regressions,
        "series of a regression": lambda opened: regressions.list_series(opened, 1),
        "levels of a series": lambda opened: regressions.list_levels(opened, *about),
        "canaries": gpu_health.list_canaries,
        "jobs and actions": lambda opened: [*queue.count_jobs(opened), *actions.list_actions(opened)],
    }


def _in_browser(part: Callable[[Browser, str, Path], Iterator[Figure]], url: str, home: Path) -> Iterator[Figure]:
    path = browsing.find_browser()
    if path is None:
        yield bounds.not_measured("pages in a browser", "no Chromium on PATH")
        return
    with browsing.chromium(path) as browser:
        yield from part(browser, url, home)


def _opened(browser: Browser, url: str, home: Path) -> Iterator[Figure]:
    """Times opening pages in a browser with an empty cache."""
    cold = []
    for _ in range(COLD_STARTS):
        with _serve(url, home) as (address, _):
            cold.append(browsing.opened(browser, address)[0])
    yield _timed("opened: Overview, server just started", cold)
    yield _timed("opened: a bare Streamlit page with one plot", _bare(browser, url, home))
    with _serve(url, home) as (address, _):
        for name, view in PAGES.items():
            browsing.opened(browser, address + view)
            seen = [browsing.opened(browser, address + view) for _ in range(PAGE_REPEATS)]
            took = [took_s for took_s, _ in seen]
            queries = _count_queries(url, view)
            yield _timed(f"opened: {name} ({queries} queries, {seen[-1][1] / 1e6:.1f} MB)", took)


def _again(browser: Browser, url: str, home: Path) -> Iterator[Figure]:
    """Times the front page and the series page for a returning person, in turns with a bare page of Streamlit that has
    one plot."""
    script = home / "bare.py"
    script.write_text(BARE)
    with _serve(url, home) as (address, _), _serve(url, home, script) as (bare, _):
        views = {"a bare page with one plot": bare, "Overview": address, "Series": f"{address}/series"}
        took = browsing.open_again(browser, views, AGAIN_REPEATS)
    bare_s = median(took.pop("a bare page with one plot"))
    yield Figure("opened again: a bare page with one plot", f"{bare_s:.2f} s")
    for name, seconds in took.items():
        yield _timed(f"opened again: {name}", seconds)
        yield bounds.measure(f"opened again: {name}, of a bare page", median(seconds) / bare_s, cases=len(seconds))


def _inside(browser: Browser, url: str, home: Path) -> Iterator[Figure]:
    with _serve(url, home) as (address, _):
        for name, took in browsing.inside(browser, address, PAGE_REPEATS):
            yield _timed(name, took)


def _timed(what: str, took_s: list[float]) -> Figure:
    """Returns times as a figure. Its bound, if it has one, is for the median."""
    text = f"{median(took_s):.2f} s (worst {max(took_s):.2f})"
    if bounds.find_bound(what) is None:
        return Figure(what, text)
    return bounds.measure(what, median(took_s), cases=len(took_s), text=text)


def _bare(browser: Browser, url: str, home: Path) -> list[float]:
    script = home / "bare.py"
    script.write_text(BARE)
    with _serve(url, home, script) as (address, _):
        browsing.opened(browser, address)
        return [browsing.opened(browser, address)[0] for _ in range(PAGE_REPEATS)]


def _people(url: str, home: Path) -> Iterator[Figure]:
    """Yields the figures of twenty people at once, on a server that was used before."""
    views = [*PAGES.values(), *_series_views(url)]
    with _serve(url, home) as (address, _):
        visitors.browse(address, views, people=4, views_each=25, think=False)
        seen = visitors.browse(address, views, people=PEOPLE, views_each=VIEWS_EACH, think=True)
    what = f"{PEOPLE} people at once, {len(seen.took_s)} views"
    yield Figure(f"{what}: median; worst", f"{median(seen.took_s):.2f}; {max(seen.took_s):.2f} s")
    yield bounds.measure(f"{what}: p95", quantiles(seen.took_s, n=20)[-1], cases=len(seen.took_s))
    yield Figure(f"{what}: bytes of a view, median", f"{median(seen.sent_bytes) / 1000:.0f} kB")
    yield bounds.measure(f"{what}: errors", len(seen.errors), cases=len(seen.took_s))
    for error in seen.errors[:5]:
        print(f"  {error}")


def _memory(url: str, home: Path) -> Iterator[Figure]:
    """Yields the figure of how much the memory of the server process grows in a thousand more views."""
    views = [*PAGES.values(), *_series_views(url)]
    with _serve(url, home) as (address, server):
        visitors.browse(address, views, people=4, views_each=25, think=False)
        before_mb = _resident_mb(server.pid)
        for _ in range(MANY_VIEWS // 100):
            visitors.browse(address, views, people=4, views_each=25, think=False)
        after_mb = _resident_mb(server.pid)
    yield Figure("memory of the dashboard's process after 100 views", f"{before_mb:.0f} MB")
    yield bounds.measure(f"more after {MANY_VIEWS:,} more views", after_mb - before_mb, cases=MANY_VIEWS)


def _series_views(url: str) -> list[str]:
    """Returns the addresses of the trend and sweep views of many series."""
    with session(url) as opened:
        series = series_queries.list_series(opened)[:: len(series_queries.list_series(opened)) // 40]
    about = [f"kernel={row.kernel}&problem={row.problem}&gpu={row.gpu_model}" for row in series]
    return [f"/series?{one}&view={view}" for one in about for view in ("This+sweep", "This+run")]


def _count_queries(url: str, view: str) -> int:
    """Returns the number of queries that one view makes when nothing is cached. The view runs in this process."""
    page, _, query = view.lstrip("/").partition("?")
    app = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=120)
    os.environ["TILEWATCH_DATABASE_URL"] = url
    app.run()
    st.cache_data.clear()
    count = [0]

    def count_query(*_: object) -> None:
        count[0] += 1

    event.listen(engine(url), "before_cursor_execute", count_query)
    for name, value in parse_qsl(query):
        app.query_params[name] = value
    if page:
        app.switch_page(f"views/{page}.py")
    app.run()
    event.remove(engine(url), "before_cursor_execute", count_query)
    return count[0]


@contextlib.contextmanager
def _serve(url: str, home: Path, script: Path = SERVER) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = find_free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(script)]
    command += ["--server.address", "127.0.0.1", "--server.port", str(port), "--server.headless", "true"]
    environment = {**os.environ, "PYTHONPATH": processes.python_path(ROOT), "TILEWATCH_DATABASE_URL": url}
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
