"""Chooses the colours of states and verdicts in tables and badges."""

import streamlit as st

from tilewatch.dashboard.charts import colours
from tilewatch.dashboard.frames import differences

GOING_ON, WELL, UNSURE, BADLY, OVER = "blue", "green", "orange", "red", "gray"
SUBMISSIONS = {
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
VERDICTS = {"regression": BADLY, "improvement": WELL, "unchanged": OVER, "undecided": OVER}
NIGHTS = {"done": WELL, "running": GOING_ON, "late": UNSURE, "missing": UNSURE, "failed": BADLY}
REGRESSIONS = {"new": BADLY, "reopened": BADLY, "acknowledged": UNSURE, "expected": OVER, "resolved": WELL}
CHECKS = {
    "fine": WELL,
    "slower": BADLY,
    "could not tell": UNSURE,
    "being prepared": GOING_ON,
    "being answered": GOING_ON,
}
SAFETIES = {"not safe": BADLY, "safe if re-tuned": UNSURE, "unknown": OVER, "safe": WELL}
OUTCOMES = {
    "open": GOING_ON,
    "slower": BADLY,
    "faster": WELL,
    "not slower": WELL,
    "undecided": UNSURE,
    "identical": OVER,
}


def word_colour(word: str) -> str:
    """Returns the CSS style of a cell that contains a state or a verdict."""
    colour = (SUBMISSIONS | VERDICTS | REGRESSIONS | CHECKS | OUTCOMES | SAFETIES).get(word)
    return _style(colour)


def change_colour(finding: str) -> str:
    """Returns the CSS style of a cell with a change."""
    colour = {differences.FASTER: WELL, differences.SLOWER: BADLY}.get(finding)
    return _style(colour)


def _style(colour: str | None) -> str:
    return f"color: {colours.TEXT[st.context.theme.type or 'light'][colour]}" if colour else ""
