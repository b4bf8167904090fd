"""Shows how the machine code of two cubins differs."""

import pandas as pd
import streamlit as st

from tilewatch.configs import config_text
from tilewatch.dashboard.frames import explanation
from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.dashboard.widgets import tables
from tilewatch.db.page_reads.evidence import CodeDiffRow, CubinRow
from tilewatch.mechanisms.find import write_mechanisms
from tilewatch.text import plain_code, write_change

BEFORE, THIS_RUN, NEXT_BEST = "before", "this run", "next best"


def show(found: Evidence) -> None:
    """Shows how the winner's code differs from the earlier winner's and the second fastest config's code."""
    sides = ((BEFORE, found.winner_before, found.diff_to_before), (NEXT_BEST, found.next_best, found.diff_to_next_best))
    titles = {BEFORE: "Code: before and this run", NEXT_BEST: "Code: the next best config and the winner"}
    for name, other, diff in sides:
        if found.winner is None or other is None:
            continue
        st.subheader(titles[name], anchor=False)
        if name == NEXT_BEST:
            st.markdown(
                f"The next best config is {plain_code(config_text(other.params))}{_slower(other, found.winner)}."
            )
            if (advantage := explanation.find_advantage(found)) is not None:
                st.text(f"Mechanism of the winner's advantage: {write_mechanisms(advantage)}.")
        if diff is None:
            st.caption(why_missing(other, found.winner, found.run.origin))
        else:
            st.text(diff.sentence or "Nothing differs.")
            show_changes(diff, name)


def _slower(other: CubinRow, winner: CubinRow) -> str:
    """Returns words on how much slower another config was in the sweep; empty if a time is missing."""
    if other.median_us is None or winner.median_us is None:
        return ""
    return f": {write_change(other.median_us / winner.median_us - 1)} in the sweep"


def why_missing(other: CubinRow, winner: CubinRow, origin: str) -> str:
    """Returns a sentence on why no diff of two cubins is stored."""
    if other.code_sha256 is not None and other.code_sha256 == winner.code_sha256:
        return "The machine code is identical."
    if origin == "recorded":
        return "Not compared: the cubins of a recorded run are not here."
    return "Not compared yet. An idle compile worker does that, where the cubins are in its store."


def show_changes(diff: CodeDiffRow, name: str) -> None:
    """Shows the changed source lines and the instructions that differ. `name` labels the cubin on the left."""
    left, right = (name, THIS_RUN) if name == BEFORE else (name, "winner")
    changes = tabulate_changes(diff)
    if len(changes):
        tables.show(changes, key=f"changes-{name}")
    instructions = tabulate_instructions(diff, left, right)
    if len(instructions):
        tables.show(instructions, key=f"instructions-{name}")
        st.caption("Machine instructions that one side has more often, deepest loops first.")


def tabulate_changes(diff: CodeDiffRow) -> pd.DataFrame:
    """Returns a table of the source lines whose instructions changed. Edited lines come first."""
    return pd.DataFrame(
        [
            {
                "line": row["line"],
                "does something else": ", ".join(row["edits"]),
                "loop depth": row["loop_depth"],
                "why": "edited" if row["is_cause"] else "follows from another line",
            }
            for row in diff.changes
        ]
    )


def tabulate_instructions(diff: CodeDiffRow, left: str, right: str) -> pd.DataFrame:
    """Returns a table of how often each cubin contains each instruction."""

    def count(times: int, text: str) -> str:
        return f"{times} x {text}" if times else ""

    return pd.DataFrame(
        [
            {
                "line": row["line"],
                "loop depth": row["loop_depth"],
                left: count(row["base"], row["text"]),
                right: count(row["head"], row["text"]),
                "kind": row["kind"],
            }
            for row in diff.instructions
        ]
    )
