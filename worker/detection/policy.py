"""Defines every number that decides, and reads a policy file: JSON with some of them; the others keep their values.

The file's name without its ending is the policy's name, which is stored with each verdict.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilewatch.errors import ExpectedError


@dataclass(frozen=True)
class Policy:
    """The numbers by which the judge decides. They were tuned on worlds of benchmarks/judge.py with other seeds than
    those reported. Log-odds are natural logarithms."""

    name: str = "replay-12"
    min_history: int = 5  # nights on a machine and toolchain before one there is judged, or its first night asked about
    before_nights: int = 40  # a level older than this has drifted
    after_nights: int = 24  # a change is searched among the builds of so many
    clip_deviations: float = 3.5  # one wild night weighs no more than this
    nightly_log_odds: float = 6.0  # the most that nights count for: other things than code move them
    changes_a_point: float = 0.001  # how often a series changes
    fresh_nights: int = 3  # what only the last so many nights of a series measured can still be reported soon
    worth_launches: float = 500.0  # what reporting a fresh change, or one of new code, is worth, in replay launches
    late_worth_launches: float = 28.0  # the same of an older one, which its author no longer remembers
    believed_deviations: float = 3.7  # least significance of the replays, without the nights' evidence
    believed_log_odds: float = 5.5  # nights, replays and prior together
    min_change: float = 0.003  # a smaller change is irrelevant, and no night's noise is less than a sixth of it
    least_launches: int = 8  # before a change is reported, for fewer agree by chance; and at most so many at once
    first_launches: int = 3
    most_launches: int = 96  # per suspicion and night, for confirming
    sizing_launches: int = 32
    size_error: float = 0.0015  # a confirmed size is measured to this standard error, if the launches reach
    located: float = 0.98  # enough probability on one build to name it
    reasoned_log_odds: float = -1.0  # prior that a series changed whose code did, or whose kernel's other shapes
    budget: float = 1.00  # replay launches a night, as a share of the night's own launches
    rounds: int = 23  # replay rounds a night; one below the 24 that a night allows


MOST = 1_000_000
"""The largest number that a policy may have: Python's JSON may also say NaN and Infinity."""


class BadPolicy(ExpectedError, ValueError):
    """A policy file that cannot be used; the message is a sentence naming file and field."""


def load(path: Path | None) -> Policy:
    """Reads the policy of a file; the default without a file. Raises BadPolicy."""
    if path is None:
        return Policy()
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadPolicy(f"the policy {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadPolicy(f"the policy {path} is not JSON") from None
    if not isinstance(fields, dict):
        raise BadPolicy(f"the policy {path} is not a JSON object of names and numbers")
    numbers: dict[str, Any] = {name: _number(path, name, value) for name, value in fields.items()}
    return replace(Policy(name=path.stem), **numbers)


def _number(path: Path, name: str, value: Any) -> float | int:
    numbers = {name: number for name, number in asdict(Policy()).items() if name != "name"}
    if name not in numbers:
        raise BadPolicy(f"the policy {path} has '{name}', which is no number of a policy; known: {', '.join(numbers)}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
        raise BadPolicy(f"the policy {path} has {name}={value!r}; expected a number of at most {MOST:,} either way")
    if isinstance(numbers[name], int) and (value != int(value) or value < 0):
        raise BadPolicy(f"the policy {path} has {name}={value!r}; expected a whole number from 0 up")
    return int(value) if isinstance(numbers[name], int) else float(value)
