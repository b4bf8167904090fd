"""Compares an operator's code under two toolchains: the base is in use, and the head may replace it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tilewatch.kernels.comparing.outcome import list_moves
from tilewatch.kernels.comparing.toolchains.mma_waits import MmaWaits
from tilewatch.kernels.results import Compiled, Cubin, Params, StaticFacts, is_final

Status = Literal["ok", "error", "timeout"]
StaticKind = Literal[
    "identical", "changed", "stopped compiling", "compiles now", "compiles with neither", "not compiled"
]
"""`not compiled` means that the machine was too busy for a final result (kernels/results.py, is_final)."""

SLOWER_COMPILE = 1.25
"""Ratio of CPU seconds from which the head counts as slower to compile, over all configs that both toolchains compile.
Two runs of one toolchain differ by 4 % over a library on a busy machine (2 cores, 2026-11)."""

LEAST_COMPILED = 6
"""Fewest configs with which compile times are judged. A 95 % interval of the median needs six configs."""


@dataclass(frozen=True)
class CompiledSide:
    """One config under one toolchain. `cubin` is None if the code was not kept."""

    config: Params
    status: Status
    compile_s: float  # wall time
    cpu_s: float
    failure: str | None = None
    code_sha256: str | None = None
    symbol: str | None = None
    cubin: str | None = None
    facts: StaticFacts | None = None
    is_final: bool = True  # False if the compiler was stopped because the machine was too busy
    waits: MmaWaits | None = None  # None unless on Hopper

    @property
    def is_ok(self) -> bool:
        return self.status == "ok"

    @property
    def stored_cubin(self) -> Cubin:
        """Returns the cubin. Do not call it if `cubin` is None."""
        assert self.cubin is not None
        assert self.symbol is not None
        return Cubin(self.config, self.cubin, self.symbol)


@dataclass(frozen=True)
class ToolchainPair:
    """The configs of one operator under the base and under one head, the preferred config first."""

    kernel: str
    problem: str
    arch: str
    config_source: str
    base: tuple[CompiledSide, ...]
    head: tuple[CompiledSide, ...]
    head_name: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.kernel, self.problem, self.arch, self.head_name

    @property
    def kind(self) -> StaticKind:
        """Returns how the head's code differs from the base's, such as "identical"."""
        base, head = self.base[0], self.head[0]
        if not (base.is_final and head.is_final):
            return "not compiled"
        if base.is_ok and head.is_ok:
            return "identical" if base.code_sha256 == head.code_sha256 else "changed"
        if base.is_ok:
            return "stopped compiling"
        return "compiles now" if head.is_ok else "compiles with neither"

    @property
    def moved(self) -> tuple[str, ...]:
        """Lists the differences in static facts, such as "registers 128 -> 168"."""
        if self.kind == "stopped compiling":
            status = "times out" if self.head[0].status == "timeout" else "does not compile"
            return (f"{status}: {self.head[0].failure}",)
        return (*list_moves(self.base[0].facts, self.head[0].facts), *self._list_moved_waits())

    @property
    def waits_for_each_mma(self) -> bool:
        """Returns whether the kernel waits for each warp-group MMA under the head, but not under the base."""
        base, head = self.base[0].waits, self.head[0].waits
        return base is not None and head is not None and base.groups < base.mmas and 0 < head.mmas <= head.groups

    def _list_moved_waits(self) -> tuple[str, ...]:
        base, head = self.base[0].waits, self.head[0].waits
        if base is None or head is None or base.groups * head.mmas == head.groups * base.mmas:
            return ()
        return (f"waits for MMAs {base.groups} of {base.mmas} -> {head.groups} of {head.mmas}",)


@dataclass(frozen=True)
class CompileTimes:
    """The compile times in seconds, summed over all configs that both toolchains compile."""

    configs: int
    base_cpu_s: float
    head_cpu_s: float
    base_wall_s: float
    head_wall_s: float

    @property
    def ratio(self) -> float:
        """Returns the head's compile time over the base's, in CPU time or wall time, whichever is worse."""
        return max(self.head_cpu_s / max(self.base_cpu_s, 1e-9), self.head_wall_s / max(self.base_wall_s, 1e-9))

    @property
    def is_slower(self) -> bool:
        return self.configs >= LEAST_COMPILED and self.ratio >= SLOWER_COMPILE


def make_compiled_side(config: Params, compiled: Compiled, limit_s: float, cubin: str | None = None) -> CompiledSide:
    """Returns a config's result under one toolchain, without the compiler's long remarks."""
    return CompiledSide(
        config=config,
        status=compiled.status,
        compile_s=compiled.compile_s,
        cpu_s=compiled.cpu_s,
        failure=compiled.failure,
        code_sha256=compiled.code_sha256,
        symbol=compiled.symbol,
        cubin=cubin,
        facts=None if compiled.facts is None else replace(compiled.facts, remarks=()),
        is_final=is_final(vars(compiled), limit_s),
    )


def add_compile_times(pairs: Iterable[ToolchainPair]) -> CompileTimes:
    both = [
        (base, head)
        for pair in pairs
        for base, head in zip(pair.base, pair.head, strict=True)
        if base.is_ok and head.is_ok
    ]
    return CompileTimes(
        len(both),
        sum(base.cpu_s for base, _ in both),
        sum(head.cpu_s for _, head in both),
        sum(base.compile_s for base, _ in both),
        sum(head.compile_s for _, head in both),
    )
