"""The text of a pull request for a tuned table: names of the repository are shown and do nothing."""

import datetime as dt
import json
import re
from dataclasses import replace

import pytest

from tilewatch.db.worker_reads.tuned_rows import ConfigReplay, NewestWinner
from tilewatch.text import COMMENT_CHARACTERS
from tilewatch.worker.detection.replay_evidence import Estimate
from tilewatch.worker.notify.table_text import PullRequestText, write
from tilewatch.worker.transfer.stale_tables import ShippedEntry, ShippedTables, Sweeps, TableState

HOSTILE = "a|b `x` @all <img src=x> [a](http://x.example)\n# big"
WINNER = NewestWinner(
    repository="kernels",
    kernel="gemm",
    problem="64",
    gpu_model="h200",
    gpu_name="NVIDIA H200",
    arch="sm_90",
    sha="ab" * 20,
    source_sha256="cd" * 32,
    toolchain={"cuda-tile": "1.7.0"},
    run_id=7,
    sweep_id=3,
    config_id=1,
    config={"tile": 2},
    time_us=9.0,
    tie=(1, 4),
    certificate=None,
    finished_at=dt.datetime(2026, 11, 28, tzinfo=dt.UTC),
    baseline=None,
    ratio=None,
    error=None,
)
REPLAY = ConfigReplay(7, {"tile": 1}, {"tile": 2}, (10.0,), (9.0,), "ab" * 20, "cuda-tile 1.7.0")
STATE = TableState(
    ("gemm", "h200"), 1, (ShippedEntry("64", {"tile": 1}, WINNER, REPLAY, Estimate(-0.1, 0.01, 8)),), (), ()
)
SWEEPS = Sweeps([WINNER], {}, {1: {"tile": 2}, 4: {"tile": 3}}, [REPLAY])


def test_a_shipped_config_may_have_each_value_that_a_watched_operator_s_has() -> None:
    """A table with texts or fractions was taken for one without rows, so nothing ever mended it."""
    configs = [{"tile": 64, "swizzle": True, "epilogue": "silu", "scale": 0.5, "mask": None}, {}]
    wrong = [{"tile": [64]}, {"scale": float("nan")}, {"tile": {}}, {"epilogue": "\0"}, {"epilogue": "\ud800"}, 7]
    rows = [{"problem": "64", "config": config} for config in (*configs, *wrong)]
    tables = ShippedTables("tuned.json", "", {"tables": [{"kernel": "k", "gpu_model": "h200", "rows": rows}]})
    assert [row["config"] for _, _, row in tables.list_rows()] == configs


def make_tables(problem: str = "64", indent: int = 1) -> ShippedTables:
    row = {"problem": problem, "config": {"tile": 1}, "carried_regret": None}
    content = {"format": 1, "tables": [{"kernel": "gemm", "gpu_model": "h200", "commit": "ab" * 20, "rows": [row]}]}
    return ShippedTables("src/tuned.json", json.dumps(content, indent=indent) + "\n", content)


def write_text(state: TableState = STATE, problem: str = "64", indent: int = 1) -> PullRequestText:
    return write(make_tables(problem, indent), state, SWEEPS, "https://tilewatch.example.org")


def test_the_change_of_the_time_has_its_interval_and_its_launches() -> None:
    lines = write_text().body.splitlines()
    row = "| `64` | `tile=1` | `tile=2` | -9.5 % | -11.3 % to -7.7 % | 8 |"
    head, line = lines[lines.index(row) - 2 : lines.index(row)]
    assert head == "| problem | shipped config | new config | change of the time | 95 % interval | launches |"
    assert line == "| --- | --- | --- | --- | --- | --- |", "else Markdown shows no table"


def test_problems_without_an_entry_are_listed() -> None:
    body = write_text(replace(STATE, uncovered=("128", "256"))).body
    assert "measures 2 problems of this kernel on this GPU for which the table has no config" in body
    assert "- `128`\n- `256`" in body
    assert "does not cover" not in write_text().body


def test_names_of_the_repository_neither_mention_nor_link_nor_break_the_table() -> None:
    entry = replace(STATE.stale[0], problem=HOSTILE, winner=replace(WINNER, gpu_name=HOSTILE))
    text = write_text(replace(STATE, key=(HOSTILE, "h200"), stale=(entry,), uncovered=(HOSTILE,)))
    outside = "".join(part for line in text.body.splitlines() for part in line.split("`")[::2])
    outside = re.sub(r"\\.", "", outside)  # what is escaped
    assert "@all" not in outside
    assert "<img" not in outside
    assert "](http://x" not in outside
    assert "# big" not in [line[:5] for line in text.body.splitlines()]
    assert "@all" not in text.title
    (row,) = (line for line in text.body.splitlines() if line.startswith("| `a"))
    assert row.replace("\\|", "").count("|") == 7, "six cells"


def test_a_text_is_as_long_as_forges_take() -> None:
    state = replace(STATE, uncovered=tuple(f"{number}x{'9' * 400}" for number in range(300)))
    body = write_text(state).body
    assert len(body) <= COMMENT_CHARACTERS
    assert body.endswith("more")


@pytest.mark.parametrize("indent", [1, 2, 4])
def test_the_layout_of_the_file_stays(indent: int) -> None:
    old, new = make_tables(indent=indent).text, write_text(indent=indent).content
    assert old.splitlines()[:7] == new.splitlines()[:7]


def test_a_winner_that_is_tied_with_the_replayed_config_is_listed_as_tied() -> None:
    replay = replace(REPLAY, head={"tile": 3})
    (row,) = json.loads(write_text(replace(STATE, stale=(replace(STATE.stale[0], replay=replay),))).content)["tables"][
        0
    ]["rows"]
    assert (row["config"], row["ties"]) == ({"tile": 3}, [{"tile": 2}])
