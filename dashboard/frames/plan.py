"""Says what would decide an undecided verdict, from its reason. Pure."""

import re

_NIGHTS = re.compile(r"(\d+) of the (\d+) earlier nights needed")
"""Matches the words of worker/detection/series_verdict.py."""


def write_plan(reason: str, *, is_recorded: bool) -> str:
    """Writes what will decide a verdict, to follow the word "undecided"."""
    if is_recorded:
        return "a recording brings no further nights; a later recording or a run here decides"
    found = _NIGHTS.search(reason)
    if found is None:
        return "a replay with more launches decides; measure it again"
    missing = int(found[2]) - int(found[1])
    return f"{missing} more {'night' if missing == 1 else 'nights'} on this machine decide, or a replay"
