"""Shows one check, which compares two commits: its outcome, its operators, and one operator's launch times."""

from collections.abc import Sequence
from statistics import median

import pandas as pd
import streamlit as st

from tilewatch.configs import config_text
from tilewatch.dashboard.charts import evidence as evidence_charts
from tilewatch.dashboard.frames import evidence, reads
from tilewatch.dashboard.text import moment, span_text, time_text
from tilewatch.dashboard.widgets import badges, filters, plots, tables
from tilewatch.dashboard.widgets.errors import show_errors
from tilewatch.db.page_reads.checks import CheckOperatorRow, CheckRow
from tilewatch.text import plain, plain_code, short_sha

OPEN = "open"
"""The word that is shown for an operator whose comparison has no outcome yet."""


def show(url: str, check_id: int) -> None:
    """Shows a check, or nothing if the id is unknown."""
    with show_errors():
        found = reads.check(url, check_id)
        if found is None:
            return
        _headline(found.check)
        if found.check.failure is not None:
            st.error(f"Nothing could be compared: {plain(found.check.failure)}")
        # Those that need a look first, identical code last.
        ordered = sorted(found.operators, key=lambda row: (not row.is_over, not row.is_unsure, row.kind == "identical"))
        timed = [row for row in ordered if row.base_us]
        if timed:
            _evidence(found.check, timed)
        if ordered:
            _operators(ordered)


def _headline(check: CheckRow) -> None:
    commits = f"{short_sha(check.base_sha)}..{short_sha(check.head_sha)}"
    colour = badges.CHECKS[check.state]
    with st.container(key="two-lines-check"):
        st.markdown(f"#### :{colour}-badge[{check.state}] #{check.id} {commits} on {plain(check.gpu_name)}")
        st.text(check.head_subject)
    limit = f"slower by more than {100 * check.fail_over:g} % fails" if check.fail_over else "anything slower fails"
    ended = ""
    if check.ended_at is not None:
        ended = f", ended after {span_text((check.ended_at - check.requested_at).total_seconds())}"
    facts = [
        f"{check.kernel or 'all kernels'} of {check.repository}, {limit}",
        f"submitted by {check.who}, {moment(check.requested_at)}{ended}",
        f"{span_text(check.gpu_s)} of GPU",
    ]
    with st.container(key="two-lines-facts"):
        st.caption(plain("; ".join(facts)))
    if check.exit_code is None and check.operators:
        st.progress(check.answered / check.operators, f"{check.answered} of {check.operators} answered")


def _operators(operators: Sequence[CheckOperatorRow]) -> None:
    table = pd.DataFrame(
        [
            {
                "outcome": row.kind or OPEN,
                "kernel": row.kernel,
                "problem": row.problem,
                "in words": row.sentence,
                "what moved in the code": ", ".join(row.moved),
            }
            for row in operators
        ]
    )
    tables.show(table.style.map(badges.word_colour, subset="outcome"), key="operators")


def _evidence(check: CheckRow, timed: Sequence[CheckOperatorRow]) -> None:
    st.subheader("Evidence: both sides in turns, in fresh processes", anchor=False)
    names = [f"{row.kernel} {row.problem}" for row in timed]
    picked = timed[names.index(filters.pick("Kernel and problem", names, "operator"))]
    left, right = st.columns([3, 2], gap="medium")
    with left:
        figure = evidence_charts.replay(picked.base_us, picked.head_us)
        plots.show(figure, "launches", "Times of the old and the new cubin by launch")
    with right:
        _facts(picked)
    st.caption(
        f"To time it again on a machine with this GPU model, {plain(check.gpu_name)}, in a clone of "
        f"{plain(check.repository)}:"
    )
    sides = (check.head_sha, picked.head_config), (check.base_sha, picked.base_config)
    st.code(evidence.replay_command(picked.kernel, picked.problem, *sides), language="bash", wrap_lines=True)


def _facts(row: CheckOperatorRow) -> None:
    st.text(row.sentence)
    medians = " → ".join(time_text(median(each)) for each in (row.base_us, row.head_us))
    lines = [f"medians of the launches: {medians}", f"on {row.host}, {row.gpu_uuid}", *row.moved]
    st.caption("  \n".join(map(plain, lines)))
    if row.base_config is not None and row.head_config is not None:
        st.markdown(f"config {plain_code(config_text(row.base_config))}")
        if row.head_config != row.base_config:
            st.markdown(f"in the head {plain_code(config_text(row.head_config))}")
        where = {"recording": "It won when this was measured last.", "shipped": "It is the one that ships."}
        st.caption(where.get(row.config_source, ""))
