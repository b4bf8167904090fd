"""Figures beside their bounds: what is met, what is missed, and the exit code that says so."""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import bounds
from benchmarks.bounds import Figure

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("figure", "is_met"),
    [
        (bounds.at_most("time", 5.0, 5.0, " s"), True),
        (bounds.at_most("time", 5.01, 5.0, " s"), False),
        (bounds.at_least("rate", 40_000, 40_000), True),
        (bounds.at_least("rate", 39_999, 40_000), False),
        (bounds.at_most("nothing was timed", float("nan"), 5.0), False),
        (bounds.at_least("nothing was timed", float("nan"), 5.0), False),
        (bounds.exactly("lost", 0, 0), True),
        (bounds.exactly("lost", 1, 0), False),
        (bounds.not_measured("pages", "no browser"), False),
    ],
)
def test_a_bound_holds_up_to_its_value_and_not_beyond(figure: Figure, is_met: bool) -> None:
    assert figure.is_met is is_met


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (bounds.at_least("share", 0.8492, 0.85, digits=2), "0.849"),
        (bounds.at_least("share", 0.8502, 0.85, digits=2), "0.85"),
        (bounds.at_most("time", 5.004, 5.0, " s"), "5.004 s"),
        (bounds.at_most("time", 5.6, 5.0, " s"), "6 s"),
    ],
)
def test_a_value_that_misses_its_bound_does_not_read_like_it(figure: Figure, shown: str) -> None:
    assert figure.value == shown


BOUND = bounds.Bound("open* of a page", "at_most", 2.5, 5, "openings", " s", 1)


@pytest.fixture
def one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "read_bounds", lambda: {"dashboard": (BOUND,)})


@pytest.mark.usefixtures("one_bound")
def test_a_figure_is_measured_against_the_bound_of_its_name() -> None:
    assert bounds.measure("opening of a page", 2.5, cases=5) == Figure(
        "opening of a page", "2.5 s", "at most 2.5 s", True, cases=5
    )
    assert bounds.measure("opening of a page", 2.51, cases=5, text="2.51 s (worst 4)").is_met is False
    with pytest.raises(KeyError, match="'a page' has no bound"):
        bounds.measure("a page", 1.0, cases=5)


@pytest.mark.usefixtures("one_bound")
@pytest.mark.parametrize(("cases", "code"), [(5, 0), (4, 1)])
def test_a_figure_of_fewer_cases_than_its_bound_asks_for_misses_it(
    cases: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [bounds.measure("opening of a page", 1.0, cases=cases)]
    assert bounds.report(figures, write=tmp_path / "x.json") == code
    assert bounds.read_result(tmp_path / "x.json").figures[0].is_met == (code == 0)
    assert ("1.0 s of 4 cases" in capsys.readouterr().out) == (code == 1)
    assert bounds.report(figures, may_be_few=True) == 0


@pytest.mark.parametrize(
    ("kind", "limit", "met", "missed", "text"),
    [
        ("at_most", 5, 5, 5.1, "at most 5 s"),
        ("at_least", 5, 5, 4.9, "at least 5 s"),
        ("exactly", 5, 5, 6, "exactly 5"),
        ("within", 2, 2.0, 2.1, "within 2 s"),
        ("between", [93, 98], 93, 92.9, "93 s to 98 s"),
        ("between", [93, 98], 98, 98.1, "93 s to 98 s"),
        ("at_most", "asked", 7, 8, "at most 7 s"),
        ("exactly", "asked", 7, 6, "exactly 7"),
    ],
)
def test_a_bound_of_each_kind_holds_up_to_its_limit(
    kind: str, limit: object, met: float, missed: float, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = bounds.Bound("x", kind, limit, 1, "cases", " s", 1)
    monkeypatch.setattr(bounds, "read_bounds", lambda: {"any": (bound,)})
    assert bounds.measure("x", met, cases=1, wanted=7).is_met is True
    assert bounds.measure("x", missed, cases=1, wanted=7).is_met is False
    assert bounds.measure("x", met, cases=1, wanted=7).bound == text


def test_each_bound_has_a_kind_a_number_of_cases_and_a_population() -> None:
    every = [bound for rows in bounds.read_bounds().values() for bound in rows]
    assert len(every) > 150
    assert [bound.name for bound in every if bound.cases < 1 or not bound.of] == []
    assert {bound.kind for bound in every} == set(bounds.KINDS)


def test_a_figure_is_printed_beside_its_bound_in_its_unit() -> None:
    line = bounds.format_figure(bounds.at_least("trials stored", 38_000.4, 40_000, " a second"))
    assert " ".join(line.split()) == "MISSED 38,000 a second at least 40,000 a second trials stored"
    assert "1.283" in bounds.format_figure(bounds.at_most("night", 1.2834, 1.2, digits=3))


def test_one_missed_bound_makes_the_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [bounds.at_most("first", 1.0, 2.0), bounds.at_most("second", 3.0, 2.0), Figure("third", "7")]
    assert bounds.report(figures) == 1
    printed = capsys.readouterr().out
    assert "1 of 2 bounds are missed:\n  second: 3, must be at most 2" in printed
    assert bounds.report([figures[0], figures[2]]) == 0
    assert "all 1 bounds are met" in capsys.readouterr().out


def test_report_only_prints_the_same_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    bounds.add_options(parser)
    missed = [bounds.at_most("time", 3.0, 2.0)]
    assert bounds.report(missed, report_only=parser.parse_args(["--report-only"]).report_only) == 0
    assert "1 of 1 bounds are missed" in capsys.readouterr().out
    assert bounds.report(missed, report_only=parser.parse_args([]).report_only) == 1


def test_a_benchmark_that_measured_nothing_has_not_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert bounds.report([]) == 1
    assert bounds.report([Figure("without a bound", "7")]) == 0
    assert "no figure has a bound" in capsys.readouterr().out


def test_figures_are_printed_as_they_come_under_the_commit_and_the_load(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def measure() -> Iterator[Figure]:
        printed.append(capsys.readouterr().out)
        yield Figure("first", "1")
        printed.append(capsys.readouterr().out)

    bounds.report(measure())
    assert printed[0].startswith("commit ")
    assert "cores, load " in printed[0]
    assert printed[1].split() == ["1", "first"]


def test_every_benchmark_ends_with_the_exit_code_of_its_bounds() -> None:
    """Each module that is a command passes what `bounds.report` returns to the shell: --report-only and --write too."""
    commands = {
        str(file.relative_to(ROOT)): file.read_text()
        for file in sorted((ROOT / "benchmarks").rglob("*.py"))
        if '__name__ == "__main__"' in file.read_text()
    }
    no_meters = {"benchmarks/gpu/launch.py", "benchmarks/gpu/peer.py", "benchmarks/gpu/boundary_side.py"}
    no_meters |= {"benchmarks/watch_coverage/record.py"}
    """Helpers that other benchmarks start."""
    assert no_meters < commands.keys()
    for name in commands.keys() - no_meters:
        ends = [
            node
            for node in ast.walk(ast.parse(commands[name]))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.exit", "typer.Exit")
        ]
        lines = [ast.unparse(end) for end in ends]
        assert any("bounds.report(" in line and "report_only=" in line and "write=" in line for line in lines), name


def test_no_benchmark_keeps_a_bound_of_its_own() -> None:
    """Those of bounds.toml have a number of cases and a history."""
    for file in sorted((ROOT / "benchmarks").rglob("*.py")):
        calls = {ast.unparse(each.func) for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.Call)}
        own = calls & {f"bounds.{kind}" for kind in ("at_most", "at_least", "exactly")}
        assert own == set(), file.relative_to(ROOT)
