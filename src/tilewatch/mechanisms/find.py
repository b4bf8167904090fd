"""Finds the mechanism by which one version of a kernel is slower, such as spills or less overlap (docs/use/why.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewatch.mechanisms.pairs import Moved, Number, Pair, WinnerFacts
from tilewatch.mechanisms.rules import RULES
from tilewatch.mechanisms.tiles import read_sizes

NOT_KNOWN = "not known"

ENOUGH = 0.5
"""The least share of a change that the main mechanism must be able to explain."""

KINDS: Mapping[str, tuple[str, str]] = {
    "tensor_cores": ("lost Tensor Cores", "Tensor Cores used"),
    "tma": ("lost TMA", "TMA used"),
    "spills": ("spills", "fewer spills"),
    "quantisation": ("tile quantisation", "less tile quantisation"),
    "occupancy": ("lower occupancy", "higher occupancy"),
    "bank_conflicts": ("bank conflicts", "fewer bank conflicts"),
    "l2": ("worse L2 reuse", "better L2 reuse"),
    "overlap": ("less overlap", "more overlap"),
    "clusters": ("larger clusters", "smaller clusters"),
    "instructions": ("more instructions", "fewer instructions"),
    "clocks": ("lower clocks", "higher clocks"),
}
"""The names of each mechanism for a slower and for a faster head version. Mechanisms are listed in this order."""


@dataclass(frozen=True)
class Mechanism:
    """A likely reason why a kernel's speed changed. `most` is the largest slowdown that it can explain, as a ratio."""

    kind: str
    name: str
    numbers: tuple[Number, ...]
    most: float | None = None
    is_enough: bool = True

    def __str__(self) -> str:
        bound = "" if self.is_enough or self.most is None else f", {self.most - 1:.0%} at most"
        return f"{self.name} ({', '.join(map(str, self.numbers))}{bound})"


def find_mechanisms(
    base: WinnerFacts,
    head: WinnerFacts,
    moved: Iterable[Moved],
    *,
    is_slower: bool,
    problem: str,
    arch: str,
    ratio: float | None = None,
) -> tuple[Mechanism, ...]:
    """Returns the likely reasons why `head` is slower or faster than `base`, the main reason first. `ratio` is the
    slower version's time divided by the faster version's time."""
    fast, slow = (base, head) if is_slower else (head, base)
    turned = tuple(each if is_slower else Moved(each.kind, each.in_loop, each.head, each.base) for each in moved)
    pair = Pair(fast, slow, turned, read_sizes(problem), arch)
    found = []
    for kind, names in KINDS.items():
        numbers = RULES[kind](pair)
        if numbers:
            ordered = tuple(each if is_slower else Number(each.label, each.head, each.base) for each in numbers)
            most = numbers[0].head / numbers[0].base if kind == "quantisation" else None
            is_enough = most is None or ratio is None or most - 1 >= ENOUGH * (ratio - 1)
            found.append(Mechanism(kind, names[0 if is_slower else 1], ordered, most, is_enough))
    return tuple(sorted(found, key=lambda each: not each.is_enough))


def write_mechanisms(found: Sequence[Mechanism]) -> str:
    """Returns mechanisms as one sentence without a full stop; "not known" if there are none."""
    rest = f"; the rest is {NOT_KNOWN}" if found and not found[0].is_enough else ""
    return "; also ".join(map(str, found)) + rest if found else NOT_KNOWN
