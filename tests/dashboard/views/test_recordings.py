"""The Overview of the recordings that `tilewatch up` shows, judged for real: no row says what its verdicts do not."""

import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.conftest import PATIENCE_MS, WAS_HERE
from tests.dashboard.fixtures.app import APP, opened
from tests.dashboard.fixtures.drawn import NOTE_RUNS, await_all_drawn
from tests.dashboard.fixtures.servers import dashboard
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.frames.differences import CLAIMS
from tilewatch.db.models import Commit, GpuModel, Run, Sweep, Verdict
from tilewatch.db.page_reads import series
from tilewatch.db.server.embedded import Servers
from tilewatch.db.server.free_ports import find_free_port
from tilewatch.db.session import session
from tilewatch.text import short_sha
from tilewatch.worker.context import Context
from tilewatch.worker.transfer.importing import import_file

RECORDINGS = sorted((Path(__file__).parents[3] / "recordings").glob("*.jsonl.gz"))
REPOSITORY = "https://example.org/tilewatch.git"
COLOURS = {"faster": colours.TEXT["light"]["green"], "slower": colours.TEXT["light"]["red"]}
SAID_BY = {"faster": "improvement", "slower": "regression"}
PERIODS = {"yesterday": 1, "a week ago": 7, "a year ago": 365}
Verdicts = dict[tuple[str, ...], set[tuple[str, str]]]


@pytest.fixture(scope="module")
def recorded_url(
    new_database: NewDatabase, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with new_database() as url:
        for file in RECORDINGS:
            import_file(url, file, named=REPOSITORY)
        home = tmp_path_factory.mktemp("home")
        do_all_jobs(Context.of(settings_for(home, home, url, servers.broker_url)))
        yield url


def test_what_was_recorded_of_this_library_belongs_to_this_clone(recorded_url: str) -> None:
    """A clone's name is where it was cloned from, and says nothing of whose library it is."""
    with session(recorded_url) as read:
        assert series.list_repositories(read) == [REPOSITORY]


def test_no_row_is_coloured_or_counted_against_its_verdicts(recorded_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least four problems on an H200 and three on an H100 became 4 to 20 % faster within the recorded history,
    and six at 2857088."""
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", recorded_url)
    verdicts, age = list_verdicts(recorded_url), find_age(recorded_url)
    for since, days in PERIODS.items():
        if age < dt.timedelta(days=days, hours=-12):  # each ends at noon, so until then something is newer
            named = check_rows(since, verdicts)
    assert int(named["faster"]) >= 13
    assert named["slower"] == "0"


def check_rows(since: str, verdicts: Verdicts) -> dict[str, str]:
    """Holds each row of the Overview against its verdicts. Returns the numbers that its sentence gives, by finding."""
    app = AppTest.from_file(str(APP), default_timeout=120)
    app.query_params["since"], app.query_params["all"] = since, "true"
    app.query_params["movers"] = "true"
    (movers,) = (table for table in opened(app, "overview").dataframe if "finding" in table.value)
    coloured = list_colours(movers.proto)
    found = Counter[str]()
    for number, row in enumerate(movers.value.to_dict("records")):
        said = verdicts[row["kernel"], row["problem"], row["GPU"]]
        finding, _, confirmed_at = row["finding"].partition(", confirmed at ")
        finding = finding.partition(": ")[0]  # "undecided" says what decides it
        found[finding] += 1
        assert coloured.get(number) == COLOURS.get(finding)
        if finding in CLAIMS:
            assert (confirmed_at, SAID_BY[finding]) in said
            assert row["change"].startswith({"faster": "-", "slower": "+"}[finding])
        elif finding in ("not judged yet", "not confirmed"):
            # Verdicts of commits before the earlier side say nothing of this difference, and a row does not name it.
            own = {word for sha, word in said if row["commit"].startswith(sha)}
            assert own <= {"unchanged"}
            assert (finding == "not judged yet") == (not own)
        elif finding == "undecided":
            assert finding in {word for _, word in said}
    (counts,) = (str(each.value) for each in app.text if f" since {since} (against commits of " in str(each.value))
    named = dict(part.replace(" with ", " ").split(" ", 1)[::-1] for part in counts.partition(" since ")[0].split(", "))
    found.pop("", None)  # nothing to compare
    assert named == {"faster": "0", "slower": "0", **{name: str(count) for name, count in found.items()}}
    return named


@pytest.mark.browser
def test_every_bar_of_step_by_step_opens_the_sweep_behind_it(recorded_url: str, browser: Any, tmp_path: Path) -> None:
    with (
        dashboard(recorded_url, tmp_path, find_free_port(), {}) as address,
        browser.new_context(base_url=address, viewport={"width": 1440, "height": 1000}) as visitor,
    ):
        visitor.add_init_script(WAS_HERE)
        visitor.add_init_script(NOTE_RUNS)
        visitor.set_default_timeout(PATIENCE_MS)
        page = visitor.new_page()
        for bar, kernel in ((0, "gemm_tiled"), (4, "gemm_nt_fp8")):
            page.goto("/sweeps?view=Step+by+step")
            await_all_drawn(page)
            page.locator(".js-plotly-plot").nth(1).locator(".barlayer .point path").nth(bar).click(force=True)
            page.wait_for_url(f"**/series?*kernel={kernel}*")
            page.get_by_text("The winner is").wait_for()


def find_age(url: str) -> dt.timedelta:
    """How long ago the last run ended."""
    with session(url) as read:
        return dt.datetime.now(dt.UTC) - read.execute(select(func.max(Run.finished_at))).scalar_one()


def list_verdicts(url: str) -> Verdicts:
    """Every verdict by series, with its commit as pages write it."""
    found: Verdicts = defaultdict(set)
    query = (
        select(Sweep.kernel, Sweep.problem, GpuModel.name, Commit.sha, Verdict.verdict)
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Verdict, Verdict.run_id == Run.id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(GpuModel, GpuModel.slug == Sweep.gpu_model)
    )
    with session(url) as read:
        for *of_series, sha, verdict in read.execute(query):
            found[tuple(of_series)].add((short_sha(sha), verdict))
    return found


def list_colours(table: Any) -> dict[int, str]:
    """The colour of each row that has one in the column of changes."""
    rules = re.findall(r"([^{}]+)\{\s*color: (#\w+)", table.arrow_data.styler.styles)
    return {int(row): colour for cells, colour in rules for row in re.findall(r"_row(\d+)_col", cells)}
