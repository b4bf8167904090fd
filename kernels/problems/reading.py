"""Reads an operator's problems, with weights, from patterns, lists and JSON-lines files. A weight says how often one
step of a language model runs the problem. A model's total time is the weighted sum of its problems' times."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.problems.names import Names, make_named_problem, read_names
from tilewatch.kernels.problems.patterns import MOST_PROBLEMS, read_pattern
from tilewatch.kernels.problems.problem_files import read_lines

FILE_ENDING = ".jsonl"
WEIGHT, MODEL = "weight", "model"
LARGEST_WEIGHT = 1e12  # sums of more would lose the times of other problems, and those of 1e308 be infinite


@dataclass(frozen=True)
class WeightedProblem:
    """A problem and its weights: how often one step of a language model runs the problem, by model."""

    problem: Problem
    weights: Mapping[str, float]


@dataclass(frozen=True)
class _Weighted:
    """A problem with its weight for one model. Without a weight, `model` is None."""

    problem: Problem
    model: str | None
    weight: float


def read_problems(problems: object, names: str | None, folder: Path) -> tuple[WeightedProblem, ...]:
    """Returns an operator's problems from a watch file. The weights of a repeated problem are added up."""
    written = None if names is None else read_names(names)
    found: dict[str, WeightedProblem] = {}
    for each in _read(problems, names, written, folder, "problems"):
        before = found.get(each.problem.name, WeightedProblem(each.problem, {})).weights
        added = {} if each.model is None else {each.model: before.get(each.model, 0.0) + each.weight}
        found[each.problem.name] = WeightedProblem(each.problem, {**before, **added})
        if len(found) > MOST_PROBLEMS:
            raise BadProblem(f"problems: more than {MOST_PROBLEMS:,} problems")
    if not found:
        raise BadProblem("problems: the list is empty")
    return tuple(found.values())


def _read(problems: object, names: str | None, written: Names | None, folder: Path, place: str) -> Iterator[_Weighted]:
    if isinstance(problems, Path) or (isinstance(problems, str) and problems.endswith(FILE_ENDING)):
        yield from _read_file(str(problems), written, folder)
    elif isinstance(problems, str):
        if names is None:
            raise BadProblem(f"{place}: the pattern '{problems}' needs names, for example names='rows x cols'")
        try:
            yield from (_Weighted(problem, None, 0.0) for problem in read_pattern(problems, names))
        except BadProblem as error:
            raise BadProblem(f"{place}: {error}") from None
    elif isinstance(problems, Mapping):
        yield _read_object(problems, written, place, default_model=None)
    elif isinstance(problems, Iterable):
        for number, each in enumerate(problems):
            yield from _read(each, names, written, folder, f"{place}[{number}]")
    else:
        raise BadProblem(f"{place}: {problems!r} is not a pattern, a path of a {FILE_ENDING} file, an object or a list")


def _read_file(path: str, written: Names | None, folder: Path) -> Iterator[_Weighted]:
    if Path(path).is_absolute():
        raise BadProblem(
            f"{path}: write the path relative to the watch file, so that every commit has its own problems"
        )
    for place, value in read_lines(folder / path, path):
        yield _read_object(value, written, place, default_model=Path(path).stem)


def _read_object(
    written_object: Mapping[Any, Any], written: Names | None, place: str, default_model: str | None
) -> _Weighted:
    """Reads a problem and its weight from an object. `default_model` applies if a weight names no model."""
    values = {str(name): value for name, value in written_object.items()}
    weight, model = values.pop(WEIGHT, None), values.pop(MODEL, None)
    if model is not None and (not isinstance(model, str) or not model.strip()):
        raise BadProblem(f"{place}: 'model' must be a text, not {model!r:.60}")
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if weight is not None and not (is_number and 0 < weight <= LARGEST_WEIGHT):
        raise BadProblem(f"{place}: 'weight' must be a number over 0, up to {LARGEST_WEIGHT:g}, not {weight!r:.60}")
    if model is None and weight is not None:
        model = default_model
        if model is None:
            raise BadProblem(f"{place}: a weight needs the name of its 'model'")
    try:
        problem = make_named_problem(written, values)
    except BadProblem as error:
        raise BadProblem(f"{place}: {error}") from None
    return _Weighted(problem, model, 0.0 if model is None else float(1 if weight is None else weight))
