"""Lists the language models that run each problem, and how often."""

from collections import Counter
from collections.abc import Mapping

from tilewatch.kernels.catalog.loading import Entry, LibraryOperator
from tilewatch.kernels.catalog.validation import read_weights
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.library_errors import LibraryError

Parts = Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]
"""Maps a kernel and a problem to the language models that use it. For each model, `weight` is how often a step runs the
problem. `parts` is the number of problems in the model's total, so that an incomplete total is noticed."""


def list_parts(loaded: Mapping[str, Entry], failures: list[LibraryError]) -> Parts:
    """Maps (kernel, problem) to the language models that run it. On errors, adds them to `failures` and returns {}."""
    weights: dict[tuple[str, str], Mapping[str, float]] = {}
    for name, entry in loaded.items():
        try:
            weights.update({(name, problem): each for problem, each in _read_weights(entry).items()})
        except LibraryError as error:
            failures.append(error)
    # the models' totals would lack problems
    if failures:
        return {}
    counts = Counter(model for each in weights.values() for model in each)
    return {
        key: {model: {"weight": weight, "parts": counts[model]} for model, weight in each.items()}
        for key, each in weights.items()
    }


def _read_weights(entry: Entry) -> dict[str, Mapping[str, float]]:
    """Maps each problem's name to how often one step of each language model runs the problem."""
    if isinstance(entry, LibraryOperator):
        return {each.problem.name: each.weights for each in entry.kernel.problems}
    problems = [each for each in entry.kernel.problems if isinstance(each, Problem)]
    return {problem.name: read_weights(entry, problem) for problem in problems}
