"""Tabulates a winner's checklist: the rules of the optimisation guide that the winner follows now and before."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

ORDER = ("no", "unknown", "yes", "does not apply")
MARKS = {"yes": "✓ yes", "no": "✗ no"}


def read_lines(detail: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Returns the checklist lines stored with a measurement; empty if there are none."""
    lines = detail.get("checklist")
    return [line for line in lines if isinstance(line, Mapping)] if isinstance(lines, list) else []


def tabulate(lines: Sequence[Mapping[str, str]], before: Sequence[Mapping[str, str]] = ()) -> pd.DataFrame:
    """Returns a table of the lines, those not kept first. If an answer of `before` differs, a column shows it."""
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
    """Returns words such as "11 of 13 lines kept". Lines without the answer yes or no are not counted."""
    answers = [line["answer"] for line in lines if line["answer"] in ("yes", "no")]
    return f"{answers.count('yes')} of {len(answers)} lines kept"
