"""Data frames for notebooks: what docs/reference/data.md says works as it is printed, and nothing is written."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import text
from sqlalchemy.exc import InternalError

from tests.dashboard.fixtures.small_database import KERNEL, OTHER_PROBLEM, PROBLEM, REPOSITORY, SHAS
from tilewatch import frames
from tilewatch.db.page_reads.series import UnknownName
from tilewatch.db.session import reading_session, session
from tilewatch.worker.settings import NotRunning

DOCUMENT = (Path(__file__).parents[1] / "docs" / "reference" / "data.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_three_lines_of_the_document_give_a_series(filled_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", filled_url)
    *first, last = (line for line in blocks("python")[0].splitlines() if line)
    assert len(first) == 2
    names: dict[str, object] = {}
    exec("\n".join((*first, f"found = {last}")), names)  # noqa: S102 - the document's own lines
    found = names["found"]
    assert isinstance(found, pd.DataFrame)
    assert set(found["implementation"]) == {KERNEL, "deepgemm", "cublaslt"}
    kernel = found[(found["role"] == "kernel") & (found["problem"] == PROBLEM) & (found["origin"] == "measured")]
    assert list(kernel["sha"]) == list(SHAS)
    assert kernel.iloc[2]["verdict"] == "regression"
    assert kernel.iloc[2]["median_us"] / kernel.iloc[1]["median_us"] == pytest.approx(1.06 / 0.97, rel=0.01)


def test_the_plot_of_the_document_is_drawn(filled_url: str) -> None:
    *first, last = blocks("python")[1].strip().splitlines()
    names: dict[str, Any] = {"db": frames.open(filled_url)}
    exec("\n".join((*first, f"figure = {last}")), names)  # noqa: S102 - the document's own lines
    assert [len(trace.y) for trace in names["figure"].data] == [5]


def test_the_query_of_the_document_runs(filled_url: str) -> None:
    query = next(block for block in blocks("sql") if "select" in block)
    with reading_session(filled_url) as opened:
        rows = opened.execute(text(query)).all()
    assert {(row.problem, row.sha) for row in rows} == {(PROBLEM, SHAS[2]), (OTHER_PROBLEM, SHAS[2])}


def test_a_filter_leaves_the_others_out(filled_url: str) -> None:
    db = frames.open(filled_url)
    assert set(db.series(problem=OTHER_PROBLEM)["problem"]) == {OTHER_PROBLEM}
    assert set(db.trials(gpu_model="h200")["gpu_model"]) == {"h200"}
    assert set(db.verdicts(kernel=KERNEL)["kernel"]) == {KERNEL}
    empty = db.series(gpu_model="h200", problem=OTHER_PROBLEM, kernel=KERNEL, repository=REPOSITORY).iloc[:0]
    assert {"repository", "kernel", "problem", "gpu_model"} <= set(empty.columns)


def test_a_name_that_no_sweep_has_is_refused_with_the_nearest(filled_url: str) -> None:
    """A script that asks for a kernel that was renamed would find nothing wrong, for ever."""
    db = frames.open(filled_url)
    for ask in (db.series, db.trials, db.verdicts):
        with pytest.raises(UnknownName, match=f"no sweep has the kernel '{KERNEL}x'; the nearest is '{KERNEL}'"):
            ask(f"{KERNEL}x")
        with pytest.raises(UnknownName, match="no sweep has the repository 'x'"):
            ask(repository="x")


def test_trials_are_of_the_newest_sweep_or_of_a_commit(filled_url: str) -> None:
    db = frames.open(filled_url)
    newest = db.trials(problem=PROBLEM, gpu_model="h200")
    assert set(newest["sha"]) == {SHAS[2]}
    assert newest["median_us"].dropna().is_monotonic_increasing
    assert {"param.tile_m", "param.num_ctas", "registers", "outcome"} <= set(newest.columns)
    older = db.trials(problem=PROBLEM, gpu_model="h200", commit=SHAS[0][:8])
    assert (set(older["sha"]), older["sweep_id"].nunique()) == ({SHAS[0]}, 1)
    nothing = db.trials(commit="ffff")
    assert (len(nothing), set(nothing.columns) >= {"repository", "kernel", "sha", "sweep_id"}) == (0, True)


def test_verdicts_are_the_newest_first(filled_url: str) -> None:
    found = frames.open(filled_url).verdicts(repository=REPOSITORY)
    assert list(found["run_id"]) == sorted(found["run_id"], reverse=True)
    assert found.iloc[0][["verdict", "change", "sha"]].tolist() == ["regression", 0.093, SHAS[2]]


def test_no_frame_and_no_reader_writes(filled_url: str) -> None:
    with (
        pytest.raises(InternalError, match="cannot execute DELETE in a read-only transaction"),
        reading_session(filled_url) as opened,
    ):
        opened.execute(text("delete from verdicts"))
    with session(filled_url) as opened:  # the next transaction of the same engine may write again
        opened.execute(text("delete from verdicts where false"))


def test_a_password_is_not_shown_by_a_notebook(filled_url: str) -> None:
    assert "postgresql" not in repr(frames.open(filled_url))


def test_without_a_database_the_sentence_says_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWATCH_DATABASE_URL", "TILEWATCH_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    with pytest.raises(NotRunning, match="start it with `make up`"):
        frames.open()
