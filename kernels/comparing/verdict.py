"""Decides from its launches so far whether an operator is slower, and whether more launches are needed.

The probability that any "slower" or "faster" of a whole comparison is wrong is at most FAMILY_ERROR. Each of k
operators gets FAMILY_ERROR / k (Bonferroni). The probability that an operator's "not slower than x" is wrong is at most
NOT_SLOWER_ERROR / k (kernels/comparing/sequential.py).

The printed interval is computed from the last look alone. It missed the true change in 3 to 7 % of the comparisons with
simulated or recorded noise (benchmarks/compare.py, 2026-11-29)."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tilewatch.kernels.comparing.sequential import Range, estimate, list_looks, read_range

FAMILY_ERROR = 0.005
NOT_SLOWER_ERROR = 0.01
INTERVAL_ERROR = 0.05

MARGIN = 0.005
"""The default of --margin, below which changes are not sought. Machines of one GPU model differ by as much."""

ACCEPTABLE = 0.01
"""Without --fail-over and --margin, the largest x of "not slower than x" that is accepted when the budget is spent."""

STEP = 0.001
"""The x of "not slower than x" is rounded up to a multiple of this or of a fifth of the margin, whichever is less."""

HOPELESS = 6
"""A comparison with a --margin ends early if it needs more than this multiple of its most launches. Of 975 simulated
comparisons that ended early at a margin of 0.1 %, 22 would have been decided by 40 launches (2026-11-29)."""

FIRST_FORECAST = 16
"""Fewest launches from which the number of needed launches is estimated."""

MOST_LAUNCHES = 40
"""The default of --launches."""

MOST_ASKED = 2000
"""Largest --launches. A verdict on that many takes 2 s of a core and 200 MB (2 cores, 2026-11-30)."""

Kind = Literal["slower", "faster", "not slower", "undecided"]


@dataclass(frozen=True)
class Design:
    """The settings that are fixed before the first launch. `fail_over` and `margin` are fractions."""

    operators: int
    most_launches: int = MOST_LAUNCHES
    fail_over: float = 0.0
    margin: float | None = None  # smaller changes need not be found

    @property
    def looks(self) -> tuple[int, ...]:
        return list_looks(self.most_launches)

    @property
    def acceptable(self) -> float:
        """Returns the largest slowdown, as a fraction, that still counts as "not slower"."""
        return self.fail_over or self.margin or ACCEPTABLE

    @property
    def sought(self) -> float:
        """Returns the smallest change, as a fraction, that is worth further launches."""
        margin = self.margin or MARGIN
        return min(margin, self.fail_over or margin)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one operator. Changes are fractions: 0.018 is 1.8 % slower. `low` and `high` are the ends of the
    95 % interval. `is_over` means surely slower than allowed, `is_fine` surely not slower than allowed."""

    kind: Kind
    change: float
    low: float
    high: float
    not_slower_than: float  # infinite until there are enough launches
    launches: int
    is_over: bool
    is_fine: bool
    is_final: bool
    needed_launches: int | None = None  # how many would decide; None if unknown or decided

    @property
    def plain_values(self) -> dict[str, Any]:
        """Returns the verdict's fields for JSON, with None for infinite numbers."""
        finite = {name: value for name, value in asdict(self).items() if value not in (math.inf, -math.inf)}
        return dict.fromkeys(asdict(self)) | finite


def judge(base_us: Sequence[float], head_us: Sequence[float], design: Design) -> Verdict:
    """Returns the verdict after these launches. Element i of both lists is from one launch."""
    if not base_us or len(base_us) != len(head_us):
        raise ValueError(f"launches come in pairs: {len(base_us)} of the base, {len(head_us)} of the head")
    changes = [math.log(head / base) for base, head in zip(base_us, head_us, strict=True)]
    shown = _convert_to_shares(read_range(changes, (max(len(changes), design.looks[0]),), INTERVAL_ERROR))
    strict = _convert_to_shares(read_range(changes, design.looks, FAMILY_ERROR / design.operators))
    outer = _convert_to_shares(read_range(changes, design.looks, 2 * NOT_SLOWER_ERROR / design.operators))
    most = outer.high
    step = min(STEP, (design.margin or MARGIN) / 5)
    not_slower_than = math.inf if math.isinf(most) else max(0.0, math.ceil(most / step - 1e-9) * step)
    change = math.expm1(estimate(changes))
    slower, faster = strict.low > 0, strict.high < 0
    is_over = strict.low > design.fail_over
    is_fine = faster or most <= design.acceptable
    if slower:
        kind: Kind = "slower"
        is_fine = not is_over and most <= design.fail_over
        enough = is_over or is_fine
    elif faster:
        kind, enough = "faster", True
    else:
        kind = "not slower" if is_fine else "undecided"
        # A change that may be an improvement worth naming gets more launches too.
        enough = most <= design.sought and outer.low >= -(design.margin or MARGIN)
    needed = _estimate_needed(change, outer, len(changes), design.acceptable) if kind == "undecided" else None
    is_hopeless = bool(design.margin and needed and needed > HOPELESS * design.most_launches)
    return Verdict(
        kind=kind,
        change=change,
        low=shown.low,
        high=shown.high,
        not_slower_than=not_slower_than,
        launches=len(changes),
        is_over=is_over,
        is_fine=is_fine,
        is_final=enough or is_hopeless or len(changes) >= design.most_launches,
        needed_launches=needed,
    )


def _estimate_needed(change: float, found: Range, launches: int, margin: float) -> int | None:
    """Estimates how many launches would decide an undecided comparison. Returns None after too few launches."""
    if launches < FIRST_FORECAST or math.isinf(found.low) or math.isinf(found.high):
        return None
    room = max(abs(change), margin - abs(change))
    return math.ceil(launches * ((found.high - found.low) / 2 / room) ** 2)


def _convert_to_shares(logarithms: Range) -> Range:
    return Range(math.expm1(logarithms.low), math.inf if math.isinf(logarithms.high) else math.expm1(logarithms.high))
