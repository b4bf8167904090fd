"""Repeats a timing if another process used the GPU meanwhile, except for processes of the same worker."""

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
"""Waits before GpuBusy is raised. Another user's short test has ended by then, but not a longer job."""


class GpuBusy(ExpectedError):
    """Raised if another user's process keeps the GPU busy."""


class UndisturbedGpu:
    """Repeats a timing until no other process uses the GPU at the same time."""

    def __init__(self) -> None:
        self._running: set[int] | None = None
        """Other processes that ran when processes were last listed, or None before the first list. A process that has
        ended since then disturbed the launches that began before its end."""
        self._met: set[str] = set()

    def ask(self, process: ChildProcess, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Returns the answer to a request that no other process disturbed. Raises ChildDied, ChildHung or GpuBusy."""
        if self._running is None:
            self._find(process.ask({"ask": "look"}, deadline_s=deadline_s)["seen"])
        for _ in range(1 + MOST_WAITS):
            answer = process.ask(request, deadline_s=deadline_s)
            seen = answer.pop("seen", None)
            others = set() if seen is None else self._find(seen)
            if not others:
                self._note(answer, seen or {})
                return answer
            self._met |= {_describe_process(each) for each in others}
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


def _describe_process(process_id: int) -> str:
    """Returns a process's id and name. A process of another container has no name."""
    try:
        name = Path(f"/proc/{process_id}/comm").read_text(errors="replace").strip()
    except OSError:
        name = ""
    return f"{process_id} {name}" if name and name.isprintable() else f"process {process_id}"
