"""Shows a sweep's winner beside its baseline and other configs, such as the second fastest."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import pandas as pd
import streamlit as st

from tilewatch.configs import config_text, describe_certificate
from tilewatch.dashboard.charts import search_space
from tilewatch.dashboard.text import ratio_to, time_text
from tilewatch.dashboard.widgets import tables
from tilewatch.text import change_text, count_text, plain, plain_code

ANSWER_PX = 120
"""The width in pixels of the longest answer, "does not apply". Streamlit's own width cut it in a narrow window."""

A_FEW = 8
"""The most configs per search space that a recording of past commits tries (this repository's recordings: 6)."""


def is_whole(reason: str, space_size: int, axes: Sequence[tuple[str, Sequence[Any]]]) -> bool:
    """Returns whether a sweep tried its whole search space."""
    # tools/record_history.py tries only A_FEW configs. A library's `only` rule may keep a tenth of the combinations.
    return reason != "recorded" or space_size > A_FEW or space_size == prod(len(values) for _, values in axes)


def show(trials: pd.DataFrame, measured: pd.DataFrame, sweep: pd.Series, tie: set[int]) -> None:
    """Shows the winner of a sweep, or nothing if no winner was measured."""
    kernel = measured[measured["role"] == "kernel"] if len(measured) else measured
    if kernel.empty or kernel.iloc[0]["params"] is None:
        return
    winner = kernel.iloc[0]
    params = {name: winner["params"][name] for name, _ in sweep["axes"] if name in winner["params"]}
    st.markdown(f"#### {plain(headline(winner))}")
    st.markdown(f"The winner is {plain_code(config_text(params))}")
    st.text(" ".join(list_reasons(trials, winner, sweep["ships"], tie)))


def show_checklist(detail: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
    """Shows which rules of the optimisation guide the winner follows; nothing without a stored checklist."""
    lines = read_checklist(detail)
    if not lines:
        return
    st.subheader("Checklist of the optimisation guide", anchor=False)
    st.caption(f"The winner: {count_kept(lines)}. What is not kept comes first.")
    tables.show(
        tabulate_checklist(lines, read_checklist(before or {})),
        key="checklist",
        height="content",
        column_config={"kept": st.column_config.TextColumn(width=ANSWER_PX)},
    )


ANSWERS = ("no", "unknown", "yes", "does not apply")
MARKS = {"yes": "✓ yes", "no": "✗ no"}


def read_checklist(detail: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Returns the checklist lines stored with a measurement; empty without a checklist."""
    lines = detail.get("checklist")
    return [line for line in lines if isinstance(line, Mapping)] if isinstance(lines, list) else []


def tabulate_checklist(lines: Sequence[Mapping[str, str]], before: Sequence[Mapping[str, str]] = ()) -> pd.DataFrame:
    """Returns a table of checklist rules. Rules that the winner does not follow come first."""
    answers = {line["item"]: line["answer"] for line in before}
    rows = []
    for line in sorted(
        lines,
        key=lambda line: ANSWERS.index(line["answer"]) if line["answer"] in ANSWERS else len(ANSWERS),
    ):
        answer = line["answer"]
        row = {"line of the guide": line["item"], "kept": MARKS.get(answer, answer)}
        if before:
            old = answers.get(line["item"])
            row["before"] = "" if old in (None, answer) else MARKS.get(old, old)
        rows.append({**row, "evidence": line["evidence"]})
    return pd.DataFrame(rows)


def count_kept(lines: Sequence[Mapping[str, str]]) -> str:
    """Returns the number of checklist rules that the winner follows, e.g. "11 of 13 lines kept"."""
    answers = [line["answer"] for line in lines if line["answer"] in ("yes", "no")]
    return f"{answers.count('yes')} of {len(answers)} lines kept"


def headline(winner: Mapping[Any, Any] | pd.Series) -> str:
    if pd.isna(winner["ratio"]):
        return f"The fastest config takes {time_text(winner['median_us'])}; no baseline was measured"
    faster = "faster than" if winner["ratio"] > 1 else "slower than"
    low, high = winner["ratio_low"], winner["ratio_high"]
    if not pd.isna(low) and not pd.isna(high) and low <= 1 <= high:
        faster = "as fast as"
    baseline = ratio_to(winner["ratio"], winner["baseline"])
    name = baseline.split(" ", 1)[1]
    return f"The fastest config takes {time_text(winner['median_us'])}: {faster} {name} ({baseline})"


def list_reasons(
    trials: pd.DataFrame, winner: Mapping[Any, Any] | pd.Series, ships: Mapping[str, Any] | None, tie: set[int]
) -> list[str]:
    """Returns sentences that compare the winner with the second fastest config and the default config `ships`."""
    timed = trials.dropna(subset="median_us").sort_values("median_us")
    others = timed[timed["config_id"] != winner["config_id"]]
    sentences = [f"{count_text(len(timed), 'config')} of {len(trials):,} gave a right answer and a time."]
    if (swept_on := winner["detail"].get("last_sweep")) is not None:
        sentences[0] = (
            f"Nothing has changed since the last sweep on {swept_on}: the winner and its ties were timed again."
        )
    if (whole := winner["detail"].get("whole_sweep")) is not None:
        sentences[0] = (
            f"{count_text(whole['timed'], 'config')} of {whole['tried']:,} gave a right answer and a time. "
            "The recording has the winner alone."
        )
    if len(others):
        fastest = timed["median_us"].iloc[0]
        tied = len(tie - {winner["config_id"]})
        sentences.append(
            f"The next one is {_percent(others['median_us'].iloc[0] / fastest - 1)} slower"
            + (f"; {count_text(tied, 'other config')} cannot be told apart from the winner." if tied else ".")
        )
    if ships:
        cost = search_space.regret("", ships, trials, tie)
        if cost.slower is None:
            sentences.append(f"The config that ships has no time here: {cost.why}.")
        elif cost.why or cost.slower == 0:
            sentences.append("The config that ships is as fast as the winner.")
        else:
            sentences.append(f"The config that ships is {_percent(cost.slower)} slower than the winner.")
    if certificate := winner["detail"].get("certificate"):
        sentences.append(describe_certificate(certificate))
    return sentences


def _percent(slower: float) -> str:
    return change_text(slower).removeprefix("+")
