"""Takes a time again that was taken while another process used the GPU.

The process that measures lists who was there, after its last launch (kernels/gpu/telemetry.py). Here is known which of
them are our own: the worker and all that it started, whose processes take turns (gpu_turn.py).
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.kernels.children.child_process import ChildProcess
from tilewatch.kernels.measuring.gpu_turn import find_root

WAIT_S = 1.0
MOST_WAITS = 30
"""A short test of somebody's has ended by then. A longer job keeps the GPU, and then nothing is measured on it."""


class GpuBusy(ExpectedError):
    """Somebody else's process is on the GPU; the message names it."""


class UndisturbedGpu:
    """Repeats a timing until no other process used the GPU during it. Disturbed times are discarded; the next reading
    lists the other processes under "others" (None if unknown)."""

    def __init__(self) -> None:
        self._running: set[int] | None = None
        """Who was there at the last look: a process that ended just now was there when the next launches began. None
        before the first look."""
        self._met: set[str] = set()

    def ask(self, process: ChildProcess, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Asks a process that has prepared a problem. Raises ChildDied, ChildHung, or GpuBusy where others stay."""
        if self._running is None:
            self._find(process.ask({"ask": "look"}, deadline_s=deadline_s)["seen"])
        for _ in range(1 + MOST_WAITS):
            answer = process.ask(request, deadline_s=deadline_s)
            seen = answer.pop("seen", None)
            others = set() if seen is None else self._find(seen)
            if not others:
                self._note(answer, seen or {})
                return answer
            self._met |= {_name(each) for each in others}
            time.sleep(WAIT_S)
        raise GpuBusy(
            f"the GPU was used by {', '.join(sorted(self._met))} for {MOST_WAITS * WAIT_S:g} s while it measured: end "
            "that, or keep other work off this GPU"
        )

    def _find(self, seen: Mapping[str, Any]) -> set[int]:
        others = {*(self._running or ()), *seen["running"], *seen["active"]}
        if others:
            others -= set(processes.list_descendants(find_root()))
        self._running = others & set(seen["running"])
        return others

    def _note(self, answer: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
        readings = answer.get("telemetry") or {}
        reading = readings if isinstance(readings, dict) else readings[-1]
        if "running" not in seen or not reading:
            return
        reading["others"] = None if seen["unknown"] and not self._met else sorted(self._met)
        if seen["unknown"]:
            reading.setdefault("unreadable", {})["others"] = seen["unknown"]
        self._met = set()


def _name(process_id: int) -> str:
    """Returns the name of a process. A process of another container has the number that its machine gives it, and no
    name here."""
    try:
        name = Path(f"/proc/{process_id}/comm").read_text(errors="replace").strip()
    except OSError:
        name = ""
    return f"{process_id} {name}" if name and name.isprintable() else f"process {process_id}"
