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
from tilewatch.db.page_reads import series, static_facts, submissions
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

SPAN, GRAPH = "double span", "double graph"
LONGER = {"double": 1.0, SPAN: 1.2, GRAPH: 1.1}
"""The median of each series, as a multiple of the kernel's time."""

ROUNDS_OF_GRAPH = 16
"""Rounds of a graph, which are fewer than the 40 of times and spans, with the same median."""

Plant = Callable[[str], None]


@pytest.fixture
def watched(tmp_path: Path, database_url: str, broker_url: str, known_cubins: str) -> Settings:
    return settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url, known_cubins)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Makes all code equally fast, with longer spans; `plant` widens the gaps of a commit by 3 % of its span, but not
    those of its graph."""
    wider: set[str] = set()
    measure, replay = SimulatedGpu.measure, SimulatedGpu.replay

    def measure_span(*given: Any, **named: Any) -> RunResult:
        wide = 1.03 if given[1].facts.sha in wider else 1.0
        run = measure(*given, **named)
        ours = next(each for each in run.measurements if each.role == "kernel")
        return run.note(
            span_us=[wide * LONGER[SPAN] * time for time in ours.samples_us],
            graph_us=[LONGER[GRAPH] * time for time in sorted(ours.samples_us)[12:-12]],
        )

    def replay_span(*given: Any, **named: Any) -> ReplayResult:
        question, result = given[1].question, replay(*given, **named)
        sides = (question.base, question.head)
        factors = (1.03 if question.kernel == SPAN and each.sha in wider else 1.0 for each in sides)
        base_us, head_us = (
            tuple(LONGER[question.kernel] * factor * time for time in times)
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
    assert found["double", git_history.ADD] == found[GRAPH, git_history.ADD] == {"unchanged"}
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
    assert [found[kernel, git_history.ADD] for kernel in LONGER] == [{"unchanged"}] * 3


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
        assert [sweep.kernel for sweep, *_ in runs] == ["double", GRAPH, SPAN] * 2
        for place, (sweep, _, measured, trial) in enumerate(runs):
            of_time = runs[place - place % 3]
            assert measured.median_us == pytest.approx(LONGER[sweep.kernel] * of_time[2].median_us)
            assert trial.compilation_id == of_time[3].compilation_id
            assert measured.detail["rounds"] == (ROUNDS_OF_GRAPH if sweep.kernel == GRAPH else simulated.ROUNDS)
            if sweep.kernel != "double":
                assert opened.scalar(select(func.count()).where(Trial.sweep_id == sweep.id)) == 1
                assert (trial.median_us, measured.ratio) == (measured.median_us, None)
        assert {row.kernel for row in series.list_series(opened)} == set(LONGER)
        assert {row.kernel for row in static_facts.list_spaces(opened)} == {"double"}
        (submitted,) = submissions.list_submissions(opened)
        assert (submitted.sweeps, submitted.runs) == (2, 2)


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
        assert import_file(elsewhere, file).sentence.startswith("imported 1 run ")
        do_all_jobs(replace(context, database_url=elsewhere))
        with session(elsewhere) as opened:
            assert set(opened.scalars(select(Sweep.kernel))) == {"double", SPAN}
