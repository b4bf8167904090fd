"""Takes the pictures of the dashboard in docs/pictures again, each from a database that is made for it.

    python -m tools.screenshots [NAME...]     # writes docs/pictures/NAME.png; all of them without a name

Those of the README show the recordings; those whose name begins with "fleet-" show the simulated fleet of
benchmarks/fleet.py; the others show the made numbers that the tests of the pages use. The servers and the dashboard are
started in a temporary folder and end with this program. It ends with 1, and leaves the picture as it was, when a page
shows an error, or does not show what its picture is for.
"""

import argparse
import contextlib
import datetime as dt
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from PIL import Image
from playwright.sync_api import Browser, Page
from sqlalchemy import func, select

from benchmarks import browsing, fleet, published
from benchmarks.bounds import ROOT
from tests.dashboard.fixtures import small_database
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db import migrate
from tilewatch.db.models import Commit, Run, Sweep
from tilewatch.db.server.embedded import Embedded
from tilewatch.db.server.free_ports import find_free_port
from tilewatch.db.session import engine, session
from tilewatch.worker.context import Context
from tilewatch.worker.local import port, programs
from tilewatch.worker.local.children import Children
from tilewatch.worker.local.recorded_database import import_recorded
from tilewatch.worker.local.shipped_recordings import list_files
from tilewatch.worker.settings import Settings

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
OWN_REPOSITORY = "https://example.org/tilewatch.git"
"""URL shown as the repository of our own library's recordings. Otherwise pictures would show the URL of this clone."""

NIGHTS = 100  # the winners of gemm_fp8 change at commit 60; the whole year would take 2.6 GB
WIDE_NIGHTS = 8
FLEET_READY_AT_H = 4  # its nights are measured at 3:00 UTC; a night that is not there is shown as late or missing
START_LIMIT_S = 120
DRAW_LIMIT_S = 120
LOOK_EVERY_S = 1.5
COLOURS = 256
"""Number of colours in a picture's palette, which makes the file a third as large. With colours chosen by coverage, no
colour is off by more than 10 of 255 (the overview of the fleet, 2026-11). Chosen by frequency, the few blue letters
became green."""

DRAWN = """() => {
    const app = document.querySelector('[data-testid="stApp"]');
    return app && app.dataset.testScriptState === 'notRunning' && !document.body.dataset.moving
        && !document.querySelector('[data-testid="stSkeleton"], [data-testid="stSpinner"], [data-stale="true"]')
        && [...document.querySelectorAll('.js-plotly-plot')].every(plot => plot.querySelector('.main-svg'));
}"""
"""Script that returns true once Streamlit has run the page and each of its plots is drawn."""

ERRORS = '[data-testid="stException"], [data-testid="stAlertContentError"]'


class WrongPage(Exception):
    """Raised if a page does not show what its picture needs. The message is a sentence."""


@dataclass(frozen=True)
class Picture:
    """A picture to take of the page at an address. `text` must appear on the page. The window is in CSS pixels, and
    each is stored as `scale` pixels.

    `run` says which run's number replaces {run} in the address: by kernel, problem and the beginning of its commit,
    because the numbers of runs change when a recording is added."""

    name: str
    address: str
    text: str
    width: int = 1440
    height: int = 1000
    scale: float = 0.75
    dark: bool = False
    run: tuple[str, str, str] | None = None


RECORDED = (
    Picture("overview", "/", "Against DeepGEMM", scale=1),
    Picture(
        "trends",
        "/series?kernel=gemm_fp8_scaled&problem=4096x4096x7168&gpu=h200",
        "Points are medians",
        height=930,
        scale=1,
    ),
    Picture(
        "history",
        "/series?run={run}&view=This+run",
        "replays of old and new code differ",
        height=830,
        run=("attention_prefill_causal", "1x16x16x16384x128", "926740ce75"),
    ),
    Picture("toolchains", "/toolchains", "is not safe to take", height=1500),
    Picture(
        "why",
        "/series?run={run}&view=This+run",
        "Hardware counters",
        height=3100,
        run=("grouped_bf16", "8x4096x4096x2048", "96bf3ebcea"),
    ),
    Picture(
        "why-tilegym",
        "/series?run={run}&view=This+run",
        "lost TMA",
        height=700,
        run=("softmax_tma", "4096x4096:bf16", "3fbae3b654"),
    ),
)
PUBLISHED = Picture("published", "index.html", "How far from DeepGEMM", height=1150)
"""Picture of the first page of the site that `tilewatch publish` makes of the recordings, opened from its file."""
SIMULATED = (
    Picture("fleet-overview", "/?since=a+month+ago", "Biggest movers, as a table", height=1850),
    Picture(
        "fleet-trends",
        "/series?kernel=attention&problem=4096x4096x4096&gpu=b200",
        "Lines are medians",
        height=900,
    ),
    Picture(
        "fleet-sweeps",
        "/series?kernel=gemm_fp8_hinted&problem=320x32576x7168&gpu=h200",
        "500 configs of the space",
        height=2000,
    ),
    Picture(
        "fleet-moved",
        "/series?kernel=gemm_fp8&problem=320x32576x7168&gpu=h200&view=What+moved&before=b9d53f731b",
        "The median config",
        height=1600,
    ),
    Picture("fleet-compare", "/compare?a=f24c737340", "Everywhere, or on one architecture?", height=1300),
    Picture("fleet-architectures", "/architectures", "commits behind the chart", height=900),
)
MADE = (
    Picture("inbox", "/inbox", "gemm_fp8", height=900),
    Picture("regressions", "/regressions?regression=1", "1 series changed", height=1000),
    Picture("evidence", "/series?run=5&view=This+run", "Paired samples", height=1500),
    Picture("check", "/checks?check=1", "Evidence", height=1150),
    Picture("jobs", "/jobs", "Submissions", height=1350),
    Picture("jobs-800", "/jobs", "Submissions", width=800, height=1350, scale=1, dark=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sources = ((import_recordings, RECORDED), (fill_fleet, SIMULATED), (fill_made, MADE))
    names = [PUBLISHED.name, *(picture.name for _, pictures in sources for picture in pictures)]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    wanted = parser.parse_args().names or names
    if unknown := set(wanted) - set(names):
        parser.error(f"no picture is named {', '.join(sorted(unknown))}; the names are {', '.join(names)}")
    with open_browser() as browser:
        if PUBLISHED.name in wanted:
            take_published(browser)
        for fill, pictures in sources:
            if chosen := [picture for picture in pictures if picture.name in wanted]:
                with serve(fill) as (address, url):
                    for picture in chosen:
                        take(browser, address, place(url, picture))


def import_recordings(url: str) -> None:
    for file, name in list_files(ROOT / "recordings", OWN_REPOSITORY):
        print(import_recorded(url, file, name).sentence, flush=True)
    with tempfile.TemporaryDirectory(prefix="tilewatch-pictures-", dir="/var/tmp") as folder:
        judged = do_all_jobs(Context.of(settings_for(Path(folder), ROOT, url, "redis://127.0.0.1:1")))
    print(f"judged {judged} nights", flush=True)


def fill_fleet(url: str) -> None:
    newest = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=FLEET_READY_AT_H)).date()
    with session(url) as opened:
        fleet.fill(opened, fleet.Fleet(nights=NIGHTS, wide_nights=WIDE_NIGHTS, last_night=newest))
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("vacuum analyze")


def fill_made(url: str) -> None:
    with session(url) as opened:
        small_database.fill(opened)


@contextlib.contextmanager
def serve(fill: Callable[[str], None]) -> Iterator[tuple[str, str]]:
    """Starts servers with a filled database and a dashboard that shows it, as `tilewatch up` does. Yields the
    dashboard's address and the database's URL."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tilewatch-pictures-", dir="/var/tmp")))
        home.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
        servers = stack.enter_context(Embedded(home / "home", fsync=False))
        migrate.upgrade(servers.database_url)
        fill(servers.database_url)
        stack.callback(engine(servers.database_url).dispose)
        settings = Settings(home=home / "home", port=find_free_port())
        children = Children(home, home)  # not in a folder with sign-in secrets of a developer
        stack.callback(children.stop)
        environment = programs.child_environment(settings, servers) | {"TILEWATCH_ANONYMOUS": "act"}
        children.start(programs.dashboard(settings, environment))
        deadline = time.monotonic() + START_LIMIT_S
        while not port.healthy(settings.port):
            if time.monotonic() > deadline:
                raise WrongPage(f"the dashboard did not answer in {START_LIMIT_S} s: {log_text(home)}")
            time.sleep(0.2)
        yield f"http://localhost:{settings.port}", servers.database_url
        if "Traceback" in log_text(home):
            raise WrongPage(f"the dashboard failed: {log_text(home)}")


def place(url: str, picture: Picture) -> Picture:
    """Returns the picture with the run's number written into its address."""
    if picture.run is None:
        return picture
    kernel, problem, commit = picture.run
    query = (
        select(func.max(Run.id))
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .where(Sweep.kernel == kernel, Sweep.problem == problem, Commit.sha.startswith(commit))
    )
    with session(url) as opened:
        number = opened.scalar(query)
    if number is None:
        raise WrongPage(f"{picture.name}: there is no run of {kernel} {problem} at {commit}")
    return replace(picture, address=picture.address.format(run=number))


def log_text(home: Path) -> str:
    return (home / "dashboard.log").read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    path = browsing.find_browser()
    if path is None:
        raise WrongPage(f"no browser on PATH: looked for {', '.join(browsing.BROWSERS)}")
    with browsing.chromium(path) as browser:
        yield browser


def take(browser: Browser, address: str, picture: Picture) -> None:
    context = browser.new_context(
        base_url=address,
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.dark else "light",
    )
    context.set_default_timeout(1000 * DRAW_LIMIT_S)
    context.add_init_script("localStorage.setItem('tilewatch-first-visit', 'yes')")
    page = context.new_page()
    page.goto(picture.address)
    drawn = wait_until_drawn(page, picture)
    context.close()
    store(picture, drawn)


def take_published(browser: Browser) -> None:
    context = browser.new_context(viewport={"width": PUBLISHED.width, "height": PUBLISHED.height}, color_scheme="light")
    with tempfile.TemporaryDirectory(prefix="tilewatch-pictures-", dir="/var/tmp") as folder:
        page = context.new_page()
        page.goto((published.publish(Path(folder)) / PUBLISHED.address).as_uri())
        if not page.get_by_text(PUBLISHED.text).count():
            raise WrongPage(f"{PUBLISHED.name}: {PUBLISHED.address} does not show {PUBLISHED.text!r}")
        store(PUBLISHED, page.screenshot())
    context.close()


def store(picture: Picture, drawn: bytes) -> None:
    file = PICTURES / f"{picture.name}.png"
    whole = Image.open(io.BytesIO(drawn)).convert("RGB")
    size = (round(whole.width * picture.scale), round(whole.height * picture.scale))
    # The browser would set letters unevenly at a scale of 0.75 (Chromium 156, 2026-11-28).
    small = whole if size == whole.size else whole.resize(size, Image.Resampling.LANCZOS)
    image = small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    image.save(file, optimize=True)
    print(f"{os.path.relpath(file)}: {image.width}x{image.height}, {file.stat().st_size / 1000:.0f} kB", flush=True)


def wait_until_drawn(page: Page, picture: Picture) -> bytes:
    """Returns the page as a PNG, once two screenshots in a row were equal."""
    before, trouble, deadline = b"", "is not drawn", time.monotonic() + DRAW_LIMIT_S
    while time.monotonic() < deadline:
        page.wait_for_function(DRAWN)
        now = page.screenshot(animations="disabled", caret="hide")
        check(page, picture)
        shows = page.get_by_text(picture.text).count() > 0
        if shows and now == before:
            return now
        before, trouble = now, "changes still" if shows else f"does not show {picture.text!r}"
        time.sleep(LOOK_EVERY_S)
    raise WrongPage(f"{picture.name}: after {DRAW_LIMIT_S} s {picture.address} {trouble}")


def check(page: Page, picture: Picture) -> None:
    errors = [box.inner_text() for box in page.locator(ERRORS).all()]
    if errors or "Traceback" in page.inner_text("body"):
        raise WrongPage(f"{picture.name}: {picture.address} shows an error: {' '.join(errors) or 'a stack trace'}")


if __name__ == "__main__":
    try:
        main()
    except WrongPage as error:
        sys.exit(f"screenshots: {error}")
