"""Shows the form to submit work, and the list of people's actions."""

import re
from functools import partial

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import run_action
from tilewatch.dashboard.text import moment
from tilewatch.dashboard.widgets import tables
from tilewatch.db.lifecycle import actions
from tilewatch.text import short_sha

OWN = "that of TILEWATCH_REPOSITORY"
SHA = re.compile(r"[0-9a-f]{40}")
NIGHTLY, SWEEP, BACKFILL = "The whole suite", "One sweep", "A range of commits"


def show_form(url: str, who: str) -> None:
    with st.expander("Submit work", key="submit"):
        added = reads.watched(url)
        picked = st.selectbox("Repository", [*added, OWN], key="submit-repository") if added else OWN
        repository = None if picked == OWN else picked
        spaces = reads.spaces(url)
        known = reads.repositories(url)[:1] if repository is None else [repository]
        spaces = spaces[spaces["repository"].isin(known)]
        kind = st.segmented_control(
            "What", [NIGHTLY, SWEEP, BACKFILL], default=NIGHTLY, required=True, key="submit-what"
        )
        gpus = st.multiselect(
            "GPU models", sorted(set(spaces["gpu_model"])), placeholder="the usual ones", key="submit-gpus"
        )
        if kind == BACKFILL:
            revisions = st.text_input("Commits, as A..B", key="submit-range", placeholder="v1.2..HEAD")
            action, about = "backfill", {"revisions": revisions.strip()}
        else:
            commit = st.text_input("Commit", "HEAD", key="submit-commit")
            action, about = "nightly", {"commit": commit.strip()}
            if kind == SWEEP:
                kernel = st.selectbox("Kernel", sorted(set(spaces["kernel"])), key="submit-kernel")
                problem = st.text_input("Problem", key="submit-problem", placeholder="320x32576x7168")
                action, about = "sweep", {**about, "kernel": kernel or "", "problem": problem.strip()}
        if st.button("Submit", key="submit-now", disabled=not all(about.values()), type="primary"):
            wanted = {**about, "repository": repository, "gpus": gpus}
            ask = partial(actions.ask, who=who, action=action, wanted=wanted)
            run_action.run(url, ask, "A worker submits it within a minute")


def show_actions(url: str) -> None:
    """Shows a table of the actions of people and programs."""
    newest = reads.actions(url)
    if newest.empty:
        return
    st.subheader("What people and programs did", anchor=False)
    tables.show(tabulate_actions(newest), key="actions")


def tabulate_actions(newest: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with one row per action: time, person, arguments, state, GPU seconds and outcome."""
    return pd.DataFrame(
        [
            {
                "when": moment(row["asked_at"]),
                "who": row["who"],
                "did": row["action"],
                "of": ", ".join(f"{name} {_text(value)}" for name, value in row["wanted"].items() if value),
                "state": row["state"],
                "GPU s": "" if pd.isna(row["gpu_s"]) else f"{row['gpu_s']:.1f}",
                "outcome": row["outcome"] or "",
            }
            for row in newest.to_dict("records")
        ]
    )


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return short_sha(str(value)) if SHA.fullmatch(str(value)) else str(value)
