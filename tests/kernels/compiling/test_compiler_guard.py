"""Which compiler is killed, and what is said of it."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewatch import processes
from tilewatch.kernels.compiling.compiler_guard import CompilerGuard

GONE = 72


def watch(
    patch: pytest.MonkeyPatch, folder: Path, *looks: Mapping[int, tuple[float, int]]
) -> tuple[CompilerGuard, list[int]]:
    """What a guard of 15 s and 100 bytes says and kills after some looks at CPU times and memory by process."""
    killed: list[int] = []
    seen = iter(looks)
    now: dict[int, tuple[float, int]] = {}

    def wait(_: float) -> bool:
        now.clear()
        now.update(next(seen, {}))
        children.write_text(" ".join(map(str, now)))
        return not now

    def kill(process: int, what: int) -> None:
        assert what == signal.SIGKILL
        if process == GONE:
            raise ProcessLookupError
        killed.append(process)

    def measure(process: int) -> SimpleNamespace:
        cpu_s, resident_bytes = now[process]
        return SimpleNamespace(cpu_s=cpu_s, resident_bytes=resident_bytes)

    children = folder / "children"
    patch.setattr(os, "kill", kill)
    patch.setattr(processes, "measure_usage", measure)
    patch.setattr(processes, "list_descendants", lambda process: (10 * process + 2, 10 * process + 3))
    guard: Any = CompilerGuard(memory_bytes=100, cpu_s=15.0)
    guard._children, guard._over = children, SimpleNamespace(wait=wait)
    guard._watch()
    return guard, killed


@pytest.mark.parametrize(
    ("cpu_s", "resident_bytes", "exceeded"),
    [(15.0, 100, None), (15.1, 100, "cpu"), (15.0, 101, "memory"), (15.1, 101, "memory")],
)
def test_a_compiler_over_a_limit_is_killed_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpu_s: float, resident_bytes: int, exceeded: str | None
) -> None:
    """One of its processes has ended by itself."""
    guard, killed = watch(monkeypatch, tmp_path, {7: (cpu_s, resident_bytes)})
    assert (guard.exceeded, guard.cpu_s) == (exceeded, cpu_s)
    assert killed == ([73, 7] if exceeded else [])


def test_a_guard_looks_at_each_child_and_knows_the_most_cpu_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guard, killed = watch(monkeypatch, tmp_path, {7: (3.0, 5), 8: (1.0, 5)}, {7: (0.0, 5), 8: (2.0, 200)})
    assert (guard.exceeded, guard.cpu_s, killed) == ("memory", 3.0, [82, 83, 8])


def test_a_guard_watches_while_something_is_compiled() -> None:
    with CompilerGuard(memory_bytes=100, cpu_s=15.0) as guard:
        assert guard._thread.is_alive()
    assert not guard._thread.is_alive()
    assert guard.exceeded is None
