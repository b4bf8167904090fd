"""Tabulates a winner's checklist: which lines of the optimisation guide it follows, and followed before. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

ORDER = ("no", "unknown", "yes", "does not apply")
MARKS = {"yes": "✓ yes", "no": "✗ no"}


def read_lines(detail: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Returns the checklist lines that a run stored; empty if it has none."""
    lines = detail.get("checklist")
    return [line for line in lines if isinstance(line, Mapping)] if isinstance(lines, list) else []


def tabulate(lines: Sequence[Mapping[str, str]], before: Sequence[Mapping[str, str]] = ()) -> pd.DataFrame:
    """Returns the lines as a table, those not kept first. Given `before`, a column shows its different answers."""
    answers = {line["item"]: line["answer"] for line in before}
    rows = []
    for line in sorted(lines, key=lambda line: ORDER.index(line["answer"]) if line["answer"] in ORDER else len(ORDER)):
        answer = line["answer"]
        row = {"line of the guide": line["item"], "kept": MARKS.get(answer, answer)}
        if before:
            old = answers.get(line["item"])
            row["before"] = "" if old in (None, answer) else MARKS.get(old, old)
        rows.append({**row, "evidence": line["evidence"]})
    return pd.DataFrame(rows)


def count_kept(lines: Sequence[Mapping[str, str]]) -> str:
    """Writes "11 of 13 lines kept". Counts the lines that apply and have an answer."""
    answers = [line["answer"] for line in lines if line["answer"] in ("yes", "no")]
    return f"{answers.count('yes')} of {len(answers)} lines kept"
