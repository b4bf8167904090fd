"""Defines a rule for each mechanism that can make a kernel slower."""

from collections.abc import Callable, Mapping

from tilewatch.mechanisms.occupancy import WARP_THREADS, occupancy
from tilewatch.mechanisms.pairs import Number, Pair, WinnerFacts, read_counters, read_facts, read_share, sum_moved
from tilewatch.mechanisms.tiles import count_loaded, count_read_together, find_padded_share, read_size

# The bounds were chosen on the library's kernels for sm_90 (2026-11); benchmarks/mechanisms.py scores them.
SPILLED_BYTES = 64
"""The least stack bytes per thread that count as spills. Kernels without spills use up to 32 (H200, 2026-11)."""

LESS_WORK, FEWER_WARPS, FEWER_STAGES = 1.04, 0.8, 0.85
MORE_INSTRUCTIONS, MORE_CODE, MORE_BYTES, MORE_WAITING, LOWER_CLOCK = 1.03, 1.15, 1.1, 1.25, 0.985
"""Bounds of the ratio of the slower version's value to the faster's. A rule holds if the ratio is beyond its bound."""

LOST_HITS_PCT = 3.0
CONFLICTS_SHARE = 0.01
"""The least number of bank conflicts that counts, as a share of all instructions."""

MORE_WARPS_WAIT = 0.1
"""The least increase of waiting warps that counts. Five readings of a cubin differed by up to 0.03 (2026-11-22)."""

LESS_SHARED = 2.0
"""L2 sharing counts as worse if concurrent thread blocks of the slower version read at least this many times as many
rows and columns. On 8192x8192x8192, gemm_tiled with one row per group is 6 % slower than with four in the median, and
23 % for a quarter of the configs. Four, eight and sixteen rows are within 2 % (H200, 2026-11-22)."""

LARGE_CLUSTER = 4
"""The least cluster size that costs time. The median config of gemm_fp8 took 1.5 to 2.6 times as long with 4 thread
blocks as with 2, 1.8 to 2.1 times with 8 as with 4, and 0.8 to 0.9 times with 2 as with 1 (H200, 2026-11-22)."""

WAITS = (("stalled_on_memory", "warps that wait for memory"), ("stalled_on_mma", "warps that wait for Tensor Cores"))

INSTRUCTION_BYTES = 16
OWN_THREADS = 128
"""The threads of a thread block that are in no worker warp. A thread block without worker warps has only these."""

DEFAULT_WORKER_WARPS = 4


def _lost_tensor_cores(pair: Pair) -> list[Number]:
    shares = [read_share(each, "tensor_core_mmas", "mmas") for each in (pair.fast, pair.slow)]
    if None not in shares and shares[1] < shares[0]:  # type: ignore[operator]
        return [Number("% of products on Tensor Cores", 100 * (shares[0] or 0), 100 * (shares[1] or 0))]
    moved = sum_moved(pair, "Tensor Core")
    arithmetic = sum_moved(pair, "float arithmetic")
    if moved and moved.head < moved.base and arithmetic and arithmetic.head > 2 * max(1, arithmetic.base):
        return [moved, arithmetic]
    return []


def _lost_tma(pair: Pair) -> list[Number]:
    shares = [read_share(each, "tma_loads", "loads") for each in (pair.fast, pair.slow)]
    if None not in shares and shares[1] < shares[0]:  # type: ignore[operator]
        return [Number("% of loads by TMA", 100 * (shares[0] or 0), 100 * (shares[1] or 0))]
    for kind, other in (("TMA loads", "global loads"), ("TMA stores", "global stores")):
        moved, instead = sum_moved(pair, kind), sum_moved(pair, other)
        if moved and moved.head < moved.base and instead and instead.head > instead.base:
            return [moved, instead]
    return []


def _spills(pair: Pair) -> list[Number]:
    spilled = read_counters(pair, "spilled_bytes", "spilled bytes")
    if spilled and spilled.head > MORE_BYTES * spilled.base + SPILLED_BYTES:
        return [spilled]
    stack = read_facts(pair, "stack_bytes", "bytes of stack a thread")
    if stack and stack.head >= SPILLED_BYTES and stack.head > MORE_BYTES * stack.base:
        moved = sum_moved(pair, "spills")
        return [stack, moved] if moved else [stack]
    return []


def _quantisation(pair: Pair) -> list[Number]:
    """Returns the numbers that show clearly more work, padding included, in the slower version; else []."""
    counted = read_counters(pair, "tensor_operations", "Tensor Core operations")
    if counted and counted.base and counted.head:
        return [counted] if counted.head >= LESS_WORK * counted.base else []
    shares = [find_padded_share(each.params, pair.sizes) for each in (pair.fast, pair.slow)]
    if None in shares or shares[1] < LESS_WORK * shares[0]:  # type: ignore[operator]
        return []
    return [Number("work with padding / without", shares[0] or 0, shares[1] or 0)]


def _occupancy(pair: Pair) -> list[Number]:
    active = read_counters(pair, "warps_active_pct", "% of warps at work")
    if active:
        return [active] if active.head < FEWER_WARPS * active.base else []
    shares = [_find_warps_share(each, pair.arch) for each in (pair.fast, pair.slow)]
    if None in shares or shares[1] >= FEWER_WARPS * shares[0]:  # type: ignore[operator]
        return []
    return [Number("% of warps that fit", 100 * (shares[0] or 0), 100 * (shares[1] or 0))]


def _bank_conflicts(pair: Pair) -> list[Number]:
    conflicts = read_counters(pair, "bank_conflicts", "bank conflicts")
    instructions = pair.slow.counters.get("instructions", 0.0)
    grew = conflicts is not None and conflicts.head > MORE_WAITING * conflicts.base
    return [conflicts] if conflicts and grew and conflicts.head > CONFLICTS_SHARE * instructions else []


def _l2(pair: Pair) -> list[Number]:
    hits = read_counters(pair, "l2_hit_pct", "% of L2 hits")
    read = read_counters(pair, "dram_read_bytes", "bytes read from memory")
    if hits and read:
        return [hits, read] if hits.head < hits.base - LOST_HITS_PCT and read.head > MORE_BYTES * read.base else []
    loaded = [count_loaded(each.params) for each in (pair.fast, pair.slow)]
    if None not in loaded and loaded[1] >= MORE_BYTES * loaded[0]:  # type: ignore[operator]
        return [Number("elements loaded per 1,000 products", 1000 * (loaded[0] or 0), 1000 * (loaded[1] or 0))]
    return _swizzle(pair)


def _swizzle(pair: Pair) -> list[Number]:
    """Returns the numbers that show less sharing of tiles between thread blocks in the slower version; else []."""
    if pair.fast.is_swizzled and pair.slow.is_swizzled is False:
        return [Number("2-D swizzle (1: yes)", 1, 0)]
    together = [count_read_together(each.params, pair.sizes) for each in (pair.fast, pair.slow)]
    if not pair.has_same_tiles or None in together or together[1] < LESS_SHARED * together[0]:  # type: ignore[operator]
        return []
    return [Number("rows and columns that blocks read at a time", together[0] or 0, together[1] or 0)]


def _clusters(pair: Pair) -> list[Number]:
    """Returns the cluster sizes if the slower version has much larger clusters; else []."""
    fast, slow = (read_size(each.params.get("num_ctas")) for each in (pair.fast, pair.slow))
    if fast is None or slow is None or slow < LARGE_CLUSTER or slow < 2 * fast:
        return []
    return [Number("blocks of a cluster", fast, slow)]


def _overlap(pair: Pair) -> list[Number]:
    for name, label in WAITS:
        waiting = read_counters(pair, name, label)
        instructions = read_counters(pair, "instructions", "instructions")
        if waiting and instructions and waiting.head > MORE_WAITING * waiting.base + MORE_WARPS_WAIT:
            return [waiting] if instructions.head < MORE_INSTRUCTIONS * instructions.base else []
    shared = read_facts(pair, "shared_bytes", "bytes of shared memory")
    if pair.has_same_tiles and shared and shared.head < FEWER_STAGES * shared.base:
        return [shared]
    waits, products = sum_moved(pair, "barriers", in_loop=True), sum_moved(pair, "Tensor Core", in_loop=True)
    return [waits] if waits and waits.head > MORE_BYTES * waits.base and not products else []


def _instructions(pair: Pair) -> list[Number]:
    counted = read_counters(pair, "instructions", "instructions")
    if counted:
        return [counted] if counted.head > MORE_INSTRUCTIONS * counted.base else []
    if not pair.has_same_tiles:
        return []
    size = read_facts(pair, "code_bytes", "bytes of code")
    if size and not pair.moved:
        return [size] if size.head > MORE_CODE * size.base else []
    for in_loop in (True, False):
        base = sum(each.base for each in pair.moved if each.in_loop == in_loop)
        head = sum(each.head for each in pair.moved if each.in_loop == in_loop)
        whole = (pair.fast.fact("code_bytes") or 0) / INSTRUCTION_BYTES
        if head > base and head - base > (MORE_INSTRUCTIONS - 1) * whole:
            where = "in loops" if in_loop else "outside loops"
            return [Number(f"instructions that differ {where}", base, head)]
    return []


def _clocks(pair: Pair) -> list[Number]:
    fast, slow = pair.fast.sm_clock_mhz, pair.slow.sm_clock_mhz
    return [Number("MHz", fast, slow)] if fast and slow and slow < LOWER_CLOCK * fast else []


RULES: Mapping[str, Callable[[Pair], list[Number]]] = {
    "tensor_cores": _lost_tensor_cores,
    "tma": _lost_tma,
    "spills": _spills,
    "quantisation": _quantisation,
    "occupancy": _occupancy,
    "bank_conflicts": _bank_conflicts,
    "l2": _l2,
    "overlap": _overlap,
    "clusters": _clusters,
    "instructions": _instructions,
    "clocks": _clocks,
}
"""The rule of each mechanism. A rule returns the numbers in which the slower version is worse, with the faster
version's as `base`; empty if the rule does not hold."""


def _find_warps_share(version: WinnerFacts, arch: str) -> float | None:
    registers, shared = version.fact("registers"), version.fact("shared_bytes")
    if registers is None or shared is None:
        return None
    found = occupancy(arch, version.fact("threads_per_block") or _guess_threads(version), registers, shared)
    return None if found is None else found.warps_share


def _guess_threads(version: WinnerFacts) -> int:
    """Returns a guess of the number of threads in a thread block."""
    # Only TMA loads and products add warps, as 116 cubins for sm_90 show.
    if not version.fact("tma_loads") and not version.fact("tensor_core_mmas"):
        return OWN_THREADS
    return OWN_THREADS + WARP_THREADS * (read_size(version.params.get("num_worker_warps")) or DEFAULT_WORKER_WARPS)
