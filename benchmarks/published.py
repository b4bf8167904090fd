"""Publishes all recordings as a site, and measures the site's size and how soon its pages are painted.

    python -m benchmarks.published [--site FOLDER] [--report-only]

`--site` measures an existing site instead. Pages are opened from their files in headless Chromium, each in a new
context. The first paint is the browser's own time, the median of several openings."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser

from benchmarks import bounds, browsing
from benchmarks.bounds import Figure

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
        figures = list(measure(options.site or publish(Path(scratch) / "site")))
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


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
