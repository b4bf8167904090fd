"""Shows how good the alerts are, such as their precision and false alarms."""

import datetime as dt

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.db.page_reads.judge_score import Score
from tilewatch.text import count_text

MONTH = dt.timedelta(days=30)


def show(url: str) -> None:
    """Shows four cards with the score of the alerts of the last 30 days."""
    score = reads.judge_score_since(url, reads.this_hour() - MONTH)
    with st.expander("Score of the last 30 days", key="scoreboard", expanded=True):
        for column, (label, value, detail) in zip(st.columns(4), cards(score), strict=True):
            with column:
                st.metric(label, value)
                st.caption(detail)


def cards(score: Score) -> list[tuple[str, str, str]]:
    """Returns the label, the value and the explanation of each card."""
    interval = score.precision_interval
    marked = score.right + score.wrong
    precision = "none yet" if score.precision is None else f"{100 * score.precision:.0f} %"
    reach = f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f} %, of {count_text(marked, 'mark')}" if interval else ""
    alarms = score.false_alarms_per_1000
    return [
        ("Precision so far", precision, reach or "Mark regressions right or wrong: the score is counted from that."),
        (
            "Time to alert, median",
            _hours(score.from_run.median_h),
            f"from the run that showed it; {_hours(score.from_commit.median_h)} from its commit",
        ),
        (
            "False alarms per 1,000",
            f"{alarms:.2f}" if alarms is not None and marked else "none yet",
            f"budget {score.budget_per_1000:.2f}, of {count_text(score.points, 'judged point')}",
        ),
        (
            "Replays per run",
            "none" if score.launches_a_run is None else f"{score.launches_a_run:.2f}",
            f"{count_text(score.suspicions, 'suspicion')}: {score.confirmed} confirmed, {score.refuted} refuted, "
            f"{score.undecided} undecided",
        ),
    ]


def _hours(hours: float | None) -> str:
    if hours is None:
        return "none yet"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} d"
