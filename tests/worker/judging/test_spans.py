"""The spans of an operator's launches: a series of their own, judged, replayed and exported like times."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from tests.conftest import NewDatabase
from tests.worker.fixtures import git_history, run_result
from tests.worker.fixtures.made_run import make_run
from tests.worker.fixtures.nights import do_nights
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db.models import Commit, Measurement, RegressionSeries, Replay, Run, Sweep, Trial, Verdict
from tilewatch.db.page_reads import series
from tilewatch.db.session import session
from tilewatch.db.worker_reads.export import ExportFilter
from tilewatch.kernels.measuring.replay import ReplayResult
from tilewatch.kernels.results import RunResult
from tilewatch.worker.context import Context
from tilewatch.worker.gpu import simulated
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.settings import Settings
from tilewatch.worker.transfer.exporting import export_file
from tilewatch.worker.transfer.importing import import_file

SPAN = "double span"
Plant = Callable[[str], None]


@pytest.fixture
def watched(tmp_path: Path, database_url: str, broker_url: str, known_cubins: str) -> Settings:
    return settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url, known_cubins)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Makes all code equally fast, with spans 20 % longer; `plant` widens the gaps of a commit by 3 % of its span."""
    wider: set[str] = set()
    measure, replay = SimulatedGpu.measure, SimulatedGpu.replay

    def measure_span(*given: Any, **named: Any) -> RunResult:
        factor = 1.2 * (1.03 if given[1].facts.sha in wider else 1.0)
        run = measure(*given, **named)
        ours = next(each for each in run.measurements if each.role == "kernel")
        return run.note(span_us=[factor * time for time in ours.samples_us], parts_us={"1. double": 1.0})

    def replay_span(*given: Any, **named: Any) -> ReplayResult:
        question, result = given[1].question, replay(*given, **named)
        if question.kernel != SPAN:
            return result
        factors = (1.03 if each.sha in wider else 1.0 for each in (question.base, question.head))
        base_us, head_us = (
            tuple(1.2 * factor * time for time in times)
            for factor, times in zip(factors, (result.base_us, result.head_us), strict=True)
        )
        return replace(result, base_us=base_us, head_us=head_us)

    monkeypatch.setattr(simulated, "true_us", lambda *_: 100.0)
    monkeypatch.setattr(simulated, "WRONG", 0.0)
    monkeypatch.setattr(simulated, "CRASHED", 0.0)
    monkeypatch.setattr(SimulatedGpu, "measure", measure_span)
    monkeypatch.setattr(SimulatedGpu, "replay", replay_span)
    return wider.add


def read_verdicts(context: Context) -> dict[tuple[str, str], set[str]]:
    """The verdicts by kernel and the commit's subject."""
    found: dict[tuple[str, str], set[str]] = {}
    query = (
        select(Sweep.kernel, Commit.subject, Verdict.verdict)
        .join(Run, Run.sweep_id == Sweep.id)
        .join(Verdict, Verdict.run_id == Run.id)
        .join(Commit, Commit.id == Sweep.commit_id)
    )
    with session(context.database_url) as opened:
        for kernel, subject, verdict in opened.execute(query):
            found.setdefault((kernel, subject), set()).add(verdict)
    return found


def test_a_gap_of_3_percent_is_found_in_the_span_alone(watched: Settings, tmp_path: Path, plant: Plant) -> None:
    shas = git_history.make(tmp_path / "watched", git_history.ADD, git_history.WORDS)
    plant(shas[git_history.ADD])
    plant(shas[git_history.WORDS])
    context = do_nights(watched, *shas.values())
    found = read_verdicts(context)
    assert found[SPAN, git_history.ADD] == {"regression"}
    assert found["double", git_history.ADD] == {"unchanged"}
    assert found[SPAN, git_history.WORDS] == {"unchanged"}, "its launches are those of the commit before"
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(RegressionSeries.kernel))) == {SPAN}
        assert opened.scalars(select(RegressionSeries.size)).all() == pytest.approx([0.03] * 2, abs=0.004)
        assert SPAN in set(opened.scalars(select(Replay.kernel)))


def test_equal_spans_of_other_code_get_no_verdict(watched: Settings, tmp_path: Path, plant: Plant) -> None:
    assert plant
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    context = do_nights(watched, *shas.values())
    found = read_verdicts(context)
    assert {found[kernel, git_history.ADD] == {"unchanged"} for kernel in ("double", SPAN)} == {True}, found


def test_a_span_is_stored_once_with_the_winner_s_code(watched: Settings, tmp_path: Path, plant: Plant) -> None:
    assert plant
    shas = git_history.make(tmp_path / "watched")
    context = do_nights(watched, *shas.values())
    with session(context.database_url) as opened:
        runs = opened.execute(
            select(Sweep, Run, Measurement, Trial)
            .join(Run, Run.sweep_id == Sweep.id)
            .join(Measurement, (Measurement.run_id == Run.id) & (Measurement.role == "kernel"))
            .join(Trial, (Trial.sweep_id == Sweep.id) & (Trial.config_id == Measurement.config_id))
            .order_by(Sweep.problem, Sweep.kernel)
        ).all()
        assert [sweep.kernel for sweep, *_ in runs] == ["double", SPAN] * 2
        for of_time, of_span in zip(runs[::2], runs[1::2], strict=True):
            assert of_span[2].median_us == pytest.approx(1.2 * of_time[2].median_us)
            assert (of_span[3].compilation_id, of_span[2].ratio) == (of_time[3].compilation_id, None)
            trials = select(func.count()).where(Trial.sweep_id == of_span[0].id)
            assert opened.scalar(trials) == 1
        assert {row.kernel for row in series.list_series(opened)} == {"double", SPAN}


def test_spans_travel_with_a_recording(
    watched: Settings, tmp_path: Path, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_result.result
    monkeypatch.setattr(run_result, "result", lambda **how: result(**how).note(span_us=[120.0] * 20))
    git_history.make(tmp_path / "watched")
    context = Context.of(watched)
    make_run(watched, context, functools.partial(do_all_jobs, context))
    file = tmp_path / "h200.jsonl.gz"
    export_file(context.database_url, file, ExportFilter())
    with new_database() as elsewhere:
        assert import_file(elsewhere, file).sentence.startswith("imported 1 runs")
        do_all_jobs(replace(context, database_url=elsewhere))
        with session(elsewhere) as opened:
            assert set(opened.scalars(select(Sweep.kernel))) == {"double", SPAN}
