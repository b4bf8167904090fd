"""The first page: where the newest submissions stand, and the newest measured ratio of every series."""

import pandas as pd
import streamlit as st

from dashboard import data
from dashboard.metrics import US_TFLOP
from dashboard.trouble import told
from dashboard.wording import change_text, day, moment, plural, ratio_text, short, source_text, time_text

RECENT_SUBMISSIONS = 10
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


def page(url: str) -> None:
    st.title("Overview", anchor=False)
    if data.submissions(url).empty:
        st.info("Nothing was submitted to this Tilewatch yet. Submit a commit; its sweeps appear here as they run.")
        st.code(
            "make up                    # starts everything and submits the first nightly\ntilewatch submit nightly"
        )
        return
    measured(url)
    submissions(url)


@st.fragment(run_every=data.LIVE_EVERY_S)
def measured(url: str) -> None:
    with told():
        latest = data.latest(url)
        st.subheader("Latest measurements", anchor=False)
        if latest.empty:
            st.info(
                "Nothing is measured yet: that needs a worker on a machine with an NVIDIA GPU, or a recording "
                "(`tilewatch import FILE`). Sweeps without a GPU show their static facts on the Sweeps page."
            )
            return
        st.caption(
            "Ratio to DeepGEMM: DeepGEMM's time / ours, over 1.00x is faster than DeepGEMM. "
            "Change: of the ratio, since the commit before on the same kind of record. Select a row to see its trend."
        )
        table = pd.DataFrame([_latest_row(row) for _, row in latest.iterrows()])
        picked = st.dataframe(
            table.style.map(_change_colour, subset="change").map(_word_colour, subset="verdict"),
            hide_index=True,
            on_select="rerun",
            selection_mode="single-row",
            key="latest",
            column_config={"ratio to DeepGEMM": st.column_config.TextColumn(alignment="right")},
        )
        if picked.selection.rows:
            row = latest.iloc[picked.selection.rows[0]]
            series = {"kernel": row["kernel"], "problem": row["problem"], "gpu": row["gpu_model"]}
            st.page_link("views/trends.py", label="Open its trend", query_params=series)


def _latest_row(row: pd.Series) -> dict[str, str]:
    known = not pd.isna(row["ratio"])
    change = (
        "" if not known or pd.isna(row["previous_ratio"]) else change_text(row["ratio"] / row["previous_ratio"] - 1)
    )
    return {
        "kernel": row["kernel"],
        "problem": row["problem"],
        "GPU": row["gpu_name"],
        "ratio to DeepGEMM": ratio_text(row["ratio"]) if known else "without DeepGEMM",
        "change": change,
        "time": time_text(row["median_us"]),
        "TFLOP/s": f"{row['flops'] / row['median_us'] / US_TFLOP:,.0f}",
        "verdict": row["verdict"] or "",
        "commit": f"{short(row['sha'])} {row['subject']}",
        "source": source_text(row["origin"], row["machine"], row["measured_at"]),
    }


def _change_colour(change: str) -> str:
    return f"color: {TEXT_COLOURS[BADLY if change.startswith('-') else WELL]}" if change else ""


def _word_colour(word: str) -> str:
    """The colour of a state or a verdict."""
    colour = STATE_COLOURS.get(word) or VERDICT_COLOURS.get(word)
    return f"color: {TEXT_COLOURS[colour]}" if colour else ""


@st.fragment(run_every=data.LIVE_EVERY_S)
def submissions(url: str) -> None:
    with told():
        found = data.submissions(url)
        st.subheader("Submissions", anchor=False)
        here = found[found["reason"] != "recorded"].drop_duplicates("gpu_model")
        if len(here):
            for column, (_, newest) in zip(st.columns(max(len(here), 3)), here.iterrows(), strict=False):
                with column:
                    _newest(newest)
        table = pd.DataFrame([_submission_row(row) for _, row in found.head(RECENT_SUBMISSIONS).iterrows()])
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
