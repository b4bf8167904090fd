"""Reads problems from text: one problem, or a pattern for several problems."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable

from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.problems.names import CHOICE, DEFAULT_CHOICE, Names, make_named_problem, make_problem, read_names

PART = re.compile(r"\{([^{}]*)\}|([^{}]+)")
"""Matches one value of a pattern, or alternative values in braces."""

MOST_PROBLEMS = 20_000  # of an operator; ten lists of ten numbers would be ten billion


def read_pattern(text: str, names: str) -> tuple[Problem, ...]:
    """Returns the problems of a pattern, such as "4096x{1024,4096}:{bf16,f32}". The last value varies fastest."""
    written = read_names(names)
    sizes, *choices = text.replace(" ", "").split(":")
    if choices and not written.choices and len(choices) == 1:
        written = Names(written.sizes, (DEFAULT_CHOICE,))
    axes = [_list_alternatives(text, part) for part in re.split(r"x(?![^{]*\})", sizes)]
    if len(axes) == 1 and any("x" in shape for shape in axes[0]):
        shapes = ", ".join(f'"{":".join((shape, *choices))}"' for shape in axes[0])
        raise BadProblem(f"'{text}' has whole shapes in braces; write a list of problems: [{shapes}]")
    if len(axes) != len(written.sizes) or len(choices) != len(written.choices):
        raise BadProblem(f"'{text}' is not {written.form}")
    for size in itertools.chain(*axes):
        if not size.isdecimal():
            raise BadProblem(f"'{text}' is not {written.form}: '{size}' is not a whole number")
    named = [_list_alternatives(text, part) for part in choices]
    for choice in itertools.chain(*named):
        if not CHOICE.fullmatch(choice):
            raise BadProblem(f"'{text}' is not {written.form}: '{choice}' may hold letters, digits and _ . + - only")
    if math.prod(map(len, (*axes, *named))) > MOST_PROBLEMS:
        raise BadProblem(f"'{text}' names more than {MOST_PROBLEMS:,} problems")
    count = len(axes)
    found = tuple(
        make_problem(written, [int(size) for size in values[:count]], values[count:])
        for values in itertools.product(*axes, *named)
    )
    for name, times in Counter(problem.name for problem in found).items():
        if times > 1:
            raise BadProblem(f"'{text}' names the problem {name} twice")
    return found


def parse_problem(text: str, names: str | None) -> Problem:
    """Returns the problem that a text names. Without `names`, the text must be like "cols=1024,rows=4096"."""
    if names is None:
        pairs = [pair.partition("=") for pair in text.replace(" ", "").split(",")]
        if not all(name.isidentifier() and value for name, _, value in pairs):
            raise BadProblem(f"'{text}' is not a problem: write for example rows=4096,cols=1024")
        return make_named_problem(None, {name: int(value) if value.isdecimal() else value for name, _, value in pairs})
    found = read_pattern(text, names)
    if len(found) > 1:
        raise BadProblem(f"'{text}' names {len(found)} problems: write one")
    return found[0]


def pattern(names: str) -> Callable[[str], Problem]:
    """Returns a parser for problems with these names, to use as a Kernel's `parse`."""
    read_names(names)
    return lambda text: parse_problem(text, names)


def _list_alternatives(text: str, part: str) -> list[str]:
    found = PART.fullmatch(part)
    if found is None:
        raise BadProblem(f"'{text}': '{part}' is neither a value nor alternatives like {{1024,4096}}")
    return [found[2]] if found[1] is None else found[1].split(",")
