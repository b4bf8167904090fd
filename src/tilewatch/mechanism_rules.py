"""Holds the rule of each mechanism by which a build of a kernel can be slower than another.

The bounds were chosen on the library's kernels for sm_90 (2026-11); benchmarks/mechanisms.py scores them. A rule that
asks the counters is skipped where a side has none.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilewatch.occupancy import WARP_THREADS, occupancy

SPILLED_BYTES = 64
"""Stack of a thread that counts as spilled: kernels without spills have up to 32 bytes of it (H200, 2026-11)."""

LESS_WORK, FEWER_WARPS, FEWER_STAGES = 1.04, 0.8, 0.85
MORE_INSTRUCTIONS, MORE_CODE, MORE_BYTES, MORE_WAITING, LOWER_CLOCK = 1.03, 1.15, 1.1, 1.25, 0.985
"""Ratios of the slower build's number to the faster one's from which on a rule holds."""

LOST_HITS_PCT = 3.0
CONFLICTS_SHARE = 0.01
"""Bank conflicts, of all instructions, from which on they count."""

WHOLE = 100
"""From here on a number is written without its fraction."""

TILE = re.compile(r"(tile|block)(_size)?_", re.IGNORECASE)
"""How the name of a tile's side begins."""

WAITS = (
    ("stalled_on_memory", "warps that wait for memory"),
    ("stalled_on_mma", "warps that wait for Tensor Cores"),
)

INSTRUCTION_BYTES = 16
OWN_THREADS = 128
"""Threads of a block beside its worker warps, where it has such warps; all threads where it has none."""

DEFAULT_WORKER_WARPS = 4


@dataclass(frozen=True)
class Build:
    """One build of a kernel on a problem. A name that is missing, or None, is not known.

    `facts` are the static facts by their names in kernels/results.py, and `threads_per_block`; `counters` are those of
    tilewatch.counters.
    """

    params: Mapping[str, int]
    facts: Mapping[str, int | None]
    counters: Mapping[str, float] = field(default_factory=dict)
    sm_clock_mhz: float | None = None

    def fact(self, name: str) -> int | None:
        return self.facts.get(name)


@dataclass(frozen=True)
class Moved:
    """Instructions of a kind (kernels/code_diff/sass.py) that one side has more often, in loops or outside them."""

    kind: str
    in_loop: bool
    base: int
    head: int


@dataclass(frozen=True)
class Number:
    """A number that decided, of both builds in the order of time."""

    label: str
    base: float
    head: float

    def __str__(self) -> str:
        return f"{self.label} {_write(self.base)} -> {_write(self.head)}"


@dataclass(frozen=True)
class Pair:
    """Both builds by speed. `moved` counts the faster one's instructions as `base`."""

    fast: Build
    slow: Build
    moved: tuple[Moved, ...]
    sizes: tuple[int, ...]
    arch: str

    @property
    def has_same_tiles(self) -> bool:
        return _list_tiles(self.fast) == _list_tiles(self.slow)


def read_sizes(problem: str) -> tuple[int, ...]:
    """Returns the numbers of "320x32576x7168-bfloat16"; empty for a problem of another form."""
    found = re.fullmatch(r"(\d+(?:x\d+)+)(?:[-:]\w+)?", problem)
    return tuple(map(int, found[1].split("x"))) if found else ()


def _lost_tensor_cores(pair: Pair) -> list[Number]:
    shares = [_share(each, "tensor_core_mmas", "mmas") for each in (pair.fast, pair.slow)]
    if None not in shares and shares[1] < shares[0]:  # type: ignore[operator]
        return [Number("% of products on Tensor Cores", 100 * (shares[0] or 0), 100 * (shares[1] or 0))]
    moved = _sum_moved(pair, "Tensor Core")
    arithmetic = _sum_moved(pair, "float arithmetic")
    if moved and moved.head < moved.base and arithmetic and arithmetic.head > 2 * max(1, arithmetic.base):
        return [moved, arithmetic]
    return []


def _lost_tma(pair: Pair) -> list[Number]:
    shares = [_share(each, "tma_loads", "loads") for each in (pair.fast, pair.slow)]
    if None not in shares and shares[1] < shares[0]:  # type: ignore[operator]
        return [Number("% of loads by TMA", 100 * (shares[0] or 0), 100 * (shares[1] or 0))]
    for kind, other in (("TMA loads", "global loads"), ("TMA stores", "global stores")):
        moved, instead = _sum_moved(pair, kind), _sum_moved(pair, other)
        if moved and moved.head < moved.base and instead and instead.head > instead.base:
            return [moved, instead]
    return []


def _spills(pair: Pair) -> list[Number]:
    spilled = _read_counters(pair, "spilled_bytes", "spilled bytes")
    if spilled and spilled.head > MORE_BYTES * spilled.base + SPILLED_BYTES:
        return [spilled]
    stack = _read_facts(pair, "stack_bytes", "bytes of stack a thread")
    if stack and stack.head >= SPILLED_BYTES and stack.head > MORE_BYTES * stack.base:
        moved = _sum_moved(pair, "spills")
        return [stack, moved] if moved else [stack]
    return []


def _quantisation(pair: Pair) -> list[Number]:
    """The tiles cover more than the problem has: padding is work too, and the Tensor Cores' counter has it."""
    counted = _read_counters(pair, "tensor_operations", "Tensor Core operations")
    if counted and counted.base and counted.head:
        return [counted] if counted.head >= LESS_WORK * counted.base else []
    shares = [_find_padded_share(each.params, pair.sizes) for each in (pair.fast, pair.slow)]
    if None in shares or shares[1] < LESS_WORK * shares[0]:  # type: ignore[operator]
        return []
    return [Number("work with padding / without", shares[0] or 0, shares[1] or 0)]


def _occupancy(pair: Pair) -> list[Number]:
    active = _read_counters(pair, "warps_active_pct", "% of warps at work")
    if active:
        return [active] if active.head < FEWER_WARPS * active.base else []
    shares = [_find_warps_share(each, pair.arch) for each in (pair.fast, pair.slow)]
    if None in shares or shares[1] >= FEWER_WARPS * shares[0]:  # type: ignore[operator]
        return []
    return [Number("% of warps that fit", 100 * (shares[0] or 0), 100 * (shares[1] or 0))]


def _bank_conflicts(pair: Pair) -> list[Number]:
    conflicts = _read_counters(pair, "bank_conflicts", "bank conflicts")
    instructions = pair.slow.counters.get("instructions", 0.0)
    grew = conflicts is not None and conflicts.head > MORE_WAITING * conflicts.base
    return [conflicts] if conflicts and grew and conflicts.head > CONFLICTS_SHARE * instructions else []


def _l2(pair: Pair) -> list[Number]:
    hits = _read_counters(pair, "l2_hit_pct", "% of L2 hits")
    read = _read_counters(pair, "dram_read_bytes", "bytes read from memory")
    if hits and read:
        return [hits, read] if hits.head < hits.base - LOST_HITS_PCT and read.head > MORE_BYTES * read.base else []
    loaded = [_count_loaded(each.params) for each in (pair.fast, pair.slow)]
    if None in loaded or loaded[1] < MORE_BYTES * loaded[0]:  # type: ignore[operator]
        return []
    return [Number("elements loaded per 1,000 products", 1000 * (loaded[0] or 0), 1000 * (loaded[1] or 0))]


def _overlap(pair: Pair) -> list[Number]:
    for name, label in WAITS:
        waiting = _read_counters(pair, name, label)
        instructions = _read_counters(pair, "instructions", "instructions")
        if waiting and instructions and waiting.head > MORE_WAITING * waiting.base:
            return [waiting] if instructions.head < MORE_INSTRUCTIONS * instructions.base else []
    shared = _read_facts(pair, "shared_bytes", "bytes of shared memory")
    if pair.has_same_tiles and shared and shared.head < FEWER_STAGES * shared.base:
        return [shared]
    waits, products = _sum_moved(pair, "barriers", in_loop=True), _sum_moved(pair, "Tensor Core", in_loop=True)
    return [waits] if waits and waits.head > MORE_BYTES * waits.base and not products else []


def _instructions(pair: Pair) -> list[Number]:
    counted = _read_counters(pair, "instructions", "instructions")
    if counted:
        return [counted] if counted.head > MORE_INSTRUCTIONS * counted.base else []
    if not pair.has_same_tiles:
        return []
    size = _read_facts(pair, "code_bytes", "bytes of code")
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
    "instructions": _instructions,
    "clocks": _clocks,
}
"""Numbers in which the slower build is worse, the faster one's first; empty where the rule does not hold."""


LABELS = {"spills": "instructions that spill", "Tensor Core": "Tensor Core instructions"}
"""What instructions of a kind are called, where it is not the kind."""


def _list_tiles(build: Build) -> dict[str, int]:
    return {name: value for name, value in build.params.items() if TILE.match(name) or name == "num_ctas"}


def _find_side(params: Mapping[str, int], axis: str) -> int | None:
    """Returns the tile's side along an axis ("m", "rows"), by any of the names that people give it: TILE_SIZE_M."""
    return next((value for name, value in params.items() if TILE.sub("", name).lower() == axis), None)


def _count_loaded(params: Mapping[str, int]) -> float | None:
    """Returns how many elements of both operands are loaded for each multiplication; None for no matrix product."""
    m, n, k = (_find_side(params, axis) for axis in ("m", "n", "k"))
    return None if m is None or n is None or k is None else 1 / m + 1 / n


def _share(build: Build, part: str, whole: str) -> float | None:
    parts, all_of_them = build.fact(part), build.fact(whole)
    return None if parts is None or not all_of_them else parts / all_of_them


def _find_padded_share(params: Mapping[str, int], sizes: tuple[int, ...]) -> float | None:
    """Returns the work of whole tiles over that of the problem (1.25: a fifth is padding); None for a problem whose
    sizes are not those of its tiles: three of no matrix product, which has a tile_k."""
    axes = {2: ("rows", "columns"), 3: ("m", "n", "k")}.get(len(sizes), ())
    sides = [_find_side(params, axis) for axis in axes]
    if not any(sides) or (len(sizes) == 3 and None in sides):
        return None
    share = 1.0
    for side, size in zip(sides, sizes, strict=True):
        share *= -(-size // (side or 1)) * (side or 1) / size
    return share


def _find_warps_share(build: Build, arch: str) -> float | None:
    registers, shared = build.fact("registers"), build.fact("shared_bytes")
    if registers is None or shared is None:
        return None
    found = occupancy(arch, build.fact("threads_per_block") or _guess_threads(build), registers, shared)
    return None if found is None else found.warps_share


def _guess_threads(build: Build) -> int:
    """Tile blocks with TMA loads or products have OWN_THREADS beside their worker warps (116 cubins for sm_90)."""
    if not build.fact("tma_loads") and not build.fact("tensor_core_mmas"):
        return OWN_THREADS
    return OWN_THREADS + WARP_THREADS * build.params.get("num_worker_warps", DEFAULT_WORKER_WARPS)


def _write(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= WHOLE else f"{value:.3g}"


def _read_facts(pair: Pair, name: str, label: str) -> Number | None:
    fast, slow = pair.fast.fact(name), pair.slow.fact(name)
    return None if fast is None or slow is None else Number(label, fast, slow)


def _read_counters(pair: Pair, name: str, label: str) -> Number | None:
    fast, slow = pair.fast.counters.get(name), pair.slow.counters.get(name)
    return None if fast is None or slow is None else Number(label, fast, slow)


def _sum_moved(pair: Pair, kind: str, *, in_loop: bool | None = None) -> Number | None:
    """Returns None where as many of a kind stand on both sides."""
    some = [each for each in pair.moved if each.kind == kind and in_loop in (None, each.in_loop)]
    base, head = sum(each.base for each in some), sum(each.head for each in some)
    return None if base == head else Number(LABELS.get(kind, kind), base, head)
