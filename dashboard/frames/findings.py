"""Says what a page may claim of a difference between two snapshots, so that none contradicts the judge. Frames in,
frames out.

A difference is coloured as good or bad and counted as a change only where its finding is `FASTER` or `SLOWER`.
"""

import numpy as np
import pandas as pd

from tilewatch.dashboard.frames.changes import SERIES

FASTER, SLOWER = "faster", "slower"
SAME_CODE, NOT_APART, NOT_JUDGED, NOT_CONFIRMED = "identical code", "not apart", "not judged yet", "not confirmed"
NOTHING_TO_COMPARE = ""
CLAIMS = (FASTER, SLOWER)
DIFFERENT = (*CLAIMS, NOT_JUDGED, NOT_CONFIRMED)
"""Findings of differences that noise does not explain and whose code is not the same."""


def add_findings(pairs: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """The pairs of `changes.pair_snapshots` with the column `finding`.

    `judged` are the verdicts that say a series changed. A difference is faster or slower only where one of them is of a
    commit after the earlier side and no later than the later one. Otherwise equal code comes first: then the difference
    is the GPU's, the toolchain's or noise.
    """
    confirmed = _is_confirmed(pairs, judged)
    waits = pairs["verdict"].isna() | (pairs["verdict"] == "undecided")
    rules = (
        (pairs["change"].isna(), NOTHING_TO_COMPARE),
        (has_same_code(pairs) & ~confirmed, SAME_CODE),
        (~pairs["apart"], NOT_APART),
        (confirmed & (pairs["change"] > 0), FASTER),
        (confirmed, SLOWER),
        (waits, NOT_JUDGED),
    )
    return pairs.assign(finding=np.select([rule for rule, _ in rules], [name for _, name in rules], NOT_CONFIRMED))


def add_findings_between_gpus(pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs of two GPU models, which nobody judges: one is faster where their intervals are apart."""
    rules = (
        (pairs["change"].isna(), NOTHING_TO_COMPARE),
        (~pairs["apart"], NOT_APART),
        (pairs["change"] > 0, FASTER),
    )
    return pairs.assign(finding=np.select([rule for rule, _ in rules], [name for _, name in rules], SLOWER))


def has_same_code(pairs: pd.DataFrame) -> pd.Series:
    """True where the winner's machine code is that of before, and where another config won of the same source under the
    same compiler: which of them wins is the race's, and no change of the code."""
    code, source, compiler = (
        pairs[name].notna() & (pairs[name] == pairs[f"{name}_before"])
        for name in ("code_sha256", "source_sha256", "compiler")
    )
    return code | (source & compiler)


def count_findings(pairs: pd.DataFrame) -> str:
    """The number of series by finding, as words, e.g. "1 faster, 0 slower, 3 identical code"."""
    counts = pairs["finding"].value_counts()
    others = [name for name in (NOT_JUDGED, NOT_CONFIRMED, SAME_CODE, NOT_APART) if name in counts]
    return ", ".join(f"{counts.get(name, 0):,} {name}" for name in (*CLAIMS, *others))


def _is_confirmed(pairs: pd.DataFrame, judged: pd.DataFrame) -> pd.Series:
    named = [*SERIES, "origin"]
    positions = judged.groupby(named)["position"].agg(list).to_dict() if len(judged) else {}
    answers = [
        any(before < position <= after for position in positions.get(series, ()))
        for series, before, after in zip(
            pairs[named].itertuples(index=False, name=None), pairs["position_before"], pairs["position"], strict=True
        )
    ]
    return pd.Series(answers, index=pairs.index, dtype=bool)
