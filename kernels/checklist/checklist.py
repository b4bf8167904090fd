"""Checks one config against the optimisation guide, from its source, the compiler's remarks and its cubin."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tilewatch.configs import config_text
from tilewatch.kernels.catalog.description import ROW_ALIGNMENT_BYTES, Description
from tilewatch.kernels.checklist.source_facts import SourceFacts, source_facts
from tilewatch.kernels.results import Compiled, StaticFacts
from tilewatch.kernels.tile_table import table_row
from tilewatch.mechanisms.occupancy import occupancy
from tilewatch.mechanisms.rules import CONFLICTS_SHARE

Answer = Literal["yes", "no", "unknown", "does not apply"]

BUSY_WARPS = 0.5
"""The share of a multiprocessor's warps that the active warps must exceed, according to the guide."""

L2_HITS_PCT = 80.0
"""The percentage of memory accesses that the hits in L2 must exceed, according to the guide."""

MEMORY_PCT = 60.0
"""The percentage of peak memory throughput to exceed. Not asked of a kernel that keeps the Tensor Cores busier."""

K_ALIGNMENT = {1: 32, 2: 16, 4: 8, 8: 4}
"""Maps the bytes per element to the elements of K in one Tensor Core step, which takes 32 bytes of K."""


@dataclass(frozen=True)
class Line:
    item: str
    answer: Answer
    evidence: str


def checklist(
    described: Description,
    compiled: Compiled,
    threads_per_block: int | None,
    counters: Mapping[str, float] | None = None,
) -> tuple[Line, ...]:
    """Returns the answer to each rule of the guide, with evidence. `counters` are a run's hardware counters."""
    counters = counters or {}
    source = source_facts(described.source, described.entry, described.constants, described.line)
    facts = compiled.facts
    lines = [
        _check_powers_of_two(source, described),
        _check_accumulation(source, described),
        _check_k_alignment(described),
        _check_rows_alignment(described),
        _check_loads(facts, compiled),
        _check_tensor_cores(facts, compiled),
        _check_persistence(source, described),
        _check_swizzle(source, described),
        _check_transposed_loads(source, described),
        _check_latency(source, described),
        _check_hint("occupancy hint", "occupancy", described),
        _check_tile_table(described),
        _check_spills(facts, compiled),
        _check_occupancy(facts, compiled, threads_per_block, counters),
        _check_flush(source, described),
        *_list_counted(counters, source),
    ]
    return tuple(lines)


def _check_powers_of_two(source: SourceFacts, described: Description) -> Line:
    sides = {name: value for name, value in described.config.items() if name.startswith("tile_")}
    odd = [f"{name}={value}" for name, value in sides.items() if isinstance(value, int) and value & (value - 1)]
    odd += [
        f"{operation} of {shape} in {described.file}:{line}"
        for line, operation, shape in source.shapes
        if any(side is not None and side & (side - 1) for side in shape)
    ]
    seen = sorted({shape for _, _, shape in source.shapes if None not in shape}, key=str)
    shapes = ", ".join("x".join(str(side) for side in shape) or "scalar" for shape in seen)
    if odd:
        return Line("powers of two", "no", "; ".join(odd))
    return Line("powers of two", "yes" if seen else "unknown", f"tiles of {shapes}" if seen else "no shape is constant")


def _check_accumulation(source: SourceFacts, described: Description) -> Line:
    item = "float32 accumulation"
    if not source.accumulators:
        return Line(item, "does not apply", "no matrix product")
    evidence = ", ".join(
        f"{kind or 'unknown'} in {described.file}:{line}" for line, kind in sorted(set(source.accumulators))
    )
    kinds = {kind for _, kind in source.accumulators}
    return Line(item, "unknown" if "" in kinds else "yes" if kinds == {"float32"} else "no", evidence)


def _check_k_alignment(described: Description) -> Line:
    k, step = described.sizes.get("k"), K_ALIGNMENT[described.element_bytes]
    if k is None:
        return Line("K aligned", "does not apply", "the problem has no K")
    evidence = f"K={k}; one Tensor Core step takes {step} elements"
    return Line("K aligned", "yes" if k % step == 0 else "no", evidence)


def _check_rows_alignment(described: Description) -> Line:
    crooked = [array.name for array in described.arrays if not array.aligned_rows]
    item = f"rows start on {ROW_ALIGNMENT_BYTES} bytes"
    if crooked:
        return Line(item, "no", f"those of {', '.join(crooked)} do not, which keeps them from TMA")
    arrays = (f"{array.name} {'x'.join(map(str, array.shape))} {array.dtype}" for array in described.arrays)
    return Line(item, "yes", ", ".join(arrays))


def _check_loads(facts: StaticFacts | None, compiled: Compiled) -> Line:
    if facts is None:
        return _make_unknown("TMA loads", compiled)
    if not facts.loads:
        return Line("TMA loads", "unknown", "the compiler remarked on no load")
    others = _list_other_instructions(facts, "RemarkMemoryLoadInstructionSelected", "TMA")
    evidence = f"{facts.tma_loads} of {facts.loads} loads{others}"
    return Line("TMA loads", "yes" if facts.tma_loads == facts.loads else "no", evidence)


def _check_tensor_cores(facts: StaticFacts | None, compiled: Compiled) -> Line:
    if facts is None:
        return _make_unknown("Tensor Core code", compiled)
    if not facts.mmas:
        return Line("Tensor Core code", "does not apply", "the compiler remarked on no matrix product")
    shapes = {f"{remark['instruction']} {remark['shape']}" for remark in facts.remarks if "MMA" in remark["name"]}
    evidence = f"{facts.tensor_core_mmas} of {facts.mmas} products: {', '.join(sorted(shapes))}"
    return Line("Tensor Core code", "yes" if facts.tensor_core_mmas == facts.mmas else "no", evidence)


def _check_persistence(source: SourceFacts, described: Description) -> Line:
    loops = [f"{described.file}:{line}" for line in source.persistent]
    if not loops:
        return Line("persistent grid", "no", f"no loop over tiles by the number of blocks in {described.file}")
    grid = {True: "follows the multiprocessors", False: "has a block for every tile", None: "is the host code's"}
    evidence = f"the loop at {', '.join(loops)}; the config's grid {grid[described.grid_follows_gpu]}"
    return Line("persistent grid", "no" if described.grid_follows_gpu is False else "yes", evidence)


def _check_swizzle(source: SourceFacts, described: Description) -> Line:
    if not source.accumulators:
        return Line("2-D swizzle", "does not apply", "no matrix product")
    groups = {group for _, group in source.swizzles}
    if not groups:
        return Line("2-D swizzle", "no", f"no tile number is taken apart by groups of rows in {described.file}")
    lines = ", ".join(f"{described.file}:{line}" for line in sorted({line for line, _ in source.swizzles}))
    evidence = f"groups of {', '.join(map(str, sorted(groups)))} rows of tiles, {lines}"
    return Line("2-D swizzle", "yes" if max(groups) > 1 else "no", evidence)


def _check_transposed_loads(source: SourceFacts, described: Description) -> Line:
    if not source.turned_loads:
        return Line("transposed loads", "does not apply", "no load turns an array")
    places = ", ".join(f"{described.file}:{line}" for line in sorted(set(source.turned_loads)))
    return Line("transposed loads", "yes", f"turned while they are loaded: {places}")


def _check_latency(source: SourceFacts, described: Description) -> Line:
    evidence = ", ".join(f"{latency} in {described.file}:{line}" for line, latency in sorted(set(source.latencies)))
    return Line("load latency hints", "yes" if evidence else "no", evidence or "no load has one: the compiler chooses")


def _check_hint(item: str, name: str, described: Description) -> Line:
    value = described.config.get(name)
    return Line(item, "no" if value is None else "yes", "not in the config" if value is None else f"{name}={value}")


def _check_tile_table(described: Description) -> Line:
    item = "tile sizes of the table"
    row = table_row(described.arch, described.element_bytes, described.config, described.sizes)
    tiles = {name: value for name, value in row.prefers.items() if name.startswith("tile_")} if row else {}
    if row is None or not tiles.keys() <= described.config.keys():
        return Line(item, "does not apply", f"the table has no tiles for this kernel on {described.arch}")
    other = [
        f"{name}={described.config[name]} (table: {value})"
        for name, value in tiles.items()
        if described.config.get(name, value) != value
    ]
    return Line(item, "no" if other else "yes", ", ".join(other) or f"{config_text(tiles)}, from {row.source}")


def _check_spills(facts: StaticFacts | None, compiled: Compiled) -> Line:
    if facts is None:
        return _make_unknown("no spills", compiled)
    evidence = f"{facts.stack_bytes} bytes of stack and {facts.registers} registers per thread"
    return Line("no spills", "no" if facts.stack_bytes else "yes", evidence)


def _list_counted(counters: Mapping[str, float], source: SourceFacts) -> Iterator[Line]:
    """Yields the answers that need a run's hardware counters."""
    hits, conflicts, instructions = (counters.get(each) for each in ("l2_hit_pct", "bank_conflicts", "instructions"))
    if hits is not None:
        item = f"more than {L2_HITS_PCT:g}% L2 hits"
        yield Line(item, "yes" if hits > L2_HITS_PCT else "no", f"{hits:.1f}% of the accesses, counted")
    if conflicts is not None and instructions:
        share = conflicts / instructions
        evidence = f"{conflicts:,.0f} conflicts for {instructions:,.0f} instructions, counted"
        yield Line("no bank conflicts", "yes" if share <= CONFLICTS_SHARE else "no", evidence)
    memory, tensor = counters.get("dram_pct"), counters.get("tensor_pipe_pct") if source.accumulators else None
    if memory is not None:
        is_limited_by_tensor_cores = tensor is not None and tensor > memory
        answer: Answer = "yes" if memory > MEMORY_PCT else "does not apply" if is_limited_by_tensor_cores else "no"
        evidence = f"{memory:.1f}% of the peak, counted"
        yield Line(f"more than {MEMORY_PCT:g}% of the memory throughput", answer, evidence)
    if tensor is not None:
        yield Line("Tensor Cores at work", "yes" if tensor else "no", f"in {tensor:.1f}% of the cycles, counted")


def _check_occupancy(
    facts: StaticFacts | None, compiled: Compiled, threads_per_block: int | None, counters: Mapping[str, float]
) -> Line:
    item = f"more than {BUSY_WARPS:.0%} of the warps"
    if "warps_active_pct" in counters:
        active = counters["warps_active_pct"]
        return Line(item, "yes" if active > 100 * BUSY_WARPS else "no", f"{active:.1f}% at work, counted")
    if facts is None:
        return _make_unknown(item, compiled)
    if threads_per_block is None:
        return Line(item, "unknown", "the cubin does not say how many threads a block has")
    found = occupancy(compiled.arch, threads_per_block, facts.registers, facts.shared_bytes)
    if found is None:
        return Line(item, "unknown", f"there are no limits of {compiled.arch} in this program")
    evidence = (
        f"{found.blocks} blocks of {threads_per_block} threads fit a multiprocessor, {found.warps_share:.0%} of its "
        f"warps; {found.limited_by} ({facts.registers} registers, {facts.shared_bytes} bytes shared) allows no more"
    )
    return Line(item, "yes" if found.warps_share > BUSY_WARPS else "no", evidence)


def _check_flush(source: SourceFacts, described: Description) -> Line:
    if not source.flushable:
        return Line("flush to zero", "does not apply", "no operation of the source takes the flag")
    lines = ", ".join(f"{described.file}:{line}" for line in sorted(set(source.flushing)))
    evidence = f"{len(source.flushing)} of {len(source.flushable)} operations that take the flag"
    return Line("flush to zero", "yes" if source.flushing else "no", f"{evidence}{': ' if lines else ''}{lines}")


def _make_unknown(item: str, compiled: Compiled) -> Line:
    return Line(item, "unknown", f"no cubin: {compiled.failure}")


def _list_other_instructions(facts: StaticFacts, name: str, wanted: str) -> str:
    """Returns text that lists the loads or matrix products without the `wanted` instruction, or ""."""
    others = [
        f"line {remark['line']}: {remark['instruction'] or remark['text']}"
        for remark in facts.remarks
        if remark["name"] == name and wanted not in remark["instruction"]
    ]
    return f"; {', '.join(others)}" if others else ""
