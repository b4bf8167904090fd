"""Shows the whole search space of one kernel, problem, GPU model and commit, picked on a slider."""

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import sweep as sweep_panel
from tilewatch.dashboard.panels import sweep_comparison, sweep_sizes, sweep_winner
from tilewatch.dashboard.text import moment
from tilewatch.dashboard.widgets import filters, page_head, repository
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.text import count_text, plain, short_sha

WHAT_MOVED, OVER_SIZES, STEPS = "What moved", "Over the sizes", "Step by step"

ABOUT = (
    "Every config of one kernel on one problem: which ones compiled, gave a right answer, and how fast they are. "
    "The fastest is the winner, which the other pages show."
)


def page(url: str) -> None:
    page_head.show("Sweeps", ABOUT)
    spaces = reads.spaces(url)
    if spaces.empty:
        st.info("No sweep was submitted yet. Submit a nightly, or one sweep of one kernel on one problem.")
        st.code("tilewatch submit nightly\ntilewatch submit sweep gemm_fp8 320x32576x7168")
        return
    name = repository.pick_repository(url)
    spaces = spaces[spaces["repository"] == name]
    if spaces.empty:
        st.info(f"No sweep of {name} was submitted yet.")
        return
    for column, (label, name, key) in zip(
        st.columns(3),
        (("Kernel", "kernel", "kernel"), ("Problem", "problem", "problem"), ("GPU", "gpu_model", "gpu")),
        strict=True,
    ):
        with column:
            spaces = filters.pick_value(spaces, label, name, key)
    space = spaces.iloc[0]
    sweeps = reads.sweeps(url, space["repository"], space["kernel"], space["problem"], space["gpu_model"])
    whole = sweeps[list(map(sweep_winner.is_whole, sweeps["reason"], sweeps["space_size"], sweeps["axes"]))]
    newest = (sweeps if whole.empty else whole).iloc[0]
    left, right = st.columns([3, 2], vertical_alignment="bottom", gap="medium")
    with left:
        at_commit = filters.pick_commit(sweeps, "Commit", "commit", newest["sha"])
    with right:
        view = filters.choose("View", [sweep_sizes.THIS_SWEEP, WHAT_MOVED, OVER_SIZES, STEPS], "view")
    if len(at_commit) > 1:
        named = at_commit.assign(submission=[_submission(sweep) for _, sweep in at_commit.iterrows()])
        at_commit = filters.pick_or_newest(named, "Submission", "submission", "submission")
    sweep = at_commit.iloc[0]
    if view == STEPS:  # of several commits and GPU models
        with show_errors():
            sweep_sizes.show_steps(url, sweep)
        return
    st.text(f"{short_sha(sweep['sha'])} {sweep['subject']}")
    later = sweeps[sweeps["position"] > newest["position"]]["sha"].nunique()
    if later and sweep["sha"] == newest["sha"]:
        tried = count_text(later, "newer commit")
        st.caption(f"The newest sweep of the whole space. {tried} tried a part of it: pick a commit on the slider.")
    st.caption(
        f"{plain(sweep['gpu_name'])} ({sweep['arch']}), search space of {count_text(sweep['space_size'], 'config')}, "
        f"{_submission(sweep)}"
    )
    if view == WHAT_MOVED:
        with show_errors():
            sweep_comparison.show(url, sweeps, sweep)
        return
    if view == OVER_SIZES:
        with show_errors():
            sweep_sizes.show(url, sweep)
        return
    not_ended = ["waiting", "compiled"] if sweep["measure"] else ["waiting"]
    unfinished = reads.trials(url, sweep["id"])["status"].isin(not_ended).any()
    st.fragment(sweep_panel.show, run_every=reads.LIVE_EVERY_S if unfinished else None)(url, sweep)


def _submission(sweep: pd.Series) -> str:
    if sweep["reason"] == "recorded":
        return f"recorded on {sweep['machine']}"
    if sweep["reason"] == "nightly" and sweep["night"]:
        return f"nightly of {sweep['night']}"
    return f"submitted {moment(sweep['requested_at'])}"


page(reads.database_url())
