"""Lists for each watched problem the weighted totals that it is part of, one per model that uses it."""

from collections import Counter
from collections.abc import Mapping

from tilewatch.kernels.catalog.loading import Entry, LibraryOperator
from tilewatch.kernels.catalog.validation import read_weights
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.library_errors import LibraryError

Parts = Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]
"""Maps a kernel and a problem to the models that use it: for each model its `weight`, and `parts`, the number of
problems in the model's total. A total that lacks some of them can then be recognised."""


def list_parts(loaded: Mapping[str, Entry], failures: list[LibraryError]) -> Parts:
    """Returns the parts of all problems. Returns nothing if a file or a weight is wrong, because the totals would lack
    problems; a wrong weight is added to `failures`."""
    weights: dict[tuple[str, str], Mapping[str, float]] = {}
    for name, entry in loaded.items():
        try:
            weights.update({(name, problem): each for problem, each in _read_weights(entry).items()})
        except LibraryError as error:
            failures.append(error)
    if failures:
        return {}
    counts = Counter(model for each in weights.values() for model in each)
    return {
        key: {model: {"weight": weight, "parts": counts[model]} for model, weight in each.items()}
        for key, each in weights.items()
    }


def _read_weights(entry: Entry) -> dict[str, Mapping[str, float]]:
    """Returns the weights by model of each problem, by the problem's name."""
    if isinstance(entry, LibraryOperator):
        return {each.problem.name: each.weights for each in entry.kernel.problems}
    problems = [each for each in entry.kernel.problems if isinstance(each, Problem)]
    return {problem.name: read_weights(entry, problem) for problem in problems}
