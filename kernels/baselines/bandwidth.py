"""A baseline for kernels that only move data: a copy of the same number of bytes."""

import cupy

from tilewatch.kernels.baselines.baseline import BaselineLaunch, Call

SOURCE = r"""
extern "C" __global__ void copy_16_bytes(const uint4* from, uint4* to, long long count) {
    long long step = (long long)gridDim.x * blockDim.x;
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; at + 3 * step < count; at += 4 * step) {
        uint4 a = from[at], b = from[at + step], c = from[at + 2 * step], d = from[at + 3 * step];
        to[at] = a; to[at + step] = b; to[at + 2 * step] = c; to[at + 3 * step] = d;
    }
    for (; at < count; at += step) to[at] = from[at];
}
"""
THREADS = 512
BLOCKS_PER_MULTIPROCESSOR = 4


def copy(call: Call) -> BaselineLaunch:
    """Returns a launch of a copy. Its reads and writes together move as many bytes as the problem."""
    count = max(1, call.bytes // 2 // 16)
    source, target = cupy.ones(4 * count, dtype=cupy.uint32), cupy.empty(4 * count, dtype=cupy.uint32)
    kernel = cupy.RawKernel(SOURCE, "copy_16_bytes")
    blocks = BLOCKS_PER_MULTIPROCESSOR * cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = min(blocks, -(-count // THREADS))
    return BaselineLaunch(
        lambda: kernel((blocks,), (THREADS,), (source, target, cupy.int64(count))), {"bytes": 32 * count}, solves=False
    )
