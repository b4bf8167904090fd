"""Shows how far each GPU model is from DeepGEMM, and lists every series."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import grid, scoreboard
from tilewatch.dashboard.frames import changes, differences, reads
from tilewatch.dashboard.frames import scoreboard as scores
from tilewatch.dashboard.panels import headline
from tilewatch.dashboard.text import RECORDINGS_COME, rate_text, ratio_to, source_text, time_text
from tilewatch.dashboard.widgets import badges, filters, first_visit, page_head, plots, repository, tables
from tilewatch.text import change_text, short_sha

SHOWN_MOVERS = 20
PERIODS = {"yesterday": 1, "a week ago": 7, "a month ago": 30, "a year ago": 365}
"""The days by which each choice goes back from today's noon, when the night is over. A commit can be chosen too."""
A_COMMIT = "a commit"
AN_HOUR = dt.timedelta(hours=1)

ABOUT = (
    "The number of a GPU model is the geometric mean of DeepGEMM's time divided by ours, over all operators that do "
    "the same: over 1.00 we are faster. Below it stand all series: one kernel on one problem and one GPU model. A "
    "change is called a regression or an improvement only after the old and the new machine code were timed side by "
    "side."
)


def page(url: str) -> None:
    page_head.show("Overview", ABOUT)
    reads.repositories(url)  # if the database is down, only the page reports it, and not the headline too
    headline.show(url)
    name = repository.pick_repository(url)
    if not name:
        st.info("Nothing was submitted yet. Submit a commit; its sweeps appear here as they run.")
        st.code(
            "make up  # starts everything and submits the first nightly\ntilewatch submit nightly\n"
            "tilewatch demo  # the whole road without a GPU: twenty commits, one of them slower",
            wrap_lines=True,
        )
        return
    now = reads.this_hour()
    if reads.snapshot(url, name, now + AN_HOUR).empty:
        st.info(
            f"Nothing of {name} is measured yet: that needs a worker on a machine with an NVIDIA GPU, or a recording "
            f"(`tilewatch import FILE`). {RECORDINGS_COME} Sweeps without a GPU show their static facts on the Series "
            "page."
        )
    else:
        _scoreboard(url, name)
        _series(url, name, now)
    first_visit.show()


def _scoreboard(url: str, name: str) -> None:
    found = reads.scores(url, name)
    if found:
        plots.show_scoreboard(scoreboard.draw_scores(found), "scoreboard")
    else:
        st.caption("No operator of this repository is timed beside DeepGEMM doing the same arithmetic.")


def _series(url: str, name: str, now: dt.datetime) -> None:
    """Shows the tables of ratios, and below the tables the series with the largest changes."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        since_what = filters.choose("Changes since", [*PERIODS, A_COMMIT], "since")
        only = filters.toggle("Only regressions", "regressions")
    since, sha, words = _since(url, name, now, since_what)
    every = reads.compared(url, name, since, sha, now + AN_HOUR)  # up to the end of this hour
    regressed = _list_regressed(url, name, since, sha)
    pairs = changes.keep_series(every, regressed) if only else every
    st.text(f"{differences.write_counts(every, words)} of {name}")
    for group, html in _draw_groups(url, name, since, sha, now, only=only).items():
        st.markdown(f"##### {group}")
        plots.show_grid(html, f"ratios-{grid.SCALES[group].key}" if group != scores.TUTORIAL else "ratios-tutorial")
    others = int(pairs["ratio"].isna().sum())
    st.caption(
        "The main baseline's time / ours: over 1.00 is faster than the baseline. "
        f"▲ ▼: faster or slower since {words}, △ ▽: not judged yet, undecided or not confirmed. "
        f"Lines: the ratio at the last {scores.RECENT_COMMITS} commits. Operators that became slower come first, then "
        "the lowest ratio." + (f" {others:,} series without a baseline: see below." if others else "")
    )
    if pairs.empty:
        st.success(f"No series was judged a regression since {words}.")
        return
    _movers(pairs, words)


def _list_regressed(url: str, name: str, since: dt.datetime, sha: str | None) -> pd.DataFrame:
    judged = reads.judged_changes(url, name, reads.EVER)
    judged = judged[judged["verdict"] == "regression"]
    if sha is None:
        return judged[judged["measured_at"] > since]
    commits = reads.commits(url, name)
    return judged[judged["position"] > commits.loc[commits["sha"] == sha, "position"].iloc[0]]


@st.cache_data(ttl=reads.HISTORY_TTL_S, max_entries=reads.CACHED_RESULTS, show_spinner=False)
def _draw_groups(
    url: str, name: str, since: dt.datetime, sha: str | None, now: dt.datetime, *, only: bool
) -> dict[str, str]:
    """Returns a dict from heading to the HTML of a table. Cached: 488 series take 78 ms of CPU (2026-11-23)."""
    pairs = reads.compared(url, name, since, sha, now + AN_HOUR)
    if only:
        pairs = changes.keep_series(pairs, _list_regressed(url, name, since, sha))
    sparks = grid.index_sparks(reads.recent_ratios(url, name, scores.RECENT_COMMITS))
    return grid.draw_groups(pairs, repository.series_links(url), sparks)


def _since(url: str, name: str, now: dt.datetime, picked: str) -> tuple[dt.datetime, str | None, str]:
    """Returns the start of the comparison: its time, its commit (or None) and a text for the page."""
    if picked in PERIODS:
        return now.replace(hour=12) - dt.timedelta(days=PERIODS[picked]), None, picked
    commits = reads.commits(url, name)
    short = filters.pick_commit(commits, "The commit", "from")
    commit = commits[commits["sha"].map(short_sha) == short].iloc[0]
    return commit["committed_at"], commit["sha"], short


def _movers(pairs: pd.DataFrame, words: str) -> None:
    """Shows an expander with the series that changed most, or all series on request."""
    title = "Biggest movers" if pairs["change"].notna().any() else "Latest measurements"
    with tables.open_expander(f"{title}, as a table", "movers") as is_open:
        if not is_open:
            return
        order = pairs["change"].abs().sort_values(ascending=False, na_position="last").index
        pairs = pairs.loc[order]
        everything = len(pairs) <= SHOWN_MOVERS or filters.toggle(f"All {len(pairs):,} series", "all")
        shown = pairs if everything else pairs.head(SHOWN_MOVERS)
        table = pd.DataFrame([_series_row(row) for row in shown.to_dict("records")])
        styles = [badges.change_colour(finding) for finding in shown["finding"]]
        picked = tables.pick_row(
            table.style.apply(lambda _: styles, subset="change") if any(styles) else table,  # styling takes 12 ms
            shown,
            "movers-rows",
            column_config={"ratio": st.column_config.TextColumn(alignment="right")},
        )
        st.caption(
            f"Change of time since {words}; ≈ where noise explains it or the code is identical. Select a row for its "
            "series."
        )
        if picked is not None:
            st.page_link("views/series.py", label="Open its run", query_params={"run": str(picked["run_id"])})


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
