"""Which series the page lists, and which sweep an address names."""

import datetime as dt
from typing import Any

import pandas as pd
import pytest

from tilewatch.dashboard.frames.series_choice import (
    KEY,
    find_name,
    find_newest_run,
    is_drawn,
    join_series,
    list_keys,
    name_sweeps,
    read_key,
    write_submission,
)

NIGHT = {"reason": "nightly", "night": dt.date(2026, 11, 21), "machine": None, "requested_at": None}


def make_series(*problems: str) -> pd.DataFrame:
    rows = [("tilewatch", "gemm", problem, "h200", "H200") for problem in problems]
    return pd.DataFrame(rows, columns=[*KEY, "gpu_name"]).assign(more=1)


def test_the_newest_run_is_on_the_branch_if_any_is() -> None:
    """A forced push removed the last two of three commits."""
    left = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    points = pd.DataFrame(
        [("kernel", 1, None), ("baseline", 1, None), ("kernel", 2, left), ("kernel", 3, left)],
        columns=["role", "run_id", "left_branch_at"],
    )
    assert find_newest_run(points) == 1
    assert find_newest_run(points.iloc[2:]) == 3
    assert find_newest_run(points.iloc[:0]) is None


def test_measured_series_come_first_and_each_series_once() -> None:
    joined = join_series(make_series("b", "a"), make_series("a", "c"))
    assert list(joined.columns) == [*KEY, "gpu_name", "is_measured"]
    assert list(zip(joined["problem"], joined["is_measured"], strict=True)) == [("b", True), ("a", True), ("c", False)]
    assert list(joined.index) == [0, 1, 2]
    assert list_keys(joined)[2] == read_key(joined.iloc[2]) == ("tilewatch", "gemm", "c", "h200")


def test_without_any_series_there_is_an_empty_list_with_its_columns() -> None:
    nothing = join_series(make_series(), make_series())
    assert (len(nothing), list(nothing.columns)) == (0, [*KEY, "gpu_name", "is_measured"])
    assert list(join_series(make_series(), make_series("a"))["is_measured"]) == [False]


@pytest.mark.parametrize(
    ("key", "is_shown"),
    [
        (("tilewatch", "gemm", "a", "h200"), True),
        (("tilewatch (branch wider)", "gemm", "a", "h200"), True),
        (("tilewatch", "gemm", "a", "h100"), False),
        (("other", "gemm", "a", "h200"), False),
    ],
)
def test_a_branch_is_drawn_beside_its_main_line(key: tuple[str, str, str, str], is_shown: bool) -> None:
    assert is_drawn(key, [("tilewatch", "gemm", "b", "h200"), ("tilewatch", "gemm", "a", "h200")]) is is_shown
    assert is_drawn(key, [key])
    assert not is_drawn(("tilewatch", *key[1:]), [("tilewatch (branch wider)", *key[1:])])


def make_sweep(sha: str, **changes: Any) -> dict[str, Any]:
    return {"sha": sha * 20, "subject": "Tile it", **NIGHT, **changes}


def test_a_sweep_is_named_by_commit_and_submission_and_the_newer_of_two_is_meant() -> None:
    earlier = make_sweep("ab", night=dt.date(2026, 11, 20))
    named = name_sweeps(pd.DataFrame([make_sweep("ab"), make_sweep("ab"), earlier, make_sweep("cd")]))
    newest, older, other = named
    assert named == {newest: 0, older: 2, other: 3}
    assert newest.endswith("Tile it, nightly of 2026-11-21")
    commit = newest.partition(" ")[0]
    assert find_name(named, commit, "") == newest
    assert find_name(named, commit, "nightly of 2026-11-20") == older
    assert find_name(named, commit, "nightly of 2026-11-01") == newest, "there is none of that submission"
    assert find_name(named, "ef", "nightly of 2026-11-20") is None


def test_a_submission_is_named_by_its_reason() -> None:
    at = dt.datetime(2026, 11, 21, 3, tzinfo=dt.UTC)
    assert write_submission(make_sweep("ab", reason="recorded", machine="node-a")) == "recorded on node-a"
    assert write_submission(make_sweep("ab", reason="nightly", night=None, requested_at=at)).startswith(
        "submitted 2026"
    )
    assert write_submission(make_sweep("ab", reason="sweep", requested_at=at)).startswith("submitted 2026")
