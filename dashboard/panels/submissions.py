"""Shows the newest submissions and the progress of each."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.text import day, moment
from tilewatch.dashboard.widgets import badges, tables
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.db.page_reads.submissions import IN_PROGRESS
from tilewatch.text import count_text, plain, short_sha

RECENT = 10
MOST_CARDS = 4
"""The most submissions in progress that are shown as cards. If there are more, only the table shows them."""


@st.fragment(run_every=reads.LIVE_EVERY_S)
def show(url: str) -> None:
    """Shows a few submissions in progress as cards, then all in a table, which updates itself."""
    with show_errors():
        rows = reads.submissions(url, RECENT)
        st.subheader("Submissions", anchor=False)
        in_progress = rows[rows["state"].isin(IN_PROGRESS)].drop_duplicates("gpu_model")
        if 0 < len(in_progress) <= MOST_CARDS:
            for column, (_, newest) in zip(st.columns(max(len(in_progress), 3)), in_progress.iterrows(), strict=False):
                with column:
                    _newest(url, newest)
        table = pd.DataFrame([_row(row) for _, row in rows.iterrows()])
        if rows["repository"].nunique() > 1:
            table.insert(0, "repository", list(rows["repository"]))
        tables.show(table.style.map(badges.word_colour, subset="state"), key="submissions")


def _newest(url: str, row: pd.Series) -> None:
    """Shows the newest submission for a GPU model as a card."""
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{plain(row['gpu_name'])}** :{badges.SUBMISSIONS[row['state']]}[{row['state']}]")
        if row["state"] == "compiling":
            share = row["settled_trials"] / max(row["trials"], 1)
            st.progress(share, f"{row['settled_trials']:,} of {row['trials']:,} configs compiled")
        st.text(f"{short_sha(row['sha'])} {row['subject']}")
        ends = ends_text(row, dt.datetime.now(dt.UTC), reads.workers(url))
        facts = (plain(_why(row)), count_text(row["sweeps"], "sweep"), count_text(row["trials"], "config"))
        st.caption(", ".join(facts) + (f"; ends {ends}" if ends else ""))


def ends_text(row: Mapping[Any, Any] | pd.Series, now: dt.datetime, workers: pd.DataFrame) -> str:
    """Returns when a submission ends if its speed stays, in words. It ends when its sweeps are measured, or compiled if
    it is not to be measured. Empty if it is too early to tell, no live worker takes its jobs, or it has ended."""
    done, total = (row["runs"], row["sweeps"]) if row["measure"] else (row["settled_trials"], row["trials"])
    queue = {"compiling": "compile", "measuring": f"gpu.{row['gpu_model']}"}.get(row["state"])
    taken = any(alive and queue in queues for alive, queues in zip(workers["alive"], workers["queues"], strict=True))
    if not 0 < done < total or not taken:
        return ""
    return f"about {moment(now + (now - row['requested_at']) * ((total - done) / done))}"


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
