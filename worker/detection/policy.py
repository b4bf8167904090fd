"""A policy as a file: JSON with some of the numbers of worker/detection/reading.py's Policy, the others staying as they
are.

The file's name, without its ending, is the policy's, so that a verdict says which numbers judged it.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilewatch.errors import ExpectedError


@dataclass(frozen=True)
class Policy:
    """Every number that decides. Tuned on worlds of benchmarks/judge.py with other seeds than those reported."""

    name: str = "replay-5"
    min_history: int = 5  # nights on this machine and toolchain before a night is judged
    window_nights: int = 90  # what is learned from
    before_nights: int = 40  # a level older than this has drifted
    after_nights: int = 24
    clip_deviations: float = 3.5  # one wild night weighs no more than this
    noise_floor: float = 0.0005  # for a history that repeats itself to the last digit
    wander: float = 0.0005  # how far a level strays within some nights though nothing changed
    wander_nights: float = 5.0  # after so many, half of it
    least_size: float = 0.004  # nights that show less than changes have are rather a level that strays
    any_size: float = 1.0  # how many sizes a change might as well have had, for each deviation that it shows
    nightly_log_odds: float = 6.0  # however sure the nights look: they are one GPU's days, and other things move them
    changes_a_point: float = 0.001  # how often a series changes, before this fleet's own changes tell
    least_changes_a_point: float = 0.00025  # a long calm, or a large fleet, makes nobody deaf
    prior_points: float = 4000.0  # how many points that guess is worth
    whole_kernels: float = 0.3  # of changes, those that hit a kernel's shapes together
    fresh_nights: int = 3  # a change of the last so many builds can still be told soon
    fresh_share: float = 0.35  # of all probability, on those builds: from so much on they are asked about alone
    worth_launches: float = 400.0  # what telling a fresh change may cost in replay launches
    late_worth_launches: float = 28.0  # the same of an older one: more than a step, once nights leave no doubt
    sibling_worth_launches: float = 120.0  # the same of a fresh one whose commit is named already, by another shape
    reasoned_worth_launches: float = 42.0  # the same where no night shows anything
    believed_deviations: float = 3.3  # of the replays alone, whatever the nights say
    few_launches: float = 1.5  # few launches of a series with two modes can agree by chance: they are asked for more
    believed_log_odds: float = 5.5  # nights and replays together, against one change in so many points
    min_change: float = 0.003
    told_deviations: float = 3.7  # of all replays across the build that is named
    told_change: float = 0.0025
    told_launches: int = 8  # fewer agree by chance now and then, of all the series and nights there are
    told_located: float = 0.92  # less sure of the build, it is asked about again another night
    member_log_odds: float = 1.5  # that a shape changed, when its kernel's shapes together did
    sibling_log_odds: float = -1.0  # the same, when one of them did
    elsewhere_log_odds: float = -2.5  # the same, of a shape on another node
    several_log_odds: float = 3.5  # the same, when two shapes on this node did at one build
    sibling_deviations: float = 2.8  # of such a shape's own replays
    several_deviations: float = 1.0
    several_believed_log_odds: float = 5.0
    first_launches: int = 3
    step_launches: int = 12  # at most so many at once: what they say may end it
    step_share: int = 4  # at least this part of what was spent already, while it stays open
    most_launches: int = 96  # per suspicion and night, for confirming
    sizing_launches: int = 32
    size_error: float = 0.0015  # a confirmed size is measured to this standard error, if the launches reach
    located: float = 0.98  # enough probability on one build to name it
    bisections: int = 8
    check_after_nights: int = 5  # after a machine or toolchain change, before its nights are history
    check_launches: int = 3
    reasoned_log_odds: float = -1.0  # that builds differ which are compared for a reason, as new machine code is
    budget: float = 0.60  # replay launches a night, as a share of the night's own launches
    saved_nights: float = 5.0  # nights of unused budget that may be spent at once
    rounds: int = 23  # replay rounds a night; one below the 24 that a night allows


class BadPolicy(ExpectedError, ValueError):
    """A policy file that cannot be used; the message is a sentence naming file and field."""


def load(path: Path | None) -> Policy:
    """The policy of a file; the one that is reported on where there is none."""
    if path is None:
        return Policy()
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadPolicy(f"the policy {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadPolicy(f"the policy {path} is not JSON") from None
    if not isinstance(told, dict):
        raise BadPolicy(f"the policy {path} is not a JSON object of names and numbers")
    numbers: dict[str, Any] = {name: _number(path, name, value) for name, value in told.items()}
    return replace(Policy(name=path.stem), **numbers)


def _number(path: Path, name: str, value: Any) -> float | int:
    numbers = {name: number for name, number in asdict(Policy()).items() if name != "name"}
    if name not in numbers:
        raise BadPolicy(f"the policy {path} has '{name}', which is no number of a policy; known: {', '.join(numbers)}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadPolicy(f"the policy {path} has {name}={value!r}; expected a number")
    if isinstance(numbers[name], int) and value != int(value):
        raise BadPolicy(f"the policy {path} has {name}={value!r}; expected a whole number")
    return int(value) if isinstance(numbers[name], int) else float(value)
