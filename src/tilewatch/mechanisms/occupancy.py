"""Computes how many thread blocks of a cubin fit on a multiprocessor at once, and which resource limits them."""

from collections.abc import Mapping
from dataclasses import dataclass

WARP_THREADS = 32
REGISTERS_PER_WARP_STEP = 256
"""The number of registers in one step by which the GPU allocates registers to a warp."""

RESERVED_SHARED_BYTES = 1024
"""The bytes of shared memory that the system reserves per thread block (compute capability 8.0 and later)."""


@dataclass(frozen=True)
class Multiprocessor:
    """The limits of a multiprocessor (CUDA programming guide, technical specifications per compute capability)."""

    registers: int
    shared_bytes: int
    threads: int
    blocks: int


MULTIPROCESSORS: Mapping[str, Multiprocessor] = {
    "sm_80": Multiprocessor(65536, 164 << 10, 2048, 32),
    "sm_90": Multiprocessor(65536, 228 << 10, 2048, 32),
    "sm_100": Multiprocessor(65536, 228 << 10, 2048, 32),
    "sm_103": Multiprocessor(65536, 228 << 10, 2048, 32),
    "sm_120": Multiprocessor(65536, 100 << 10, 1536, 24),
}


@dataclass(frozen=True)
class Occupancy:
    """The number of thread blocks that fit on a multiprocessor at once, and the resource that limits them."""

    blocks: int
    warps_share: float
    limited_by: str


def occupancy(arch: str, threads_per_block: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """Returns how many thread blocks fit on a multiprocessor at once; None for an unknown architecture."""
    has = MULTIPROCESSORS.get(arch)
    if has is None:
        return None
    warps = -(-threads_per_block // WARP_THREADS)
    per_warp = -(-registers * WARP_THREADS // REGISTERS_PER_WARP_STEP) * REGISTERS_PER_WARP_STEP
    fits = {
        "registers": has.registers // (per_warp * warps) if per_warp else has.blocks,
        "shared memory": has.shared_bytes // (shared_bytes + RESERVED_SHARED_BYTES),
        "threads": has.threads // (warps * WARP_THREADS),
        "blocks": has.blocks,
    }
    limit = min(fits, key=lambda name: fits[name])
    return Occupancy(fits[limit], fits[limit] * warps * WARP_THREADS / has.threads, limit)
