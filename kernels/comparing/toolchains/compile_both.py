"""Compiles the configs that win or ship under the base toolchain, and their ties, with both toolchains. Needs no GPU.

Both compile the same work in the same order at the same time, so that other load slows both alike. Each has its own
cubin store, because a changed compiler under an old version number must not get the other's results.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tilewatch.kernels.comparing.configs import Candidates, ConfigSource, RecordedWinner, choose_configs
from tilewatch.kernels.comparing.targets import Library, Selection, Target, list_targets
from tilewatch.kernels.comparing.toolchains import mma_waits
from tilewatch.kernels.comparing.toolchains.mma_waits import count_mma_waits
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair, make_compiled_side
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.compiling.cubin import hash_machine_code
from tilewatch.kernels.compiling.operator_code import read_bundle
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.results import Compiled, Params
from tilewatch.kernels.toolchains.toolchain import Toolchain

ELF = b"\x7fELF"
"""First bytes of a cubin. Any other stored object is a bundle of cubins."""

AT_ONCE = 24
"""Operators per batch. At its end some compilers wait for the slowest."""


@dataclass(frozen=True)
class Workplace:
    """The library, both toolchains, and the folder of cubins of one comparison. `limit_s` are the CPU seconds that a
    config may take to compile.

    A fleet has one store for everything, `store_url`, in which compiler versions distinguish toolchains.
    """

    library: Path
    base: Toolchain
    head: Toolchain
    cubins: Path
    jobs: int
    limit_s: float
    store_url: str | None = None

    @property
    def shared_store(self) -> str:
        """Returns the store of cubins to time or reproduce: preferred configs whose machine code differs."""
        return self.store_url or folder(self.cubins / "changed")

    def find_store(self, side: str) -> str:
        """Returns the store of what the "base" or "head" toolchain compiled."""
        return self.store_url or folder(self.cubins / side)


Chosen = tuple[Target, Candidates]
"""A target and the configs to compile, the preferred one first."""


def choose(
    library: Path, selections: Sequence[Selection], winners: Sequence[RecordedWinner], source: ConfigSource, gpu: str
) -> tuple[Chosen, ...]:
    """Chooses the configs of every target: recorded winners and their ties, else the shipped config. `gpu` is a GPU
    model, or empty to use the architecture. Raises like list_targets."""
    side = Library("the library", library)
    chosen: dict[tuple[str, str, str], Chosen] = {}
    for selection in selections:
        for target in list_targets(side, side, selection):
            if target.base is None:
                continue  # a library file that does not load: `tilewatch validate` says why
            found = choose_configs(target, gpu or target.arch, winners, source, may_sweep=False)
            if found is not None:
                chosen.setdefault((target.kernel, target.problem, target.arch), (target, found))
    return tuple(chosen.values())


def compile_pairs(
    place: Workplace, chosen: Sequence[Chosen], on_versions: Callable[[str, str], None]
) -> Iterator[ToolchainPair]:
    """Yields each target's code under both toolchains as soon as it is compiled. `on_versions` is called once with the
    versions of both. Raises BuildError if a toolchain cannot compile."""
    jobs = max(1, place.jobs // 2)
    pools = [
        CompilerPool(place.find_store(side), jobs=jobs, limit_s=place.limit_s, toolchain=toolchain)
        for side, toolchain in (("base", place.base), ("head", place.head))
    ]
    with pools[0], pools[1]:
        for start in range(0, len(chosen), AT_ONCE):
            part = chosen[start : start + AT_ONCE]
            works = [partial(target.compile, place.library, config) for target, found in part for config in found.base]
            started = [pool.start_all(works) for pool in pools]
            compiled = [[each.result() for each in side] for side in started]
            if start == 0:
                on_versions(*(_name_version(side[0]) for side in compiled))
            ended = zip(*compiled, strict=True)
            for each in part:
                yield _make_pair(place, each, [next(ended) for _ in each[1].base])


def keep_cubin(place: Workplace, side: str, compiled: Compiled) -> str:
    """Copies machine code from the store of the "base" or "head" side into the shared one. Returns its name there."""
    assert compiled.content_key is not None
    cubin = CubinStore(place.find_store(side)).cubin(compiled.content_key)
    name = hashlib.sha256(cubin).hexdigest()
    CubinStore(place.shared_store).put(name, {}, cubin)
    return name


def list_cubins(stored: bytes) -> Mapping[str, bytes]:
    """Returns the cubins of a stored object by their name in the bundle; a single cubin has the name ""."""
    return {"": stored} if stored.startswith(ELF) else read_bundle(stored)


def hash_code(cubins: Mapping[str, bytes]) -> str:
    """Returns the hash of a config's machine code without the compiler's version, which always differs."""
    parts = sorted((key, hash_machine_code(each, with_version=False)) for key, each in cubins.items())
    return parts[0][1] if "" in cubins else hashlib.sha256(repr(parts).encode()).hexdigest()


def _make_pair(place: Workplace, chosen: Chosen, compiled: Sequence[tuple[Compiled, Compiled]]) -> ToolchainPair:
    of, found = chosen
    base, head = (
        tuple(_make_known_side(place, side, *each) for each in zip(found.base, ended, strict=True))
        for side, ended in zip(("base", "head"), zip(*compiled, strict=True), strict=True)
    )
    pair = ToolchainPair(of.kernel, of.problem, of.arch, found.source, base, head)
    if pair.kind not in ("changed", "stopped compiling"):
        return pair
    first_base, first_head = compiled[0]
    base = (replace(base[0], cubin=keep_cubin(place, "base", first_base)), *base[1:])
    if head[0].is_ok:
        head = (replace(head[0], cubin=keep_cubin(place, "head", first_head)), *head[1:])
    return replace(pair, base=base, head=head)


def _make_known_side(place: Workplace, side: str, config: Params, compiled: Compiled) -> CompiledSide:
    build = make_compiled_side(config, compiled, place.limit_s)
    if not build.is_ok:
        return build
    assert compiled.content_key is not None
    cubins = list_cubins(CubinStore(place.find_store(side)).cubin(compiled.content_key))
    waits = count_mma_waits(cubins.values()) if compiled.arch == mma_waits.ARCH else None
    return replace(build, code_sha256=hash_code(cubins), waits=waits)


def _name_version(compiled: Compiled) -> str:
    """Returns the versions of the compiling packages, without the limits."""
    return compiled.compiler.partition(" limit ")[0]
