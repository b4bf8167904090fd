"""Cubins over commits and between two, from made frames."""

import datetime as dt
from typing import Any

import pandas as pd

from tilewatch.dashboard.charts import static_facts

COUNTED = {
    "sha": "a" * 40,
    "subject": "Load <B> through TMA",
    "committed_at": dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC),
    "compiler": "tileiras 13.4",
    "settled": 10,
    "compiled": 9,
    "timeouts": 1,
    "errors": 0,
    "spilling": 2,
    "tma": 9,
    "tensor_core": 9,
}
SAME: dict[str, Any] = {
    "params": {"tile_m": 64},
    "status_before": "ok",
    "status_after": "ok",
    "failure": None,
    "registers_before": 128,
    "registers_after": 128,
    "stack_before": 0,
    "stack_after": 0,
    "tma_before": 2,
    "tma_after": 2,
    "tensor_core_before": 1,
    "tensor_core_after": 1,
    "code_bytes_before": 900,
    "code_bytes_after": 900,
}
GONE = {
    "status_after": "error",
    "failure": "error: no\nnote",
    **dict.fromkeys(("registers_after", "stack_after", "tma_after", "tensor_core_after", "code_bytes_after")),
}


def test_a_sweep_that_still_compiles_does_not_look_like_a_loss() -> None:
    unfinished = {**COUNTED, "sha": "b" * 40, "settled": 5, "compiled": 4}
    figure = static_facts.over_commits(pd.DataFrame([COUNTED, unfinished]))
    compiled = next(trace for trace in figure.data if trace.name == "compiled")
    assert list(compiled.y) == [90.0, 80.0]
    assert compiled.customdata[0][2] == "Load &lt;B&gt; through TMA"
    assert not figure.layout.shapes


def test_another_compiler_is_a_line_between_the_commits() -> None:
    newer = {**COUNTED, "sha": "b" * 40, "compiler": "tileiras 13.5"}
    assert len(static_facts.over_commits(pd.DataFrame([COUNTED, newer])).layout.shapes) == 1


def test_what_happened_to_a_config_is_told_by_kind() -> None:
    spilled = {**SAME, "stack_after": 96, "tma_after": 0}
    kinds = static_facts.by_kind(pd.DataFrame([{**SAME, **GONE}, spilled, {**SAME, "tensor_core_after": 0}]))
    assert {kind: len(rows) for kind, rows in kinds.items()} == {
        "Stopped compiling": 1,
        "Lost Tensor Core code": 1,
        "Lost TMA loads": 1,
        "Spills appeared or grew": 1,
    }
    assert next(iter(kinds)) == "Stopped compiling"


def test_the_table_shows_only_the_facts_that_moved() -> None:
    table = static_facts.table(pd.DataFrame([{**SAME, "stack_after": 96}]))
    assert table.to_dict("records") == [{"config": "tile_m=64", "stack bytes": "0 → 96"}]
    gone = static_facts.table(pd.DataFrame([{**SAME, **GONE}])).iloc[0]
    assert (gone["compiled"], gone["failure"]) == ("ok → error", "error: no")
