"""Stored results and the page that is made of them: every figure is what a benchmark printed, beside its bound."""

import argparse
import importlib.util
import re
from pathlib import Path

import pytest

from benchmarks import bounds
from benchmarks.bounds import Figure, Result
from tools import measurements

RESULTS = bounds.read_results()
FIGURES = [figure for result in RESULTS.values() for figure in result.figures]


def test_the_pages_are_made_of_the_stored_results() -> None:
    for name, page in measurements.write_pages(RESULTS.values()).items():
        stored = (measurements.FOLDER / name).read_text(encoding="utf-8")
        assert stored == page, "write it again: python -m tools.measurements"


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_names_its_command_its_commit_and_its_day(name: str) -> None:
    result = RESULTS[name]
    module = result.command.removeprefix("python -m ").split(" ")[0]
    assert importlib.util.find_spec(module) is not None, module
    assert re.fullmatch(r"[0-9a-f]{7,10}", result.commit), "taken with changes that are in no commit"
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", result.date)
    assert " cores, " in result.machine
    assert result.figures


@pytest.mark.parametrize("name", RESULTS)
def test_a_stored_figure_has_the_bound_of_its_benchmark_and_is_met_only_with_cases_enough(name: str) -> None:
    module = RESULTS[name].command.removeprefix("python -m ").split(" ")[0]
    section = module.removeprefix("benchmarks.").removeprefix("tests.").removesuffix(".run")
    for figure in RESULTS[name].figures:
        bound = bounds.find_bound(figure.what)
        assert bound in bounds.read_bounds()[section], figure.what
        assert figure.is_met is not True or figure.cases >= bound.cases, figure.what
        if bound.limit != "asked":
            limits = bound.limit if isinstance(bound.limit, list) else [bound.limit]
            texts = [str(each) if bound.kind == "exactly" else f"{each:,g}" for each in limits]
            assert all(text in figure.bound for text in texts), figure.what
            assert figure.bound.startswith(bound.kind.replace("_", " ").replace("between", "")), figure.what


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.what)
def test_a_figure_is_met_as_its_value_and_bound_say(figure: Figure) -> None:
    assert figure.is_met is not None
    kind, _, rest = figure.bound.partition(" ")
    if figure.cases < (bounds.find_bound(figure.what) or bounds.Bound("", "", 0, 0, "")).cases:
        assert not figure.is_met
        return
    if kind == "exactly":
        assert figure.is_met == (figure.value == rest)
    if kind == "at":
        value, limit = (measurements.read_number(text, figure.bound) for text in (figure.value, figure.bound))
        assert figure.is_met == (value <= limit if rest.startswith("most") else value >= limit)


def test_a_run_stores_its_figures_with_a_bound_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--worlds", "3", "--write", "x.json", "--report-only"])
    figures = [bounds.at_most("a claim", 8, 50, " ms"), Figure("time", "7 s"), bounds.exactly("lost", 1, 0)]
    bounds.report(figures, write=tmp_path / "x.json")
    stored = bounds.read_result(tmp_path / "x.json")
    assert stored.figures == (figures[0], figures[2])
    assert stored.command.endswith(" --worlds 3")
    assert stored.commit == bounds.find_commit()
    assert "1 of 2 bounds are missed" in capsys.readouterr().out


def test_a_place_without_a_folder_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    bounds.add_options(parser)
    assert parser.parse_args(["--write", str(tmp_path / "x.json")]).write == tmp_path / "x.json"
    with pytest.raises(SystemExit):
        parser.parse_args(["--write", str(tmp_path / "gone" / "x.json")])
    assert f"there is no folder {tmp_path / 'gone'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bound", "values", "worst"),
    [
        ("at most 100 ms", ("9.8 ms", "32.8 ms", "1.0 ms"), "32.8 ms"),
        ("at least 40,000", ("79,282", "40,083"), "40,083"),
        ("at most 0.5%", ("1 of 1000 (0.1%)", "2 of 200 (1.0%)"), "2 of 200 (1.0%)"),
        ("exactly 0", ("0", "3", "0"), "3"),
    ],
)
def test_the_row_of_several_figures_shows_the_worst(bound: str, values: tuple[str, ...], worst: str) -> None:
    figures = [Figure(f"{number}: p95", value, bound, value != "3") for number, value in enumerate(values)]
    assert measurements.find_worst(figures).value == worst


def test_a_missed_bound_is_bold_and_other_bounds_have_rows_of_their_own() -> None:
    figures = (
        Figure("query: series: p95", "9 ms", "at most 100 ms", True),
        Figure("query: trials: p95", "120 ms", "at most 100 ms", False),
        Figure("20 people: p95", "1 s", "at most 3 s", True),
    )
    result = Result("python -m benchmarks.x", "c831093279", "2026-11-24", "2 cores, no GPU", figures)
    assert measurements.write_pages([result])["measurements.md"].endswith(
        "| **x** | 2 cores | 2026-11-24, c8310932 |\n"
        "| query: trials: p95 (of 2) | at most 100 ms | **120 ms** |\n| 20 people: p95 | at most 3 s | 1 s |\n"
    )
