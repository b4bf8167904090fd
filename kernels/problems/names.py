"""Makes problems from sizes and choices, and names the problems. If an operator has `names`, such as "rows x cols :
dtype", a problem's name is like "4096x1024:bf16". Without `names`, it is like "cols=1024,dtype=bf16,rows=4096"."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewatch.kernels.contract import BadProblem, Problem

CHOICE = re.compile(r"[A-Za-z0-9_.+-]+")
"""Matches a choice. Other letters are refused, because a choice is part of a stored name and is typed in a shell."""

LARGEST_SIZE = 2**63 - 1  # the tables and the arguments of kernels have whole numbers of 64 bits

DEFAULT_CHOICE = "dtype"
"""The name of a pattern's only choice, the value after the colon, if `names` has no name for it."""


@dataclass(frozen=True)
class Names:
    """The names of an operator's sizes, such as rows, and of its choices, such as dtype."""

    sizes: tuple[str, ...]
    choices: tuple[str, ...]

    @property
    def form(self) -> str:
        """Returns the form of a problem's name for messages, such as "ROWSxCOLS:DTYPE"."""
        sizes = "x".join(name.upper() for name in self.sizes)
        return ":".join((sizes, *(name.upper() for name in self.choices)))


def read_names(names: str) -> Names:
    """Reads names from a text such as "rows x cols : dtype". Raises BadProblem if a name is invalid or repeated."""
    sizes, *choices = (part.strip() for part in names.split(":"))
    read = Names(tuple(re.split(r"\s+x\s+", sizes)), tuple(choices))
    for name in (*read.sizes, *read.choices):
        if not name.isidentifier():
            raise BadProblem(f"names='{names}': '{name}' is not a name; write for example 'rows x cols : dtype'")
        if (*read.sizes, *read.choices).count(name) > 1:
            raise BadProblem(f"names='{names}': '{name}' stands there twice")
    return read


def make_problem(names: Names, sizes: Sequence[int], choices: Sequence[str]) -> Problem:
    """Makes a problem from sizes and choices in the order of `names`, with a name like "4096x1024:bf16"."""
    name = ":".join(("x".join(map(str, sizes)), *choices))
    return Problem(name, dict(zip(names.sizes, sizes, strict=True)), dict(zip(names.choices, choices, strict=True)))


def make_named_problem(names: Names | None, values: Mapping[str, object]) -> Problem:
    """Makes a problem from named values, or raises BadProblem. If `names` is None, any names are allowed."""
    sizes = {name: _check_size(name, value) for name, value in values.items() if not isinstance(value, str)}
    choices = {name: _check_choice(name, value) for name, value in values.items() if isinstance(value, str)}
    if names is None:
        if not sizes:
            raise BadProblem("a problem needs at least one size, for example 'rows': 4096")
        if bad := [name for name in values if not name.isidentifier()]:
            raise BadProblem(f"{bad[0]!r:.60} is not a name; expected letters, digits and _")
        text = {name: str(value) for name, value in {**sizes, **choices}.items()}
        return Problem(",".join(f"{name}={text[name]}" for name in sorted(text)), sizes, choices)
    for wanted, given, kind in ((names.sizes, sizes, "a whole number"), (names.choices, choices, "a text")):
        for name in wanted:
            if name not in given:
                found = f", not {values[name]!r:.60}" if name in values else " and is missing"
                raise BadProblem(f"'{name}' must be {kind}{found}")
    for name in values:
        if name not in (*names.sizes, *names.choices):
            raise BadProblem(f"'{name:.60}' is none of the names: {', '.join((*names.sizes, *names.choices))}")
    return make_problem(names, [sizes[name] for name in names.sizes], [choices[name] for name in names.choices])


def _check_size(name: str, value: object) -> int:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int) or not 0 <= value <= LARGEST_SIZE:
        raise BadProblem(f"'{name}' must be a whole number from 0 to 2^63-1 or a text, not {value!r:.60}")
    return value


def _check_choice(name: str, value: str) -> str:
    if not CHOICE.fullmatch(value):
        raise BadProblem(f"'{name}' is '{value:.60}': a text may hold letters, digits and _ . + -")
    return value
