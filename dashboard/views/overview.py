"""Answers whether anything is wrong, and shows every series in one table."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from tilewatch.dashboard.charts import grid
from tilewatch.dashboard.frames import changes, differences, reads
from tilewatch.dashboard.panels import headline, submissions
from tilewatch.dashboard.text import moment, rate_text, ratio_to, source_text, time_text
from tilewatch.dashboard.widgets import badges, filters, first_visit, page_head, plots, repository, tables
from tilewatch.text import change_text, count_text, short_sha

SHOWN_MOVERS = 20
SPARK_COMMITS = 30
"""30 take 148 ms of Postgres in a year of 488 series (p95; the bound of a query is 100 ms), and time grows with them
(2 cores, 2026-11-22)."""
PERIODS = {"yesterday": 1, "a week ago": 7, "a month ago": 30, "a year ago": 365}
"""Days before today's noon, which is after the night. "Changes since" also offers a commit."""
A_COMMIT = "a commit"
AN_HOUR = dt.timedelta(hours=1)

ABOUT = (
    "Every series that is measured: one kernel on one problem and one GPU model. A series' ratio is its main "
    "baseline's time divided by ours, so over 1.00 we are faster. A change is called a regression or an "
    "improvement only after the old and the new machine code were timed side by side."
)


def page(url: str) -> None:
    page_head.show("Overview", ABOUT)
    name = repository.pick_repository(url)
    if not name:
        st.info("Nothing was submitted yet. Submit a commit; its sweeps appear here as they run.")
        st.code("make up  # starts everything and submits the first nightly\ntilewatch submit nightly", wrap_lines=True)
        return
    now = reads.this_hour()
    top, alarms = st.container(), st.container()
    if reads.snapshot(url, name, now + AN_HOUR).empty:
        with top:
            headline.show(url, name, None)
        st.info(
            "Nothing is measured yet: that needs a worker on a machine with an NVIDIA GPU, or a recording "
            "(`tilewatch import FILE`). Sweeps without a GPU show their static facts on the Sweeps page."
        )
    else:
        _everything(url, name, now, top)
    with alarms:
        _alarms(url)
    submissions.show(url)
    first_visit.show()


def _alarms(url: str) -> None:
    """Lists the open alarms: late nightlies, GPUs in quarantine, configs that no longer compile."""
    alarms = reads.alarms(url)
    if alarms.empty:
        return
    rows = [
        {
            "what": row["kind"].replace("_", " "),
            "of": row["subject"],
            "detail": row["detail"],
            "since": moment(row["opened_at"]),
        }
        for row in alarms.to_dict("records")
    ]
    title = f":{badges.UNSURE}[{count_text(len(alarms), 'alarm')} open]"
    tables.show_in_expander(title, "alarms", lambda: pd.DataFrame(rows))


def _everything(url: str, name: str, now: dt.datetime, top: DeltaGenerator) -> None:
    """Shows the answer in words, at the top, then the table of ratios, then the largest changes.

    The table is sent first. Any other of the page's tables makes a browser load 1.7 MB of script, and the answer waits
    for queries that nobody else's view has made.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        since_what = filters.choose("Changes since", [*PERIODS, A_COMMIT], "since")
        only = filters.toggle("Only regressions", "regressions")
    since, words = _since(url, name, now, since_what)
    above = st.container()
    regressed = _list_regressed(url, name, since)
    every = reads.compared(url, name, since, now + AN_HOUR)  # up to the end of this hour
    pairs = changes.keep_series(every, regressed) if only else every
    with_ratio = pairs[pairs["ratio"].notna()]
    if not with_ratio.empty:
        plots.show_grid(_draw_ratios(url, name, since, now, only=only), "ratios")
        others = len(pairs) - len(with_ratio)
        st.caption(
            "The main baseline's time / ours: over 1.00 is faster than the baseline, which is DeepGEMM unless a cell "
            "names another. "
            f"▲ ▼: faster or slower since {words}, △ ▽: not judged yet, undecided or not confirmed. "
            f"Lines: the ratio at the last {SPARK_COMMITS} commits. Operators that became slower come first, then the "
            "lowest ratio." + (f" {others:,} series have no baseline: see below." if others else "")
        )
    with top:
        headline.show(url, name, headline.count(every, words))
    if len(regressed):
        with above:
            _judged(url, regressed, f"Regressions judged since {words}", "judged")
    if pairs.empty:
        st.success(f"No series was judged a regression since {words}.")
        return
    _movers(url, pairs, words)


def _list_regressed(url: str, name: str, since: dt.datetime) -> pd.DataFrame:
    judged = reads.judged_changes(url, name, reads.EVER)
    return judged[(judged["measured_at"] > since) & (judged["verdict"] == "regression")]


@st.cache_data(ttl=reads.HISTORY_TTL_S, max_entries=reads.CACHED_RESULTS, show_spinner=False)
def _draw_ratios(url: str, name: str, since: dt.datetime, now: dt.datetime, *, only: bool) -> str:
    """Draws the ratios once for several viewers: 78 ms of CPU for 488 series (2 cores, 2026-11-23)."""
    pairs = reads.compared(url, name, since, now + AN_HOUR)
    if only:
        pairs = changes.keep_series(pairs, _list_regressed(url, name, since))
    return grid.ratio_table(pairs[pairs["ratio"].notna()], repository.trend_links(url), _sparks(url, name))


def _sparks(url: str, name: str) -> grid.Sparks:
    rows = reads.recent_ratios(url, name, SPARK_COMMITS)
    keys = zip(rows["kernel"], rows["problem"], rows["gpu_model"], rows["origin"], strict=True)
    return dict(zip(keys, rows["ratios"], strict=True))


def _since(url: str, name: str, now: dt.datetime, picked: str) -> tuple[dt.datetime, str]:
    """Returns the time to compare with, and that time in words."""
    if picked in PERIODS:
        at = now.replace(hour=12) - dt.timedelta(days=PERIODS[picked])
        return at, picked
    commits = reads.commits(url, name)
    names = commits["sha"].map(short_sha)
    sha = filters.pick("The commit", list(names), "from")
    commit = commits[names == sha].iloc[0]
    return commit["committed_at"], sha


def _judged(url: str, judged: pd.DataFrame, title: str, key: str) -> None:
    st.subheader(title, anchor=False)
    table = pd.DataFrame(
        {
            "series": [f"{row['kernel']} {row['problem']}" for _, row in judged.iterrows()],
            "GPU": judged["gpu_name"].to_numpy(),
            "time": ["" if pd.isna(change) else change_text(change) for change in judged["change"]],
            "commit": [f"{short_sha(row['sha'])} {row['subject']}" for _, row in judged.iterrows()],
            "why": judged["reason"].to_numpy(),
            "measured": [moment(at) for at in judged["measured_at"]],
        }
    )
    _links(url, tables.pick_row(table, judged, key))


def _movers(url: str, pairs: pd.DataFrame, words: str) -> None:
    """Shows every series, the largest change first."""
    order = pairs["change"].abs().sort_values(ascending=False, na_position="last").index
    pairs = pairs.loc[order]
    st.subheader("Biggest movers" if pairs["change"].notna().any() else "Latest measurements", anchor=False)
    everything = len(pairs) <= SHOWN_MOVERS or filters.toggle(f"All {len(pairs):,} series", "all")
    shown = pairs if everything else pairs.head(SHOWN_MOVERS)
    table = pd.DataFrame([_series_row(row) for row in shown.to_dict("records")])
    styles = [badges.change_colour(finding) for finding in shown["finding"]]
    picked = tables.pick_row(
        table.style.apply(lambda _: styles, subset="change") if any(styles) else table,  # a style takes 12 ms of CPU
        shown,
        "movers",
        column_config={"ratio": st.column_config.TextColumn(alignment="right")},
    )
    st.caption(
        f"Change of speed since {words}; ≈ where noise explains it or the code is identical. Undecided: the judge had "
        "too few nights or replays. Select a row for its trend and its evidence."
    )
    _links(url, picked)


def _links(url: str, row: pd.Series | None) -> None:
    if row is None:
        return
    with st.container(horizontal=True):
        st.page_link("views/trends.py", label="Open its trend", query_params=repository.series_parameters(url, row))
        st.page_link("views/evidence.py", label="Open its evidence", query_params={"run": str(row["run_id"])})


def _series_row(row: Mapping[Any, Any]) -> dict[str, str]:
    unsure = "" if row["finding"] in differences.DIFFERENT else "≈ "
    return {
        "kernel": row["kernel"],
        "problem": row["problem"],
        "GPU": row["gpu_name"],
        "ratio": "without a baseline" if pd.isna(row["ratio"]) else ratio_to(row["ratio"], row["baseline"]),
        "change": "" if pd.isna(row["change"]) else unsure + change_text(row["change"]),
        "time": time_text(row["median_us"]),
        "rate": rate_text(row["flops"], row["bytes"], row["median_us"]),
        "finding": differences.write(row),
        "commit": f"{short_sha(row['sha'])} {row['subject']}",
        "source": source_text(row["origin"], row["machine"], row["measured_at"]),
    }


page(reads.database_url())
