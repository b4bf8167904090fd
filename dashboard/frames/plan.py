"""Derives from the reason of an undecided verdict what will decide it."""

import re

from tilewatch.text import count_text

_NIGHTS = re.compile(r"(\d+) of the (\d+) earlier nights needed")
PLANS = {
    "parts are undecided": "the verdicts of its parts decide",
    "a replay is asked for": "the replay in the queue decides",
    "it is asked again": "the next night's replay decides",
    "no config gave a right answer": "a run with a right answer decides",
}
"""Words in the reasons of worker/detection and worker/judging, each with what decides a verdict of that reason."""


def write_plan(reason: str, *, is_recorded: bool) -> str:
    """Returns what will decide a verdict with this reason, in words that can follow "undecided"."""
    if is_recorded:
        return "a later recording or a run here decides"
    if plan := next((plan for words, plan in PLANS.items() if words in reason), None):
        return plan
    if (found := _NIGHTS.search(reason)) is None:
        return "a replay with more launches decides"
    missing = max(int(found[2]) - int(found[1]), 1)
    return f"{count_text(missing, 'more night')} on this machine {'decides' if missing == 1 else 'decide'}, or a replay"
