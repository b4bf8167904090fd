"""Judges one operator and problem by its launches so far, and says whether more launches are needed.

Three statements have limits on their errors, each over all looks together (kernels/comparing/sequential.py):

"slower" and "faster": the probability of any wrong one in a whole comparison is at most FAMILY_ERROR. By Bonferroni,
each of k operators gets FAMILY_ERROR / k, however the operators depend on each other. This costs little, because the
launches needed grow with the logarithm of k (12 launches for 1 operator, 16 for 20). Benjamini-Hochberg would only
bound the share of wrong statements, but a single wrong "slower" stops a merge.

"not slower than x": the probability of a wrong one is at most NOT_SLOWER_ERROR / k for each operator, one-sided.

The printed interval is that of the last look alone, with INTERVAL_ERROR. It missed the true change in 3 to 7 % of the
comparisons with made noise and with noise of recorded kernels (benchmarks/compare.py, 2026-11-29). An interval that is
valid for all looks together missed it in 0 to 3 %, because most comparisons end at an early look."""

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
    """Holds what is fixed before the first launch: the number of operators, the largest number of launches, and
    `fail_over`, the slowdown as a share that fails the comparison. Smaller changes than `margin` need not be found."""

    operators: int
    most_launches: int = MOST_LAUNCHES
    fail_over: float = 0.0
    margin: float | None = None

    @property
    def looks(self) -> tuple[int, ...]:
        return list_looks(self.most_launches)

    @property
    def acceptable(self) -> float:
        """Returns the largest slowdown, as a share, that a pair may still have when it is called "not slower"."""
        return self.fail_over or self.margin or ACCEPTABLE

    @property
    def sought(self) -> float:
        """Returns the size of a change, as a share, below which further launches are not worth their time."""
        margin = self.margin or MARGIN
        return min(margin, self.fail_over or margin)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one operator. Changes are shares: 0.018 is 1.8 % slower. `low` and `high` are the ends of the 95 %
    interval, widened to contain `change`, which may lie outside if early and late looks disagree.

    `not_slower_than` is infinite until there are enough launches. `is_over` is True if the operator is surely slower
    than the design's `fail_over`, `is_fine` if it is surely not slower; both are False until one of these is sure.
    `is_final` is True if no further launch is made. `needed_launches` estimates how many launches would decide an
    undecided comparison; it is None for others, and before there are enough launches for an estimate."""

    kind: Kind
    change: float
    low: float
    high: float
    not_slower_than: float
    launches: int
    is_over: bool
    is_fine: bool
    is_final: bool
    needed_launches: int | None = None

    @property
    def plain_values(self) -> dict[str, Any]:
        """Returns the verdict's fields, ready for JSON: None stands for an infinite number."""
        finite = {name: value for name, value in asdict(self).items() if value not in (math.inf, -math.inf)}
        return dict.fromkeys(asdict(self)) | finite


def judge(base_us: Sequence[float], head_us: Sequence[float], design: Design) -> Verdict:
    """Returns the verdict after these launches. Element i of `base_us` and `head_us` is from one launch. Raises
    ValueError if there are no launches, or if their numbers differ."""
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
        low=min(shown.low, change),
        high=max(shown.high, change),
        not_slower_than=not_slower_than,
        launches=len(changes),
        is_over=is_over,
        is_fine=is_fine,
        is_final=enough or is_hopeless or len(changes) >= design.most_launches,
        needed_launches=needed,
    )


def _estimate_needed(change: float, found: Range, launches: int, margin: float) -> int | None:
    """Estimates how many launches tell a change from 0 or from the margin, whichever is farther from it: the width of
    an interval shrinks with the square root of their number. Returns None if there are too few for an estimate."""
    if launches < FIRST_FORECAST or math.isinf(found.low) or math.isinf(found.high):
        return None
    room = max(abs(change), margin - abs(change))
    return math.ceil(launches * ((found.high - found.low) / 2 / room) ** 2)


def _convert_to_shares(logarithms: Range) -> Range:
    return Range(math.expm1(logarithms.low), math.inf if math.isinf(logarithms.high) else math.expm1(logarithms.high))
