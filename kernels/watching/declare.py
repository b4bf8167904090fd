"""Defines `watch` and `case`, with which a watch file declares operators.

from tilewatch import case, watch
from yourpackage.ops import softmax

@watch(problems="4096x{1024,4096}:{bf16,f32}", names="rows x cols", baselines=("torch",))
def softmax_rows(p):
    x = p.randn(p.rows, p.cols)
    return case(run=lambda: softmax(x), reference=lambda: x.softmax(-1), torch=lambda: x.softmax(-1))
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewatch.errors import ExpectedError
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.problems.patterns import parse_problem
from tilewatch.kernels.problems.reading import WeightedProblem, read_problems

Configs = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]] | Callable[[Problem, str], Any]
"""A list of configs, or axes with their values (all combinations are tried), or a function of problem and architecture
("sm_90") that returns a list or axes."""


MOST = 2**63
"""Every number of a case must be less, to be stored."""

LEAST_WORDS = 3
"""Fewest words of a stated reason, so that `not_apart="yes"` is refused."""


DECLARED: list["WatchedOperator"] = []
"""All operators that `watch` has made, in order. A loop may declare several that no name in the module refers to."""


class BadWatchFile(ExpectedError, ValueError):
    """Raised if a watch file declares an operator that cannot be watched. The message is a sentence."""


@dataclass(frozen=True)
class Case:
    """The functions and numbers with which an operator runs on one problem. `case` describes the fields."""

    run: Callable[..., Any]
    reference: Callable[[], Any] | None
    baselines: Mapping[str, Callable[[], Any]]
    moves: int | None
    flops: int
    tolerance: float | None
    work: tuple[str, float] | None = None
    before: Callable[[], Any] | None = None

    @property
    def own_parameters(self) -> list[inspect.Parameter]:
        """Returns the parameters of `run` that take a config's values."""
        return list(inspect.signature(self.run).parameters.values())[self.before is not None :]


@dataclass(frozen=True, eq=False)
class WatchedOperator:
    """An operator that a watch file declares. `line` is the declaration's first line."""

    name: str
    make_case: Callable[[Any], Case]
    problems: tuple[WeightedProblem, ...]
    names: str | None
    baselines: tuple[str, ...]
    configs: Configs | None
    nightly: bool
    file: Path
    line: int
    not_apart: str = ""
    unchecked: str = ""

    @property
    def place(self) -> str:
        """Returns where the operator is declared, such as "softmax.py, line 7"."""
        return f"{self.file.name}, line {self.line}"

    def parse(self, text: str) -> Problem:
        """Returns the problem that has this name. Raises BadProblem if the name is malformed."""
        for each in self.problems:
            if each.problem.name == text:
                return each.problem
        return parse_problem(text, self.names)


def watch(
    *,
    problems: object,
    names: str | None = None,
    baselines: Sequence[str] = (),
    configs: Configs | None = None,
    nightly: bool = True,
    not_apart: str = "",
    unchecked: str = "",
) -> Callable[[Callable[[Any], Case]], WatchedOperator]:
    """Registers the decorated function as a watched operator with the function's name.

    problems   a pattern "4096x{1024,4096}:{bf16,f32}", a list of texts or dicts, or a file of JSON lines with weights
    names      the names of the pattern's numbers and types: "rows x cols : dtype"; the function reads them as p.rows,
               p.cols, p.dtype
    baselines  names of callables that `case` gets, and of built-in baselines ("copy"), the main baseline first
    configs    replaces the configs that the host code's own search tries; see Configs
    nightly    whether the sweep of each night includes the operator; otherwise it is swept on request only
    not_apart  why the process that runs the host code must also time and check it, in a few words: "it adds the parts
               with PyTorch". If this is empty, host code is refused if its launches alone do not compute its result.
               Pages and verdicts of the operator show the reason
    unchecked  why the result is not compared with a reference, in a few words: "its shape follows from the tile". Pages
               show the reason
    """
    reasons = check_reason("not_apart", not_apart), check_reason("unchecked", unchecked)

    def decorate(make_case: Callable[[Any], Case]) -> WatchedOperator:
        file = Path(make_case.__globals__["__file__"])
        read = read_problems(problems, names, file.parent)
        made = WatchedOperator(
            make_case.__name__,
            make_case,
            read,
            names,
            tuple(baselines),
            configs,
            nightly,
            file,
            make_case.__code__.co_firstlineno,
            *reasons,
        )
        DECLARED.append(made)
        return made

    return decorate


def check_reason(name: str, reason: str) -> str:
    """Returns the reason unchanged. Raises BadWatchFile if the reason is too short; an empty reason is allowed."""
    if not isinstance(reason, str) or 0 < len(reason.split()) < LEAST_WORDS:
        raise BadWatchFile(f"{name} is '{reason}': give the reason in {LEAST_WORDS} words or more")
    return reason


def case(
    *,
    run: Callable[..., Any],
    reference: Callable[[], Any] | None = None,
    before: Callable[[], Any] | None = None,
    moves: int | None = None,
    flops: int = 0,
    work: tuple[str, float] | None = None,
    tolerance: float | None = None,
    **baselines: Callable[[], Any],
) -> Case:
    """Describes one problem of an operator.

    run        calls the host code and returns its result: a tensor, or a tuple of tensors. Every `ct.launch` in it is
               part of the operator. With `configs`, it may take the config as keyword arguments
    reference  returns the right values in the order of `run`; None for a value that is not compared. Only an operator
               that is `unchecked` has no reference
    before     runs before `run` and is not timed, such as the forward pass before a backward pass. The result of
               `before` is the first argument of `run`
    moves      fewest bytes moved through device memory; None: the bytes of all launched arrays, each counted once
    flops      floating-point operations
    work       size of the problem in a unit of your own: ("tokens", 8192) is shown as tokens/s
    tolerance  largest accepted |out - reference| as a share of the reference's largest magnitude; None: by type
    baselines  callables, by name, that compute the same result

    Raises ValueError if an argument has a wrong type, or if a number is below 0 or too large.
    """
    for name, given in {"run": run, "reference": reference, "before": before, **baselines}.items():
        if not callable(given) and (given is not None or name not in ("reference", "before")):
            raise ValueError(f"`{name}` is a {type(given).__name__}; expected a function, such as `lambda: ...`")
    return Case(
        run,
        reference,
        baselines,
        None if moves is None else int(_read_number("moves", moves)),
        int(_read_number("flops", flops)),
        None if tolerance is None else _read_number("tolerance", tolerance),
        None if work is None else _read_work(work),
        before,
    )


def _read_work(work: Any) -> tuple[str, float]:
    if not isinstance(work, tuple | list) or len(work) != 2 or not isinstance(work[0], str):
        raise ValueError(f'`work` is {work!r}; expected a unit and a number, such as ("tokens", 8192)')
    return work[0], _read_number("work", work[1])


def _read_number(name: str, value: Any) -> float:
    """Returns an argument as a number. Raises ValueError if it is negative, too large or not a number."""
    try:
        number = value if isinstance(value, int) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < MOST:
        raise ValueError(f"`{name}` is {value!r}; expected a number from 0 to less than 2**63")
    return number
