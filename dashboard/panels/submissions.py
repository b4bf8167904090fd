"""Shows the newest submissions and how far each is."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.text import day, moment, plain
from tilewatch.dashboard.widgets import badges
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.db.queries.submissions import IN_PROGRESS
from tilewatch.text import count_text, short_sha

RECENT = 10
MOST_CARDS = 4


@st.fragment(run_every=reads.LIVE_EVERY_S)
def show(url: str) -> None:
    """Shows the submissions in progress as cards, then all in a table; runs again by itself."""
    with show_errors():
        rows = reads.submissions(url, RECENT)
        st.subheader("Submissions", anchor=False)
        in_progress = rows[rows["state"].isin(IN_PROGRESS)].drop_duplicates("gpu_model").head(MOST_CARDS)
        if len(in_progress):
            for column, (_, newest) in zip(st.columns(max(len(in_progress), 3)), in_progress.iterrows(), strict=False):
                with column:
                    _newest(newest)
        table = pd.DataFrame([_row(row) for _, row in rows.iterrows()])
        if rows["repository"].nunique() > 1:
            table.insert(0, "repository", list(rows["repository"]))
        st.dataframe(table.style.map(badges.word_colour, subset="state"), hide_index=True, key="submissions")


def _newest(row: pd.Series) -> None:
    """Shows the newest submission for a GPU model as a card."""
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{plain(row['gpu_name'])}** :{badges.SUBMISSIONS[row['state']]}[{row['state']}]")
        if row["state"] == "compiling":
            share = row["settled_trials"] / max(row["trials"], 1)
            st.progress(share, f"{row['settled_trials']:,} of {row['trials']:,} configs compiled")
        st.text(f"{short_sha(row['sha'])} {row['subject']}")
        st.caption(f"{plain(_why(row))}, {count_text(row['sweeps'], 'sweep')}, {count_text(row['trials'], 'config')}")


def _row(row: pd.Series) -> dict[str, str]:
    compiled = f"{row['settled_trials']:,} of {row['trials']:,}" if row["reason"] != "recorded" else ""
    return {
        "GPU": row["gpu_name"],
        "state": row["state"],
        "why": _why(row),
        "commit": f"{short_sha(row['sha'])} {row['subject']}",
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
