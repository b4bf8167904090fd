"""Measures the most memory that this process has used. `ru_maxrss` would count what its parent used before it started
this process (Linux: vfork, then execve): 1,051 MiB of a test process in one drawn order (2026-11-29)."""

import re
from pathlib import Path


def read_peak_mib() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def reset_peak() -> None:
    """Makes the memory that is used now the most that was used (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")
