"""Defines the facts that the rules compare to explain a change of a kernel's speed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewatch.mechanisms.tiles import list_tiles

WHOLE = 100
"""The size from which numbers are written without decimals."""


@dataclass(frozen=True)
class WinnerFacts:
    """Facts about the fastest config of one version of a kernel. A missing value, or None, means unknown."""

    params: Mapping[str, int]
    facts: Mapping[str, int | None]
    counters: Mapping[str, float] = field(default_factory=dict)
    sm_clock_mhz: float | None = None
    is_swizzled: bool | None = None

    def fact(self, name: str) -> int | None:
        return self.facts.get(name)


@dataclass(frozen=True)
class Moved:
    """The number of changed instructions of one kind in each of two versions, `base` and `head`."""

    kind: str
    in_loop: bool
    base: int
    head: int


@dataclass(frozen=True)
class Number:
    """The values of a quantity in the faster version (`base`) and in the slower version (`head`)."""

    label: str
    base: float
    head: float

    def __str__(self) -> str:
        return f"{self.label} {write_number(self.base)} -> {write_number(self.head)}"


@dataclass(frozen=True)
class Pair:
    """Two versions of a kernel, ordered by speed. In `moved`, `base` is the faster version."""

    fast: WinnerFacts
    slow: WinnerFacts
    moved: tuple[Moved, ...]
    sizes: tuple[int, ...]
    arch: str

    @property
    def has_same_tiles(self) -> bool:
        return list_tiles(self.fast.params) == list_tiles(self.slow.params)


def read_swizzled(checklist: Iterable[Mapping[str, str]] | None) -> bool | None:
    """Returns whether a kernel's source swizzles tiles, by its checklist; None if the checklist does not say."""
    answers = [each.get("answer", "") for each in checklist or () if each.get("item") == "2-D swizzle"]
    return {"yes": True, "no": False}.get(answers[0]) if answers else None


LABELS = {"spills": "instructions that spill", "Tensor Core": "Tensor Core instructions"}
"""The names of instruction kinds for people, for kinds whose own names are unclear."""


def read_facts(pair: Pair, name: str, label: str) -> Number | None:
    fast, slow = pair.fast.fact(name), pair.slow.fact(name)
    return None if fast is None or slow is None else Number(label, fast, slow)


def read_counters(pair: Pair, name: str, label: str) -> Number | None:
    fast, slow = pair.fast.counters.get(name), pair.slow.counters.get(name)
    return None if fast is None or slow is None else Number(label, fast, slow)


def sum_moved(pair: Pair, kind: str, *, in_loop: bool | None = None) -> Number | None:
    """Returns how many differing instructions of a kind each version has; None if the numbers are equal."""
    some = [each for each in pair.moved if each.kind == kind and in_loop in (None, each.in_loop)]
    base, head = sum(each.base for each in some), sum(each.head for each in some)
    return None if base == head else Number(LABELS.get(kind, kind), base, head)


def read_share(version: WinnerFacts, part: str, whole: str) -> float | None:
    parts, all_of_them = version.fact(part), version.fact(whole)
    return None if parts is None or not all_of_them else parts / all_of_them


def write_number(value: float) -> str:
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.3g}"
