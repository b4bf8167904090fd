"""Labels the differences between two snapshots, e.g. as faster, slower or not confirmed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tilewatch.dashboard.frames.changes import SERIES
from tilewatch.dashboard.text import day
from tilewatch.text import change_text, count_text, short_sha

CHANGE_OF_TIME = "change of time"
FASTER, SLOWER = "faster", "slower"
HIGHER, LOWER = "higher ratio", "lower ratio"
"""Findings for two GPU models. A faster kernel can have a lower ratio, if the baseline is faster by a larger factor."""
SAME_CODE, NOT_APART = "identical code", "within noise"
NOT_JUDGED, UNDECIDED, NOT_CONFIRMED = "not judged yet", "undecided", "not confirmed"
NOTHING_TO_COMPARE = ""
CLAIMS = (FASTER, SLOWER, HIGHER, LOWER)
OPEN = (NOT_JUDGED, UNDECIDED)
"""The findings that a later verdict may replace by a claim."""
DIFFERENT = (*CLAIMS, *OPEN, NOT_CONFIRMED)
"""The findings for a difference that is larger than noise and for which the machine code differs."""


def add_findings(pairs: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """Returns the pairs with a column `finding`, which says faster or slower only for confirmed changes."""
    confirmed_at, undecided = _read_verdicts(pairs, judged)
    confirmed = confirmed_at.notna()
    rules = (
        (pairs["change"].isna(), NOTHING_TO_COMPARE),
        # With identical code, the cause is the GPU, the toolchain or noise.
        (has_same_code(pairs) & ~confirmed, SAME_CODE),
        (~pairs["apart"], NOT_APART),
        (confirmed & (pairs["change"] < 0), FASTER),
        (confirmed, SLOWER),
        (pairs["verdict"].isna(), NOT_JUDGED),
        (undecided.notna(), UNDECIDED),
    )
    found = np.select([rule for rule, _ in rules], [name for _, name in rules], NOT_CONFIRMED)
    confirmed_at = confirmed_at.where(np.isin(found, CLAIMS), None)
    return pairs.assign(finding=found, confirmed_at=confirmed_at, undecided=undecided)


def add_findings_between_gpus(pairs: pd.DataFrame) -> pd.DataFrame:
    """Returns a comparison of two GPU models with a column `finding`, e.g. faster or slower."""
    rules = (
        (pairs["change"].isna(), NOTHING_TO_COMPARE),
        (~pairs["apart"], NOT_APART),
        (pairs["of_ratio"] & (pairs["change"] < 0), HIGHER),
        (pairs["of_ratio"], LOWER),
        (pairs["change"] < 0, FASTER),
    )
    found = np.select([rule for rule, _ in rules], [name for _, name in rules], SLOWER)
    return pairs.assign(finding=found, confirmed_at=None)


def has_same_code(pairs: pd.DataFrame) -> pd.Series:
    """Returns True for rows with unchanged machine code, or with unchanged source and compiler."""
    code, source, compiler = (
        pairs[name].notna() & (pairs[name] == pairs[f"{name}_before"])
        for name in ("code_sha256", "source_sha256", "compiler")
    )
    return code | (source & compiler)


def count_findings(pairs: pd.DataFrame, always: Sequence[str] = (FASTER, SLOWER)) -> str:
    """Returns words such as "1 faster, 3 with identical code"."""
    counts = pairs["finding"].value_counts()
    others = [name for name in (*CLAIMS, *OPEN, NOT_CONFIRMED, SAME_CODE, NOT_APART) if name in counts]
    words = {SAME_CODE: f"with {SAME_CODE}", HIGHER: f"with a {HIGHER}", LOWER: f"with a {LOWER}"}
    return ", ".join(f"{counts.get(name, 0):,} {words.get(name, name)}" for name in dict.fromkeys((*always, *others)))


def write_counts(pairs: pd.DataFrame, since: str) -> str:
    """Returns words such as "2 slower since a week ago (against commits of 2026-11-20), in 40 series"."""
    compared = pairs[pairs["change"].notna()]
    if compared.empty:
        return f"No series has a newer run to compare since {since}, of {len(pairs):,} series"
    of = f"{len(compared):,} of " if len(compared) < len(pairs) else ""  # the others lack a run on one side
    # They may be before `since`, because a series is compared with its newest commit up to that time.
    days = sorted({day(at) for at in compared["committed_at_before"]})
    dates = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    counts = count_findings(pairs)
    return f"{counts} since {since} (against commits of {dates}), in {of}{len(pairs):,} series"


def write(row: Mapping[Any, Any]) -> str:
    """Returns a finding in words, e.g. "slower, confirmed at 1a2b3c4d00"."""
    if row["finding"] == UNDECIDED:
        return f"{UNDECIDED}: {write_plan(row['undecided'], is_recorded=row['origin'] == 'recorded')}"
    if pd.isna(row["confirmed_at"]):
        return str(row["finding"])
    return f"{row['finding']}, confirmed at {short_sha(row['confirmed_at'])}"


def write_cell(row: Mapping[Any, Any]) -> str:
    """Returns a cell's text, e.g. "+2.0 % not confirmed", or "≈ +0.1 %" for noise."""
    change = change_text(row["change"])
    if row["finding"] in CLAIMS:
        return change
    return f"{change} {row['finding']}" if row["finding"] in DIFFERENT else f"≈ {change}"


def _read_verdicts(pairs: pd.DataFrame, judged: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Returns two columns: the commit that confirms each change, and the reason why a verdict is undecided."""
    named = [*SERIES, "origin"]
    verdicts: dict[tuple[str, ...], list[tuple[int, str, str, str]]] = {}
    columns = [*named, "position", "verdict", "sha", "reason"]
    for *series, position, verdict, sha, reason in judged[columns].itertuples(index=False):
        verdicts.setdefault(tuple(series), []).append((position, verdict, sha, reason))
    confirmed_at, undecided = [], []
    for *series, before, after, change in pairs[[*named, "position_before", "position", "change"]].itertuples(
        index=False
    ):
        first, last = sorted((before, after))
        between = [each for each in verdicts.get(tuple(series), ()) if first < each[0] <= last]
        wanted = "improvement" if (change < 0) == (before <= after) else "regression"
        confirmed_at.append(max(((at, sha) for at, name, sha, _ in between if name == wanted), default=(0, None))[1])
        undecided.append(max(((at, why) for at, name, _, why in between if name == UNDECIDED), default=(0, None))[1])
    return pd.Series(confirmed_at, pairs.index, dtype=object), pd.Series(undecided, pairs.index, dtype=object)


_NIGHTS = re.compile(r"(\d+) of the (\d+) earlier nights needed")
PLANS = {
    "parts are undecided": "the verdicts of its parts decide",
    "a replay is asked for": "the replay in the queue decides",
    "it is asked again": "the next night's replay decides",
    "no config gave a right answer": "a run with a right answer decides",
}
"""Maps words of an undecided verdict's reason (worker/detection, worker/judging) to what will decide the verdict."""


def write_plan(reason: str, *, is_recorded: bool) -> str:
    """Returns the next step for an undecided verdict, e.g. "the replay in the queue decides"."""
    if is_recorded:
        return "a later recording or a run here decides"
    if plan := next((plan for words, plan in PLANS.items() if words in reason), None):
        return plan
    if (found := _NIGHTS.search(reason)) is None:
        return "a replay with more launches decides"
    missing = max(int(found[2]) - int(found[1]), 1)
    return f"{count_text(missing, 'more night')} on this machine {'decides' if missing == 1 else 'decide'}, or a replay"
