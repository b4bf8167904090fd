"""What people should know that is no regression of a time. Pure: facts of the last nights in, standing alarms out.

An alarm is what stands: it opens when it begins to stand and closes by itself when it does not any more. Its key holds
since when it stands (a night, a commit, a version), so that the same trouble a second time is a second alarm.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Standing:
    kind: str
    key: str
    subject: str
    detail: str
    kernel: str | None = None
    gpu_model: str | None = None


@dataclass(frozen=True)
class Changes:
    """Alarms to open, and keys of those to close."""

    to_open: tuple[Standing, ...]
    to_close: tuple[str, ...]


def changes(standing: Iterable[Standing], open_keys: Iterable[str]) -> Changes:
    by_key = {alarm.key: alarm for alarm in standing}
    known = set(open_keys)
    return Changes(
        tuple(alarm for key, alarm in sorted(by_key.items()) if key not in known),
        tuple(sorted(known - by_key.keys())),
    )
