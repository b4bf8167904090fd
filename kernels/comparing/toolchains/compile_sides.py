"""Compiles the same configs with each toolchain. All compile at the same time, so that other load slows them alike."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tilewatch.kernels.comparing.configs import Candidates, ConfigSource, RecordedWinner, choose_configs
from tilewatch.kernels.comparing.targets import Library, Selection, Target, list_targets
from tilewatch.kernels.comparing.toolchains import mma_waits
from tilewatch.kernels.comparing.toolchains.mma_waits import count_mma_waits
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair, make_compiled_side
from tilewatch.kernels.comparing.toolchains.report_file import BadReport, ReportKeeper, ToolchainReport
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.compiling.cubin import hash_machine_code
from tilewatch.kernels.compiling.operator_code import list_code
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.device import gpu_model
from tilewatch.kernels.library_errors import NoConfigs
from tilewatch.kernels.results import Compiled, Params
from tilewatch.kernels.toolchains.toolchain import Toolchain

AT_ONCE = 24
"""The number of operators that are compiled in one batch. Towards the end of a batch, some compilers are idle."""


@dataclass(frozen=True)
class ComparedSide:
    """A toolchain to compare, with its baselines and driver. If `driver` is empty, any driver may be used."""

    name: str
    toolchain: Toolchain
    environment: Toolchain | None = None  # other versions of baselines; None: the installed ones
    driver: str = ""


@dataclass(frozen=True)
class Workplace:
    """The library, the toolchains and the folder of cubins that one comparison uses."""

    library: Path
    sides: tuple[ComparedSide, ...]  # the base first
    cubins: Path
    jobs: int
    limit_s: float  # CPU time that compiling a config may take
    store_url: str | None = None  # one store for all cubins; only a fleet has it

    @property
    def shared_store(self) -> str:
        """Returns the URL of the store with the cubins to time."""
        return self.store_url or folder(self.cubins / "changed")

    def find_store(self, toolchain: str) -> str:
        """Returns the URL of the store with all cubins that one toolchain compiled."""
        return self.store_url or folder(self.cubins / "compiled" / toolchain)

    def find_side(self, name: str) -> ComparedSide:
        return next(each for each in self.sides if each.name == name)


Chosen = tuple[Target, Candidates]
"""A target and the configs to compile for it, the preferred one first."""


def choose(
    library: Path,
    selections: Sequence[Selection],
    winners: Sequence[RecordedWinner],
    source: ConfigSource,
    gpu: str,
    on_progress: Callable[[str], None],
) -> tuple[Chosen, ...]:
    """Returns the configs to compile for each target. Raises NoConfigs if there are none."""
    side = Library("the library", library)
    own_arch = gpu_model(gpu).arch if gpu else None
    chosen: dict[tuple[str, str, str], Chosen] = {}
    lacking: list[NoConfigs] = []
    for selection in selections:
        try:
            targets = list_targets(side, side, selection)
        except NoConfigs as error:
            lacking.append(error)
            on_progress(f"left out: {error}")
            continue
        for target in targets:
            if target.base is None:
                continue  # a library file that does not load: `tilewatch validate` says why
            found = choose_configs(
                target, gpu if own_arch == target.arch else target.arch, winners, source, may_sweep=False
            )
            if found is not None:
                chosen.setdefault((target.kernel, target.problem, target.arch), (target, found))
    if lacking and not chosen:
        raise lacking[0]
    return tuple(chosen.values())


def compile_pairs(
    place: Workplace, chosen: Sequence[Chosen], on_versions: Callable[[Mapping[str, str]], None]
) -> Iterator[ToolchainPair]:
    """Yields each target's code under the base and each head. Raises BuildError if a toolchain cannot compile."""
    toolchains = {side.toolchain.name: side.toolchain for side in place.sides}
    jobs = max(1, place.jobs // len(toolchains))
    with contextlib.ExitStack() as opened:
        pools = {
            name: opened.enter_context(
                CompilerPool(place.find_store(name), jobs=jobs, limit_s=place.limit_s, toolchain=toolchain)
            )
            for name, toolchain in toolchains.items()
        }
        for start in range(0, len(chosen), AT_ONCE):
            part = chosen[start : start + AT_ONCE]
            works = [partial(target.compile, place.library, config) for target, found in part for config in found.base]
            started = {name: pool.start_all(works) for name, pool in pools.items()}
            compiled = {name: [each.result() for each in results] for name, results in started.items()}
            if start == 0:
                # without the limits that the compiler ran under
                on_versions({name: found[0].compiler.partition(" limit ")[0] for name, found in compiled.items()})
            end = 0
            for each in part:
                own = slice(end, end := end + len(each[1].base))
                yield from _make_pairs(place, each, {name: results[own] for name, results in compiled.items()})


def compile_missing(
    place: Workplace,
    report: ToolchainReport,
    file: ReportKeeper,
    chosen: Sequence[Chosen],
    on_progress: Callable[[str], None],
) -> None:
    """Compiles the pairs that the report lacks and adds them. Raises BadReport if a toolchain's version has changed."""
    started, before_s = time.monotonic(), report.static_wall_s
    todo = [(target, found) for target, found in chosen if not _is_known(place, report, target)]
    if not todo:
        return
    configs = sum(len(found.base) for _, found in todo)
    names = " and ".join(side.name for side in place.sides)
    on_progress(f"compiling {configs} configs of {len(todo)} operators and problems with {names}")
    report.static_jobs, pairs = place.jobs, len(todo) * (len(place.sides) - 1)

    def name_versions(compilers: Mapping[str, str]) -> None:
        named = {side.name: compilers[side.toolchain.name] for side in place.sides}
        for known in report.sides:
            if known.compiler not in ("", compiler := named.get(known.name, known.compiler)):
                raise BadReport(
                    f"{known.name} was {known.compiler} and is now {compiler}; name another file for this report"
                )
        report.sides = tuple(replace(each, compiler=named.get(each.name, each.compiler)) for each in report.sides)

    for done, pair in enumerate(compile_pairs(place, todo, name_versions), start=1):
        report.pairs[pair.key] = pair
        report.static_wall_s = before_s + time.monotonic() - started
        file.save_soon()
        if done % 20 == 0 or done == pairs:
            on_progress(f"  {done} of {pairs} after {time.monotonic() - started:.0f} s")
    file.save()


def _is_known(place: Workplace, report: ToolchainReport, target: Target) -> bool:
    """Returns whether the report has final results for a target under every head."""
    keys = ((target.kernel, target.problem, target.arch, side.name) for side in place.sides[1:])
    return all(key in report.pairs and report.pairs[key].kind != "not compiled" for key in keys)


def keep_cubin(place: Workplace, toolchain: str, compiled: Compiled) -> str:
    """Copies a cubin to the store of cubins to time. Returns the cubin's name in that store."""
    assert compiled.content_key is not None
    cubin = CubinStore(place.find_store(toolchain)).cubin(compiled.content_key)
    name = hashlib.sha256(cubin).hexdigest()
    CubinStore(place.shared_store).put(name, {}, cubin)
    return name


def hash_code(cubins: Mapping[str, bytes]) -> str:
    """Returns a hash of a config's machine code, without the compiler's version."""
    parts = sorted((key, hash_machine_code(each, with_version=False)) for key, each in cubins.items())
    return parts[0][1] if "" in cubins else hashlib.sha256(repr(parts).encode()).hexdigest()


def _make_pairs(
    place: Workplace, chosen: Chosen, compiled: Mapping[str, Sequence[Compiled]]
) -> Iterator[ToolchainPair]:
    """Yields a target's code under the base and each head. `compiled` maps toolchains to results."""
    target, found = chosen
    known = {
        name: tuple(_make_known_side(place, name, *each) for each in zip(found.base, results, strict=True))
        for name, results in compiled.items()
    }
    of_base = place.sides[0].toolchain.name
    for side in place.sides[1:]:
        name = side.toolchain.name
        base, head = known[of_base], known[name]
        pair = ToolchainPair(target.kernel, target.problem, target.arch, found.source, base, head, side.name)
        if pair.kind in ("changed", "stopped compiling") or (side.driver and base[0].is_ok):
            base = (replace(base[0], cubin=keep_cubin(place, of_base, compiled[of_base][0])), *base[1:])
            if head[0].is_ok:
                head = (replace(head[0], cubin=keep_cubin(place, name, compiled[name][0])), *head[1:])
        yield replace(pair, base=base, head=head)


def _make_known_side(place: Workplace, toolchain: str, config: Params, compiled: Compiled) -> CompiledSide:
    build = make_compiled_side(config, compiled, place.limit_s)
    if not build.is_ok:
        return build
    assert compiled.content_key is not None
    cubins = list_code(CubinStore(place.find_store(toolchain)).cubin(compiled.content_key))
    waits = count_mma_waits(cubins.values()) if compiled.arch == mma_waits.ARCH else None
    return replace(build, code_sha256=hash_code(cubins), waits=waits)
