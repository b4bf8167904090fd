"""A policy as a file: JSON with some of the numbers of worker/detection/reading.py's Policy, the others staying as they
are.

The file's name, without its ending, is the policy's, so that a verdict says which numbers judged it.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tilewatch.worker.detection.reading import Policy


class BadPolicy(ValueError):
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
