"""Lists what each watched problem is part of: the weighted totals of the models that use it."""

from collections import Counter
from collections.abc import Mapping

from tilewatch.kernels.catalog.loading import Entry, LibraryOperator
from tilewatch.kernels.catalog.validation import read_weights
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.library_errors import LibraryError

Parts = Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]
"""Maps a kernel and a problem to its models of use, and each model to the problem's weight and to the number of
problems that the model has. That number shows when a total lacks some of them, as where one kernel was swept alone."""


def list_parts(loaded: Mapping[str, Entry], failures: list[LibraryError]) -> Parts:
    """Returns nothing where a file or a weight is wrong: a total without some of its problems would be wrong too.

    Wrong weights are added to `failures`.
    """
    weights: dict[tuple[str, str], Mapping[str, float]] = {}
    for name, entry in loaded.items():
        try:
            weights.update({(name, problem): each for problem, each in _weights(entry).items()})
        except LibraryError as error:
            failures.append(error)
    if failures:
        return {}
    counts = Counter(model for each in weights.values() for model in each)
    return {
        key: {model: {"weight": weight, "parts": counts[model]} for model, weight in each.items()}
        for key, each in weights.items()
    }


def _weights(entry: Entry) -> dict[str, Mapping[str, float]]:
    """Returns the weights by model of each problem, by the problem's name."""
    if isinstance(entry, LibraryOperator):
        return {each.problem.name: each.weights for each in entry.kernel.problems}
    problems = [each for each in entry.kernel.problems if isinstance(each, Problem)]
    return {problem.name: read_weights(entry, problem) for problem in problems}
