"""Defines the thresholds that decide whether a time changed. A policy file is a JSON object of changed thresholds."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilewatch.errors import ExpectedError
from tilewatch.given_files import BadFile, read_given_text


@dataclass(frozen=True)
class Policy:
    """The thresholds of change detection, tuned on simulated histories. Log-odds are natural logarithms."""

    name: str = "replay-12"
    min_history: int = 5  # earlier nights on the same machine and toolchain that a verdict needs
    before_nights: int = 40  # nights before a change that count; an older level has drifted
    after_nights: int = 24  # newest nights among whose builds a change is searched
    clip_deviations: float = 3.5  # farthest that a night counts from the median, in deviations of a night
    nightly_log_odds: float = 6.0  # the most that nights count for: other things than code move them
    changes_a_point: float = 0.001  # how often a series changes, per build
    fresh_nights: int = 3  # newest nights of a series; a build that only they measured is fresh
    worth_launches: float = 500.0  # what reporting a fresh change, or one of new code, is worth, in replay launches
    late_worth_launches: float = 28.0  # what reporting an older change is worth: its author no longer remembers it
    believed_deviations: float = 3.7  # least significance of the replays, without the nights' evidence
    believed_log_odds: float = 5.5  # least log-odds of nights, replays and prior together
    min_change: float = 0.003  # smaller changes are irrelevant; a night's noise is taken as at least a sixth of this
    least_launches: int = 8  # fewest launches behind a reported change, and the most in one question
    first_launches: int = 3  # fewest launches in a question
    most_launches: int = 96  # most launches per suspicion and night to confirm it
    sizing_launches: int = 32  # most launches to measure the size of a confirmed change
    size_error: float = 0.0015  # standard error that the size of a confirmed change shall have
    located: float = 0.98  # probability of one build that is enough to name it
    reasoned_log_odds: float = -1.0  # prior for a series with new code, or with a change in another shape of its kernel
    budget: float = 1.00  # replay launches a night, as a share of the night's own launches
    ask_each_node: int = 0  # 1: new code is replayed for each node that measures it, not for the first one alone
    rounds: int = 23  # replay rounds a night; one below the 24 that a night allows


LONGEST_BYTES = 1 << 20
MOST = 1_000_000
"""The largest number that a policy may have. This bound also rejects NaN and Infinity, which Python reads from JSON."""


class BadPolicy(ExpectedError, ValueError):
    """Raised if a policy file cannot be used."""


def load(path: Path | None) -> Policy:
    """Returns the policy in a file, or the default without a file. Raises BadPolicy if the file is invalid."""
    if path is None:
        return Policy()
    try:
        fields = json.loads(read_given_text(path, LONGEST_BYTES))
    except BadFile as error:
        raise BadPolicy(f"the policy cannot be read: {error}") from None
    except (ValueError, RecursionError):
        raise BadPolicy(f"the policy {path} is not JSON") from None
    if not isinstance(fields, dict):
        raise BadPolicy(f"the policy {path} is not a JSON object of names and numbers")
    numbers: dict[str, Any] = {name: _number(path, name, value) for name, value in fields.items()}
    return replace(Policy(name=path.stem), **numbers)


def _number(path: Path, name: str, value: Any) -> float | int:
    numbers = {name: number for name, number in asdict(Policy()).items() if name != "name"}
    if name not in numbers:
        raise BadPolicy(f"the policy {path} has '{name}', which no policy has; known: {', '.join(numbers)}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
        raise BadPolicy(f"the policy {path} has {name}={value!r}; expected a number from {-MOST:,} to {MOST:,}")
    if isinstance(numbers[name], int) and (value != int(value) or value < 0):
        raise BadPolicy(f"the policy {path} has {name}={value!r}; expected a whole number from 0 up")
    return int(value) if isinstance(numbers[name], int) else float(value)
