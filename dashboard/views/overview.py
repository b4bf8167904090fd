"""The first page: is anything wrong since yesterday? Nights, changes that were judged, and every series at a glance."""

import datetime as dt

import pandas as pd
import streamlit as st

from tilewatch.dashboard.charts import grid
from tilewatch.dashboard.frames import changes, reads
from tilewatch.dashboard.frames.metrics import US_TFLOP
from tilewatch.dashboard.panels import submissions
from tilewatch.dashboard.text import moment, ratio_to, source_text, time_text
from tilewatch.dashboard.widgets import badges as states
from tilewatch.dashboard.widgets import filters, plots, tables
from tilewatch.dashboard.widgets import repository as watched
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.db.lifecycle.regressions import OPEN
from tilewatch.nightlies import NightlyTimes
from tilewatch.text import change_text, count_text, short_sha

SHOWN_MOVERS = 20
PERIODS = {"yesterday": 1, "a week ago": 7, "a month ago": 30, "a year ago": 365}
"""What "since" can mean, in days before today's noon, which lies after the night; besides these, a commit."""
A_COMMIT = "a commit"
AN_HOUR = dt.timedelta(hours=1)


def page(url: str) -> None:
    st.title("Overview", anchor=False)
    if reads.submissions(url, submissions.RECENT).empty:
        st.info("Nothing was submitted to this Tilewatch yet. Submit a commit; its sweeps appear here as they run.")
        st.code(
            "make up                    # starts everything and submits the first nightly\ntilewatch submit nightly"
        )
        return
    now = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)  # by the hour: readers share the answers
    nights(url)
    _alarms(url)
    repository = watched.pick_repository(url)
    everything = reads.snapshot(url, repository, now + AN_HOUR)  # the hour that goes on is a part of now
    if everything.empty:
        st.info(
            "Nothing is measured yet: that needs a worker on a machine with an NVIDIA GPU, or a recording "
            "(`tilewatch import FILE`). Sweeps without a GPU show their static facts on the Sweeps page."
        )
    else:
        _board(url, repository, everything, now)
    submissions.show(url)


@st.fragment(run_every=reads.LIVE_EVERY_S)
def nights(url: str) -> None:
    """How the newest nightly of each GPU model went, as one line."""
    with show_errors():
        now, times = dt.datetime.now(dt.UTC), NightlyTimes()
        newest = reads.last_nights(url)
        badges = []
        for _, night in newest.sort_values("gpu_name").iterrows():
            state = changes.night_state(night, newest["night"].max(), now, times)
            detail = f" ({night['state']})" if state in ("failed", "running") else f" ({night['night']})"
            badges.append(
                f":{states.NIGHTS[state]}-badge[{night['gpu_name'].removeprefix('NVIDIA ')}: {state}{detail}]"
            )
        st.markdown("**Last night** " + (" ".join(badges) or "no nightly was submitted yet"))


def _alarms(url: str) -> None:
    """What stands open beside the times: late nights, ill GPUs, configs that stopped compiling."""
    found = reads.alarms(url)
    if found.empty:
        return
    rows = [
        {
            "what": row["kind"].replace("_", " "),
            "of": row["subject"],
            "detail": row["detail"],
            "since": moment(row["opened_at"]),
        }
        for row in found.to_dict("records")
    ]
    title = f":{states.UNSURE}[{count_text(len(found), 'alarm')} open]"
    tables.show_in_expander(title, "alarms", lambda: pd.DataFrame(rows))


def _board(url: str, repository: str, everything: pd.DataFrame, now: dt.datetime) -> None:
    """The answer in words, then the board of ratios, then what moved most."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        since_what = filters.choose("Changes since", [*PERIODS, A_COMMIT], "since")
        only = st.toggle("Only regressions", key="regressions", bind="query-params")
    before, since, words = _since(url, repository, now, since_what)
    judged = reads.changes_judged(url, repository, since)
    regressed = judged[judged["verdict"] == "regression"]
    _answer(judged, everything, words)
    pairs = changes.pair_snapshots(before, everything)
    _waiting(url, repository)
    if len(regressed):
        _judged(url, regressed, f"Regressions judged since {words}", "judged")
    if only:
        pairs = changes.keep_series(pairs, regressed)
    if pairs.empty:
        st.success(f"No series was judged a regression since {words}.")
        return
    shown = changes.one_row_per_series(pairs)
    beside = shown[shown["ratio"].notna()]
    if not beside.empty:
        plots.show_grid(grid.ratio_table(beside, watched.trend_links(url)), "board")
        others = len(shown) - len(beside)
        st.caption(
            "The main baseline's time / ours: over 1.00 is faster than it. It is DeepGEMM where a cell names no other. "
            f"▲ ▼: faster or slower since {words}, where the intervals do not overlap."
            + (f" {others:,} series without a baseline: see below." if others else "")
        )
    _movers(url, pairs, words)


def _since(url: str, repository: str, now: dt.datetime, picked: str) -> tuple[pd.DataFrame, dt.datetime, str]:
    """The standing to compare with, the moment it is of, and its words."""
    if picked in PERIODS:
        at = now.replace(hour=12) - dt.timedelta(days=PERIODS[picked])
        return reads.snapshot(url, repository, at), at, picked
    commits = reads.commits(url, repository)
    names = commits["sha"].map(short_sha)
    sha = filters.pick("The commit", list(names), "from")
    commit = commits[names == sha].iloc[0]
    return reads.snapshot(url, repository, commit["committed_at"]), commit["committed_at"], sha


def _answer(judged: pd.DataFrame, everything: pd.DataFrame, words: str) -> None:
    """The one sentence people open this page for."""
    counts = judged["verdict"].value_counts()
    regressions, improvements = int(counts.get("regression", 0)), int(counts.get("improvement", 0))
    series = len(everything[list(changes.SERIES)].drop_duplicates())
    colour = states.BADLY if regressions else states.WELL
    wrong = count_text(regressions, "regression") if regressions else "No regression"
    st.markdown(
        f"#### :{colour}[{wrong}] and {count_text(improvements, 'improvement')} since {words}, in {series:,} series"
    )


def _waiting(url: str, repository: str) -> None:
    """Regressions that nobody has dealt with, whenever they began."""
    found = reads.regressions(url)
    waiting = found[(found["direction"] == "regression") & found["state"].isin(OPEN)]
    waiting = waiting[waiting["repository"] == repository]
    if waiting.empty:
        return
    nobodys = int((waiting["owner"].isna()).sum())
    count = count_text(len(waiting), "confirmed regression") + (" is open" if len(waiting) == 1 else " are open")
    st.page_link(
        "views/regressions.py",
        label=f":{states.BADLY}[{count}], {nobodys:,} without an owner. To the regressions",
    )


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
    picked = st.dataframe(table, hide_index=True, on_select="rerun", selection_mode="single-row", key=key)
    if picked.selection.rows and picked.selection.rows[0] < len(judged):
        _links(url, judged.iloc[picked.selection.rows[0]])


def _movers(url: str, pairs: pd.DataFrame, words: str) -> None:
    """Every series, the largest change first."""
    order = pairs["change"].abs().sort_values(ascending=False, na_position="last").index
    pairs = pairs.loc[order]
    st.subheader("Biggest movers" if pairs["change"].notna().any() else "Latest measurements", anchor=False)
    everything = len(pairs) <= SHOWN_MOVERS or st.toggle(f"All {len(pairs):,} series", key="all", bind="query-params")
    shown = pairs if everything else pairs.head(SHOWN_MOVERS)
    table = pd.DataFrame([_series_row(row) for _, row in shown.iterrows()])
    picked = st.dataframe(
        table.style.map(states.change_colour, subset="change").map(states.word_colour, subset="verdict"),
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key="movers",
        column_config={"ratio": st.column_config.TextColumn(alignment="right")},
    )
    st.caption(
        f"Change of speed since {words}, on the same kind of record; ≈ where the intervals overlap. "
        "Select a row for its trend and its evidence."
    )
    if picked.selection.rows and picked.selection.rows[0] < len(shown):
        _links(url, shown.iloc[picked.selection.rows[0]])


def _links(url: str, row: pd.Series) -> None:
    with st.container(horizontal=True):
        st.page_link("views/trends.py", label="Open its trend", query_params=watched.series_parameters(url, row))
        st.page_link("views/evidence.py", label="Open its evidence", query_params={"run": str(row["run_id"])})


def _series_row(row: pd.Series) -> dict[str, str]:
    unsure = "" if row["apart"] else "≈ "
    return {
        "kernel": row["kernel"],
        "problem": row["problem"],
        "GPU": row["gpu_name"],
        "ratio": "without a baseline" if pd.isna(row["ratio"]) else ratio_to(row["ratio"], row["baseline"]),
        "change": "" if pd.isna(row["change"]) else unsure + change_text(row["change"]),
        "time": time_text(row["median_us"]),
        "TFLOP/s": f"{row['flops'] / row['median_us'] / US_TFLOP:,.0f}",
        "verdict": row["verdict"] or "",
        "commit": f"{short_sha(row['sha'])} {row['subject']}",
        "source": source_text(row["origin"], row["machine"], row["measured_at"]),
    }


page(reads.database_url())
