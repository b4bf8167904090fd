"""Places each array between two guards of random bytes. A kernel that writes outside of its arrays changes a guard."""

import functools
import math
import os
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

ALIGNMENT, LARGE_ALIGNMENT = 512, 2 << 20
LARGE_BYTES = 1 << 20
"""Arrays of at least this many bytes start at multiples of LARGE_ALIGNMENT, smaller arrays at multiples of ALIGNMENT.
So guards leave arrays aligned as by CuPy's pool (512 bytes) and CUDA's large pages (2 MiB), because the times of
memory-bound kernels depend on where arrays lie."""

LEAST_GUARD, MOST_GUARD = 512, 64 << 10
GUARD_SHARE = 8
"""A guard's size is its array's size divided by this, but at least LEAST_GUARD and at most MOST_GUARD. An eighth of a
matrix is usually at least one row, so a tile that lies one row too low hits the guard, whatever its column."""

WRITES_OUTSIDE = "it writes outside of its arrays"
WROTE_OUTSIDE = "when it was timed, it wrote outside of its arrays"
"""The two messages about writes to a guard, each followed by a colon and the description from `restore`."""

THREADS = 256
SOURCE = r"""
extern "C" __global__ void restore_guards(const unsigned long long* places, unsigned long long seed,
                                          unsigned int* counts, unsigned int* firsts) {
    __shared__ unsigned int count, first;
    if (threadIdx.x == 0) { count = 0; first = 0xFFFFFFFFu; }
    __syncthreads();
    unsigned long long begin = places[2 * blockIdx.x], end = begin + places[2 * blockIdx.x + 1];
    for (unsigned long long at = (begin & ~7ull) + 8 * threadIdx.x; at < end; at += 8 * blockDim.x) {
        unsigned long long* word = (unsigned long long*)at;
        unsigned long long ours = at < begin ? ~0ull << 8 * (begin - at) : ~0ull;  // before it lies the array's end
        unsigned long long x = seed ^ at;  // then splitmix64 (Steele, Lea and Flood, 2014)
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
        unsigned long long wrong = (*word ^ x ^ (x >> 31)) & ours;
        if (!wrong) continue;
        *word ^= wrong;
        for (int byte = 0; byte < 8; ++byte)
            if ((wrong >> 8 * byte) & 0xFF) {
                atomicAdd(&count, 1u);
                atomicMin(&first, (unsigned int)(at + byte - begin));
            }
    }
    __syncthreads();
    if (threadIdx.x == 0) { counts[blockIdx.x] = count; firsts[blockIdx.x] = first; }
}
"""
"""CUDA code of a kernel in which each thread block checks one guard. A guard ends at a multiple of 8 bytes. Its random
bytes are computed from their address and a seed of this run, so no copy of them takes memory."""


@dataclass(frozen=True)
class _Guard:
    """A region before or after an array, into which no kernel may write."""

    address: int
    nbytes: int
    array: str
    is_behind: bool

    def describe(self, count: int, first: int) -> str:
        """Returns a phrase that says how many bytes changed, and where."""
        bytes_ = f"{count:,} byte{'s' if count > 1 else ''}"
        if self.is_behind:
            return f"{bytes_} behind {self.array}, the first one {first:,} after its end"
        return f"{bytes_} in front of {self.array}, the first one {self.nbytes - first:,} before its start"


class Guards:
    """The guarded arrays of one problem, and their memory."""

    def __init__(self) -> None:
        self._seed = int.from_bytes(os.urandom(8), "little")
        self._guards: list[_Guard] = []
        self._blocks: list[Any] = []
        self._places = self._counts = self._firsts = cupy.empty(0, dtype=cupy.uint32)

    def make_empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Returns an uninitialized array between two new guards. Call `restore` before the first launch."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        guard_bytes = min(MOST_GUARD, max(LEAST_GUARD, -(-nbytes // GUARD_SHARE // ALIGNMENT) * ALIGNMENT))
        alignment = LARGE_ALIGNMENT if nbytes > LARGE_BYTES else ALIGNMENT
        block = cupy.empty(guard_bytes + alignment + nbytes + guard_bytes, dtype=cupy.uint8)
        address = int(block.data.ptr)
        start = guard_bytes + -(address + guard_bytes) % alignment
        end = start + nbytes
        self._blocks.append(block)
        self._guards += [
            _Guard(address + start - guard_bytes, guard_bytes, name, is_behind=False),
            _Guard(address + end, guard_bytes - nbytes % 8, name, is_behind=True),
        ]
        return block[start:end].view(dtype).reshape(shape)

    def restore(self) -> str | None:
        """Restores all guards. Returns a description of the most changed guard, or None if all were intact."""
        if not self._guards:
            return None
        if self._counts.size != len(self._guards):
            places = [[each.address, each.nbytes] for each in self._guards]
            self._places = cupy.asarray(np.array(places, dtype=np.uint64))
            self._counts, self._firsts = (cupy.empty(len(places), dtype=cupy.uint32) for _ in range(2))
        seed = cupy.uint64(self._seed)
        _restore()((len(self._guards),), (THREADS,), (self._places, seed, self._counts, self._firsts))
        # Searched on the host: CUB compiles a reduction for 4 s, again for each power of two that the number of guards
        # passes, and small arrays have thousands of guards (H100, 2026-11-27).
        counts = self._counts.get()
        if not counts.any():
            return None
        firsts = self._firsts.get()
        worst = int(counts.argmax())
        return self._guards[worst].describe(int(counts[worst]), int(firsts[worst]))


@functools.cache
def _restore() -> Any:
    return cupy.RawKernel(SOURCE, "restore_guards")
