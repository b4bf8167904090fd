"""Imports all recordings as `tilewatch up` does, publishes them as a site, and measures the site's size and how soon
its pages are painted.

    python -m benchmarks.published [--site FOLDER] [--report-only]

`--site` measures an existing site instead. Pages are opened from their files in headless Chromium, each in a new
context. The first paint is the browser's own time, the median of several openings."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser

from benchmarks import bounds, browsing
from benchmarks.bounds import Figure
from tilewatch.db import migrate
from tilewatch.db.server.embedded import Embedded

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = ROOT / "recordings"
OPENINGS = 5
LARGEST = 3
PAINTED = """new Promise(done => {
    const look = () => {
        const [first] = performance.getEntriesByName('first-contentful-paint');
        first ? done(first.startTime) : requestAnimationFrame(look);
    };
    look();
})"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--site", type=Path, metavar="FOLDER", help="a site of all recordings")
    bounds.add_options(asked)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilewatch-site-", dir="/var/tmp") as scratch:
        imported = [] if options.site else [time_import(Path(scratch) / "home")]
        figures = [*imported, *measure(options.site or publish(Path(scratch) / "site"))]
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def time_import(home: Path) -> Figure:
    """Times the process that imports all recordings for `tilewatch up`, into a new database, with nothing beside it."""
    home.mkdir()
    home.parent.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
    with Embedded(home) as servers:
        migrate.upgrade(servers.database_url)
        own = {"HOME": str(home), "DATABASE_URL": servers.database_url, "BROKER_URL": servers.broker_url}
        environment = os.environ | {f"TILEWATCH_{name}": value for name, value in own.items()}
        line = [sys.executable, "-m", "tilewatch.worker.local.shipped_recordings", str(RECORDINGS), ""]
        started = time.monotonic()
        done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        took_s = time.monotonic() - started
    return bounds.measure("all recordings: import into a new database", took_s, cases=len(done.stdout.splitlines()))


def publish(folder: Path) -> Path:
    """Publishes all recordings that this checkout brings, by the command that people type."""
    files = [*sorted(RECORDINGS.glob("*.jsonl.gz")), *sorted(RECORDINGS.glob("*/*.jsonl.gz"))]
    files += sorted(RECORDINGS.glob("toolchains/*.json"))
    line = [sys.executable, "-m", "tilewatch.worker.cli.main", "publish", str(folder), *map(str, files)]
    subprocess.run(line, cwd=ROOT, check=True)
    return folder


def measure(site: Path) -> Iterator[Figure]:
    series = sorted(site.glob("series-*.html"), key=lambda file: file.stat().st_size)
    size_mb = sum(file.stat().st_size for file in site.iterdir()) / 1e6
    yield bounds.measure("site of all recordings: size", size_mb, cases=len(series))
    path = browsing.find_browser()
    if path is None:
        yield bounds.not_measured("site of all recordings: slowest first paint", "no browser on PATH")
        return
    with browsing.chromium(path) as browser:
        pages = [site / "index.html", *series[-LARGEST:], *sorted(site.glob("toolchains-*.html"))]
        medians = {file.name: median(_open(browser, file) for _ in range(OPENINGS)) for file in pages}
    for name, painted_s in medians.items():
        yield Figure(f"{name}: first paint", f"{painted_s:.2f} s")
    yield bounds.measure(
        "site of all recordings: slowest first paint", max(medians.values()), cases=OPENINGS * len(pages)
    )


def _open(browser: Browser, file: Path) -> float:
    """Returns the seconds until the first paint of a page that the browser has not cached."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.goto(file.as_uri())
    painted_ms = float(page.evaluate(PAINTED))
    context.close()
    return painted_ms / 1000


if __name__ == "__main__":
    main()
