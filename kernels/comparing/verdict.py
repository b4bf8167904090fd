"""Judges one operator and problem by its launches so far, and says whether more launches are needed.

Three statements have errors of their own, each over all looks (kernels/comparing/sequential.py):

"slower" and "faster": the probability of any wrong one in a whole comparison is at most FAMILY_ERROR. By Bonferroni,
each of k operators gets FAMILY_ERROR / k, however the operators depend on each other. This costs little, because the
launches needed grow with the logarithm of k (12 launches for 1 operator, 16 for 20). Benjamini-Hochberg would only
bound the share of wrong statements, but a single wrong "slower" stops a merge.

"not slower than x": NOT_SLOWER_ERROR / k, one-sided.

The printed interval: INTERVAL_ERROR for each operator."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tilewatch.kernels.comparing.sequential import Range, estimate, list_looks, read_range

FAMILY_ERROR = 0.005
NOT_SLOWER_ERROR = 0.01
INTERVAL_ERROR = 0.05

MARGIN = 0.005
"""Launches are added until a change is sure, or surely under this share. Machines of one GPU model differ by as
much."""

ACCEPTABLE = 0.01
"""Largest x of "not slower than x" that is accepted when the budget is spent, if no --fail-over was given."""

STEP = 0.001
"""The x of "not slower than x" is rounded up to a multiple of this."""

MOST_LAUNCHES = 40

Kind = Literal["slower", "faster", "not slower", "undecided"]


@dataclass(frozen=True)
class Design:
    """Holds what is fixed before the first launch: the number of operators, the largest number of launches, and
    `fail_over`, the slowdown as a share that fails the comparison."""

    operators: int
    most_launches: int = MOST_LAUNCHES
    fail_over: float = 0.0

    @property
    def looks(self) -> tuple[int, ...]:
        return list_looks(self.most_launches)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one operator. Changes are shares: 0.018 is 1.8 % slower. `low` and `high` are the ends of the 95 %
    interval, widened to contain `change`, which may lie outside if early and late looks disagree.

    `not_slower_than` is infinite until there are enough launches. `is_over` is True if the operator is surely slower
    than the design's `fail_over`, `is_fine` if it surely is not; both are False as long as neither is sure. `is_final`
    is True if no further launch is needed."""

    kind: Kind
    change: float
    low: float
    high: float
    not_slower_than: float
    launches: int
    is_over: bool
    is_fine: bool
    is_final: bool

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
    shown = _convert_to_shares(read_range(changes, design.looks, INTERVAL_ERROR))
    strict = _convert_to_shares(read_range(changes, design.looks, FAMILY_ERROR / design.operators))
    outer = _convert_to_shares(read_range(changes, design.looks, 2 * NOT_SLOWER_ERROR / design.operators))
    most = outer.high
    not_slower_than = math.inf if math.isinf(most) else max(0.0, math.ceil(most / STEP - 1e-9) * STEP)
    change = math.expm1(estimate(changes))
    slower, faster = strict.low > 0, strict.high < 0
    is_over = strict.low > design.fail_over
    is_fine = faster or most <= (design.fail_over or ACCEPTABLE)
    if slower:
        kind: Kind = "slower"
        is_fine = not is_over and most <= design.fail_over
        enough = is_over or is_fine
    elif faster:
        kind, enough = "faster", True
    else:
        kind = "not slower" if is_fine else "undecided"
        # A change that may be an improvement worth naming gets more launches too.
        enough = most <= min(MARGIN, design.fail_over or MARGIN) and outer.low >= -MARGIN
    return Verdict(
        kind=kind,
        change=change,
        low=min(shown.low, change),
        high=max(shown.high, change),
        not_slower_than=not_slower_than,
        launches=len(changes),
        is_over=is_over,
        is_fine=is_fine,
        is_final=enough or len(changes) >= design.most_launches,
    )


def _convert_to_shares(logarithms: Range) -> Range:
    return Range(math.expm1(logarithms.low), math.inf if math.isinf(logarithms.high) else math.expm1(logarithms.high))
