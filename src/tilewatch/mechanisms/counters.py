"""Names the hardware counters that a run may store. kernels/measuring/profiling.py reads the counters."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Counter:
    """A hardware counter. `label` is its name for people, and `meaning` explains it."""

    name: str
    label: str
    meaning: str


COUNTERS = (
    Counter("warps_active_pct", "warps active, %", "Warps at work, of those a multiprocessor has room for."),
    Counter("tensor_pipe_pct", "Tensor Cores busy, %", "Cycles in which the Tensor Cores worked, of all."),
    Counter("tensor_operations", "Tensor Core operations", "Operations that the Tensor Cores did, padding included."),
    Counter("dram_read_bytes", "read from memory, bytes", "Bytes from device memory."),
    Counter("dram_write_bytes", "written to memory, bytes", "Bytes to device memory; what stays in L2 is not among."),
    Counter("dram_pct", "device memory busy, %", "Device memory's throughput, of its peak."),
    Counter("l2_bytes", "through L2, bytes", "Bytes that L2 gave or took."),
    Counter("l2_hit_pct", "L2 hits, %", "Accesses that L2 answered without device memory."),
    Counter("tma_load_bytes", "loaded by TMA, bytes", "Bytes that TMA brought into shared memory."),
    Counter("bank_conflicts", "bank conflicts", "Extra cycles of shared memory because of conflicts between banks."),
    Counter("instructions", "instructions", "Instructions that warps executed."),
    Counter("spilled_bytes", "spilled, bytes", "Bytes of registers written to local memory and read back."),
    Counter("stalled_on_memory", "waiting for memory", "Warps that wait for global or local memory, per issue."),
    Counter("stalled_on_shared", "waiting for shared memory", "Warps that wait for shared memory, per issue."),
    Counter("stalled_on_barrier", "waiting at barriers", "Warps that wait at a barrier, per issue."),
    Counter("stalled_on_mma", "waiting for Tensor Cores", "Warps that wait for warpgroup products, per issue."),
    Counter("stalled_on_latency", "waiting a fixed time", "Warps that wait a fixed number of cycles, per issue."),
)

LABELS: Mapping[str, str] = {each.name: each.label for each in COUNTERS}
