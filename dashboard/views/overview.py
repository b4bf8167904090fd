"""The first page: is anything wrong since yesterday? Nights, changes that were judged, and every series at a glance."""

import datetime as dt

import pandas as pd
import streamlit as st

from dashboard import change_charts, changes, data, filters
from dashboard.metrics import US_TFLOP
from dashboard.trouble import told
from dashboard.wording import change_text, day, moment, plural, ratio_text, short, source_text, time_text

RECENT_SUBMISSIONS = 10
SHOWN_MOVERS = 20
PERIODS = {"yesterday": 1, "a week ago": 7, "a month ago": 30, "a year ago": 365}
"""What "since" can mean, in days before today's noon, which lies after the night; besides these, a commit."""
GOING_ON, WELL, UNSURE, BADLY, OVER = "blue", "green", "orange", "red", "gray"
STATE_COLOURS = {
    "compiling": GOING_ON,
    "waiting for a GPU": UNSURE,
    "measuring": GOING_ON,
    "judging": GOING_ON,
    "measured": WELL,
    "static facts only": WELL,
    "nothing measured": UNSURE,
    "incomplete": UNSURE,
    "failed": BADLY,
    "cancelled": OVER,
    "recorded": OVER,
}
VERDICT_COLOURS = {"regression": BADLY, "improvement": WELL, "unchanged": OVER, "undecided": OVER}
# Readable on the light and on the dark background.
TEXT_COLOURS = {GOING_ON: "#3d7fe0", WELL: "#1f9d55", UNSURE: "#d98214", BADLY: "#d6344b", OVER: "#8a94a3"}


NIGHT_COLOURS = {"done": WELL, "running": GOING_ON, "late": UNSURE, "failed": BADLY}


def page(url: str) -> None:
    st.title("Overview", anchor=False)
    if data.submissions(url, RECENT_SUBMISSIONS).empty:
        st.info("Nothing was submitted to this Tilewatch yet. Submit a commit; its sweeps appear here as they run.")
        st.code(
            "make up                    # starts everything and submits the first nightly\ntilewatch submit nightly"
        )
        return
    now = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)  # by the hour: readers share the answers
    nights(url)
    everything = data.standing(url, now)
    if everything.empty:
        st.info(
            "Nothing is measured yet: that needs a worker on a machine with an NVIDIA GPU, or a recording "
            "(`tilewatch import FILE`). Sweeps without a GPU show their static facts on the Sweeps page."
        )
    else:
        _board(url, everything, now)
    submissions(url)


@st.fragment(run_every=data.LIVE_EVERY_S)
def nights(url: str) -> None:
    """How the newest nightly of each GPU model went, as one line."""
    with told():
        now = dt.datetime.now(dt.UTC)
        badges = []
        for _, night in data.last_nights(url).iterrows():
            state = changes.night_state(night["state"], night["requested_at"], now)
            detail = f" ({night['state']})" if state in ("failed", "running") else f" ({night['night']})"
            badges.append(
                f":{NIGHT_COLOURS[state]}-badge[{night['gpu_name'].removeprefix('NVIDIA ')}: {state}{detail}]"
            )
        st.markdown("**Last night** " + (" ".join(badges) or "no nightly was submitted yet"))


def _board(url: str, everything: pd.DataFrame, now: dt.datetime) -> None:
    """The answer in words, then the board of ratios, then what moved most."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        before, since, words = _since(url, now)
    judged = data.changes_judged(url, since)
    regressed = judged[judged["verdict"] == "regression"]
    with right:
        only = st.toggle("Only regressions", key="regressions", bind="query-params")
    _answer(judged, everything, words)
    pairs = changes.pair(before, everything)
    if len(regressed):
        _judged(regressed, f"Regressions judged since {words}", "judged")
    if only:
        pairs = changes.only_series(pairs, regressed)
    if pairs.empty:
        st.success(f"No series was judged a regression since {words}.")
        return
    shown = changes.one_record(pairs)
    if shown["ratio"].notna().any():
        st.plotly_chart(
            change_charts.board(shown),
            key="board",
            config={"displaylogo": False},
            alt="Ratio to DeepGEMM by kernel, problem and GPU model",
        )
        st.caption(
            "DeepGEMM's time / ours: over 1.00 is faster than DeepGEMM. "
            f"▲ ▼: faster or slower since {words}, where the intervals do not overlap."
        )
    _movers(pairs, words)


def _since(url: str, now: dt.datetime) -> tuple[pd.DataFrame, dt.datetime, str]:
    """The standing to compare with, the moment it is of, and its words."""
    commits = data.commits(url)
    picked = filters.pick("Changes since", [*PERIODS, *map(short, commits["sha"])], "since")
    if picked in PERIODS:
        at = now.replace(hour=12) - dt.timedelta(days=PERIODS[picked])
        return data.standing(url, at), at, picked
    commit = commits[commits["sha"].map(short) == picked].iloc[0]
    return data.standing(url, commit["committed_at"]), commit["committed_at"], picked


def _answer(judged: pd.DataFrame, everything: pd.DataFrame, words: str) -> None:
    """The one sentence people open this page for."""
    counts = judged["verdict"].value_counts()
    regressions, improvements = int(counts.get("regression", 0)), int(counts.get("improvement", 0))
    series = len(everything[list(changes.SERIES)].drop_duplicates())
    colour = BADLY if regressions else WELL
    wrong = plural(regressions, "regression") if regressions else "No regression"
    st.markdown(
        f"#### :{colour}[{wrong}] and {plural(improvements, 'improvement')} since {words}, in {series:,} series"
    )


def _judged(judged: pd.DataFrame, title: str, key: str) -> None:
    st.subheader(title, anchor=False)
    table = pd.DataFrame(
        {
            "series": [f"{row['kernel']} {row['problem']}" for _, row in judged.iterrows()],
            "GPU": judged["gpu_name"].to_numpy(),
            "time": ["" if pd.isna(change) else change_text(change) for change in judged["change"]],
            "commit": [f"{short(row['sha'])} {row['subject']}" for _, row in judged.iterrows()],
            "why": judged["reason"].to_numpy(),
            "measured": [moment(at) for at in judged["measured_at"]],
        }
    )
    picked = st.dataframe(table, hide_index=True, on_select="rerun", selection_mode="single-row", key=key)
    if picked.selection.rows and picked.selection.rows[0] < len(judged):
        _links(judged.iloc[picked.selection.rows[0]])


def _movers(pairs: pd.DataFrame, words: str) -> None:
    """Every series, the largest change first."""
    order = pairs["change"].abs().sort_values(ascending=False, na_position="last").index
    pairs = pairs.loc[order]
    st.subheader("Biggest movers" if pairs["change"].notna().any() else "Latest measurements", anchor=False)
    everything = len(pairs) <= SHOWN_MOVERS or st.toggle(f"All {len(pairs):,} series", key="all", bind="query-params")
    shown = pairs if everything else pairs.head(SHOWN_MOVERS)
    table = pd.DataFrame([_series_row(row) for _, row in shown.iterrows()])
    picked = st.dataframe(
        table.style.map(_change_colour, subset="change").map(_word_colour, subset="verdict"),
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key="movers",
        column_config={"ratio to DeepGEMM": st.column_config.TextColumn(alignment="right")},
    )
    st.caption(
        f"Change of speed since {words}, on the same kind of record; ≈ where the intervals overlap. "
        "Select a row for its trend and its evidence."
    )
    if picked.selection.rows and picked.selection.rows[0] < len(shown):
        _links(shown.iloc[picked.selection.rows[0]])


def _links(row: pd.Series) -> None:
    series = {"kernel": row["kernel"], "problem": row["problem"], "gpu": row["gpu_model"]}
    with st.container(horizontal=True):
        st.page_link("views/trends.py", label="Open its trend", query_params=series)
        st.page_link("views/evidence.py", label="Open its evidence", query_params={"run": str(row["run_id"])})


def _series_row(row: pd.Series) -> dict[str, str]:
    unsure = "" if row["apart"] else "≈ "
    return {
        "kernel": row["kernel"],
        "problem": row["problem"],
        "GPU": row["gpu_name"],
        "ratio to DeepGEMM": "without DeepGEMM" if pd.isna(row["ratio"]) else ratio_text(row["ratio"]),
        "change": "" if pd.isna(row["change"]) else unsure + change_text(row["change"]),
        "time": time_text(row["median_us"]),
        "TFLOP/s": f"{row['flops'] / row['median_us'] / US_TFLOP:,.0f}",
        "verdict": row["verdict"] or "",
        "commit": f"{short(row['sha'])} {row['subject']}",
        "source": source_text(row["origin"], row["machine"], row["measured_at"]),
    }


def _change_colour(change: str) -> str:
    """Coloured only where the intervals are apart."""
    if not change or change.startswith("≈"):
        return ""
    return f"color: {TEXT_COLOURS[BADLY if change.startswith('-') else WELL]}"


def _word_colour(word: str) -> str:
    """The colour of a state or a verdict."""
    colour = STATE_COLOURS.get(word) or VERDICT_COLOURS.get(word)
    return f"color: {TEXT_COLOURS[colour]}" if colour else ""


@st.fragment(run_every=data.LIVE_EVERY_S)
def submissions(url: str) -> None:
    with told():
        found = data.submissions(url, RECENT_SUBMISSIONS)
        st.subheader("Submissions", anchor=False)
        here = found[found["reason"] != "recorded"].drop_duplicates("gpu_model")
        if len(here):
            for column, (_, newest) in zip(st.columns(max(len(here), 3)), here.iterrows(), strict=False):
                with column:
                    _newest(newest)
        table = pd.DataFrame([_submission_row(row) for _, row in found.iterrows()])
        st.dataframe(table.style.map(_word_colour, subset="state"), hide_index=True, key="submissions")


def _newest(row: pd.Series) -> None:
    """The newest submission for a GPU model."""
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{row['gpu_name']}** :{STATE_COLOURS[row['state']]}[{row['state']}]")
        if row["state"] == "compiling":
            share = row["settled_trials"] / max(row["trials"], 1)
            st.progress(share, f"{row['settled_trials']:,} of {row['trials']:,} configs compiled")
        st.text(f"{short(row['sha'])} {row['subject']}")
        st.caption(f"{_why(row)}, {plural(row['sweeps'], 'sweep')}, {plural(row['trials'], 'config')}")


def _submission_row(row: pd.Series) -> dict[str, str]:
    compiled = f"{row['settled_trials']:,} of {row['trials']:,}" if row["reason"] != "recorded" else ""
    return {
        "GPU": row["gpu_name"],
        "state": row["state"],
        "why": _why(row),
        "commit": f"{short(row['sha'])} {row['subject']}",
        "compiled": compiled,
        "not compiled": f"{row['not_compiled']:,}" if row["not_compiled"] else "",
        "failed jobs": f"{row['failed_jobs']:,}" if row["failed_jobs"] else "",
        "submitted": moment(row["requested_at"]),
    }


def _why(row: pd.Series) -> str:
    if row["reason"] == "nightly" and row["night"]:
        return f"nightly of {row['night']}"
    if row["reason"] == "recorded":
        return f"recorded on {row['machine']}, {day(row['recorded_at'])}"
    return str(row["reason"])


page(data.database_url())
