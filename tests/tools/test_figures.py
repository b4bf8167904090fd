"""`make figures`: each benchmark that stores figures is run once, and what is old or differs is said."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import bounds
from benchmarks.bounds import Figure, Result
from tools import figures, measurements
from tools.benchmark_runs import Run, read_runs
from tools.figures import choose, list_different, list_old, take

RUNS = {run.name: run for run in read_runs()}
LONGEST_GPU_MINUTES = 25


def test_every_benchmark_with_bounds_has_a_run_and_every_run_a_benchmark() -> None:
    modules = {run.command.split()[0] for run in RUNS.values()}
    no_run = {"library", "neighbours", "story", "tile_table"}
    no_run |= {"gpu.boundary", "gpu.many_toolchains", "gpu.small_changes"}
    """Two compare checkouts or choose problems, two take long on a GPU, night runs neighbours, and two are for
    a kernel's author."""
    assert set(bounds.read_bounds()) - modules == no_run
    assert modules <= set(bounds.read_bounds())
    assert {file.stem for file in bounds.RESULTS.glob("*.json")} - RUNS.keys() <= {"gpu-boundary", "judge-mix"}


def test_what_a_run_measures_is_there() -> None:
    missing = [path for run in RUNS.values() for path in run.measures if not (bounds.ROOT / path).exists()]
    assert missing == []
    assert all(run.measures for run in RUNS.values())


def test_what_needs_a_gpu_is_a_command_of_its_own_that_ends_in_time() -> None:
    chosen = choose(list(RUNS.values()), [], gpu=True)
    assert [run.name for run in chosen] == ["gpu-sweep", "night", "toolchains-planted"]
    assert sum(run.minutes for run in chosen) <= LONGEST_GPU_MINUTES
    assert not any(run.gpu for run in choose(list(RUNS.values()), [], gpu=False))
    assert [run.name for run in choose(list(RUNS.values()), ["night", "api"], gpu=False)] == ["night", "api"]
    with pytest.raises(SystemExit, match="there is no result nigth"):
        choose(list(RUNS.values()), ["nigth"], gpu=False)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit, in which one file is measured."""
    git = ("git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org")
    (tmp_path / "measured.py").write_text("VALUE = 1\n")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "one")):
        subprocess.run((*git, *command), check=True)
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    return tmp_path


RUN = Run("speed", "speed", 1, ("measured.py",))


def store(folder: Path, commit: str) -> None:
    figure = Figure("time", "1 s", "at most 2 s", True)
    bounds.write_result(folder / "results" / "speed.json", Result("x", commit, "2026-11-28", "2 cores", (figure,)))


def test_a_result_is_old_once_what_it_measures_changed(results: Path) -> None:
    head = subprocess.run(["git", "-C", str(results), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert list(list_old([RUN])) == ["speed: it was never taken"]
    store(results, head.stdout.strip()[:10])
    assert list(list_old([RUN])) == []
    assert list(list_old([replace(RUN, measures=("another.py",))])) == []
    (results / "measured.py").write_text("VALUE = 2\n")
    assert list(list_old([RUN])) == [f"speed: measured.py changed since {head.stdout.strip()[:10]}"]
    store(results, "0123456789")
    assert list(list_old([RUN])) == ["speed: measured.py changed since 0123456789"], "a commit that is gone"


def test_a_page_that_differs_from_the_results_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(list_different()) == []
    for name in measurements.HEADS:
        shutil.copy(measurements.FOLDER / name, tmp_path)
    with (tmp_path / "measurements-gpu.md").open("a", encoding="utf-8") as page:
        page.write("| a figure | at most 1 | 0 |\n")
    monkeypatch.setattr(measurements, "FOLDER", tmp_path)
    assert list(list_different()) == ["measurements-gpu.md: it differs from the results"]


def test_each_run_writes_its_result_and_one_that_fails_is_named(
    results: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (results / "benchmarks").mkdir()
    (results / "benchmarks" / "speed.py").write_text("import sys\nprint(sys.argv[1:])\n")
    (results / "benchmarks" / "broken.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(results))
    needy = replace(RUN, name="needy", needs=("TileGym",))
    failed = list(take([RUN, replace(RUN, name="broken", command="broken"), needy], with_advisories=False))
    printed = capfd.readouterr().out
    assert failed == ["broken"]
    assert "['--report-only', '--write', 'results/speed.json']" in printed
    assert "broken: 0 s, exit code 3" in printed
    assert "needy was not run: there is no TileGym here" in printed
