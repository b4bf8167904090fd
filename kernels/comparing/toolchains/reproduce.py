"""Writes a folder that shows how one operator's code changed, for readers without Tilewatch."""

import base64
import difflib
import json
import math
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewatch.configs import config_option
from tilewatch.errors import ExpectedError
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.description import Description
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import GpuKey, ToolchainName, ToolchainReport
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report, judge_statically
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.disassembly import NotDisassembled, list_encoded_sass
from tilewatch.kernels.compiling.programs import ProgramMissing
from tilewatch.kernels.compiling.store import CubinStore, StoreError, folder
from tilewatch.kernels.device import gpu_model
from tilewatch.kernels.toolchains.toolchain import Toolchain

SCRIPT = Path(__file__).with_name("time_pair.py")

ADDRESS = re.compile(r"/\*[0-9a-f]+\*/|/\* 0x[0-9a-f]+ \*/")
"""Matches the address and the encoding of an instruction. When one instruction is added, these change in many lines."""

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.M)

MOST_INSTRUCTIONS = 12
"""Most kinds of instructions that the README lists."""

NO_SASS = "There is no SASS here: the machine that wrote this had no nvdisasm that reads it."


class NothingToReproduce(ExpectedError):
    """Raised if the report has no changed machine code of the operator."""


@dataclass(frozen=True)
class ReproducedCase:
    """One operator of a report, with base and head. A toolchain that is not installed here is None."""

    report: ToolchainReport
    pair: ToolchainPair
    library: Path
    cubins: Path
    toolchains: tuple[Toolchain | None, Toolchain | None]

    @property
    def head(self) -> ToolchainName:
        return next(each for each in self.report.heads if each.name == self.pair.head_name)


def find_pair(
    report: ToolchainReport, kernel: str, problem: str, arch: str | None, head: str | None = None
) -> ToolchainPair:
    """Returns the pair of a kernel and problem, preferably with differing code. Raises NothingToReproduce if none."""
    named = [
        pair
        for pair in report.pairs.values()
        if (pair.kernel, pair.problem) == (kernel, problem)
        and arch in (None, pair.arch)
        and pair.head_name in ([each.name for each in report.heads] if head is None else [head])
    ]
    if not named:
        where = f"{f' for {arch}' if arch else ''}{f' under {head}' if head else ''}"
        raise NothingToReproduce(f"the report has no {kernel} {problem}{where}")
    timed = {(*key[:2], gpu_model(key[2]).arch, key[3]) for key in report.frozen}
    named.sort(
        key=lambda pair: (
            pair.kind == "identical" or pair.base[0].cubin is None,
            (kernel, problem, pair.arch, pair.head_name) not in timed,
        )
    )
    if named[0].base[0].cubin is None:
        raise NothingToReproduce(f"{kernel} {problem} on {named[0].arch}: {named[0].kind}, so there is nothing to see")
    return named[0]


def write_case(case: ReproducedCase, out: Path) -> tuple[str, ...]:
    """Writes the new folder `out` and returns its files' names."""
    pair, config = case.pair, case.pair.base[0].config
    described = catalog.describe(case.library, arch=pair.arch, kernel=pair.kernel, problem=pair.problem, config=config)
    out.mkdir(parents=True)
    shutil.copytree(case.library, out / "library", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    sides = (("base", pair.base[0]), ("head", pair.head[0]))
    for side, build in sides:
        if build.cubin is not None:
            cubin = CubinStore(folder(case.cubins / "changed")).cubin(build.cubin)
            (out / f"{side}.cubin").write_bytes(cubin)
    commands = [
        _write_input(case, side, toolchain, out) for (side, _), toolchain in zip(sides, case.toolchains, strict=True)
    ]
    _write_sass(out)
    if described.launch and pair.head[0].cubin is not None:
        (out / "case.json").write_text(json.dumps(_describe_case(described, pair)), encoding="utf-8")
        shutil.copy(SCRIPT, out / SCRIPT.name)
    (out / "numbers.json").write_text(json.dumps(_list_numbers(case), indent=1), encoding="utf-8")
    (out / "README.md").write_text(_write_readme(case, described, commands, _describe_sass(out)), encoding="utf-8")
    return tuple(sorted(each.name for each in out.iterdir()))


def _write_input(case: ReproducedCase, side: str, toolchain: Toolchain | None, out: Path) -> str:
    """Writes one version's bytecode. Returns the commands that compile it, or a comment on why it is missing."""
    if toolchain is None:
        return f"# the {side} toolchain was not installed where this was written"
    pair, store = case.pair, folder(case.cubins / "recorded")
    try:
        with Compiler(store, toolchain=toolchain) as compiler:
            asked = (case.library, pair.kernel, pair.problem, pair.base[0].config, pair.arch)
            recorded = compiler.trace(*asked, code_key=f"{side}-{pair.kernel}")
    except (BuildError, StoreError) as error:
        return f"# the {side} makes no bytecode: {error}"
    launches = recorded.get("launches", [])
    commands = []
    for number, launch in enumerate(launches):
        name = f"{side}.bytecode" if len(launches) == 1 else f"{side}-{number}.bytecode"
        (out / name).write_bytes(base64.b64decode(launch["bytecode"]))
        options = shlex.join(["--gpu-name", pair.arch, f"-O{launch['opt_level']}", "--lineinfo"])
        commands.append(f"tileiras {name} -o {Path(name).with_suffix('.again.cubin')} {options}")
    return "\n".join(commands)


def _write_sass(out: Path) -> None:
    """Writes base.sass, head.sass and their difference, if a disassembler is installed."""
    texts = {}
    for side in ("base", "head"):
        cubin = out / f"{side}.cubin"
        if not cubin.exists():
            continue
        try:
            text = list_encoded_sass(cubin.read_bytes())
        except (ProgramMissing, NotDisassembled):
            return
        (out / f"{side}.sass").write_text(text, encoding="utf-8")
        texts[side] = [line for each in text.splitlines() if (line := " ".join(ADDRESS.sub("", each).split()))]
    if len(texts) == 2:
        lines = difflib.unified_diff(texts["base"], texts["head"], "base.sass", "head.sass", lineterm="")
        (out / "sass.diff").write_text("\n".join(lines) + "\n", encoding="utf-8")


def list_moved_instructions(base: str, head: str) -> list[str]:
    """Lists the instructions whose numbers differ most between two SASS texts, such as "STL 0 -> 12"."""
    of_base, of_head = (Counter(INSTRUCTION.findall(text)) for text in (base, head))
    moved = [name for name in of_base | of_head if of_base[name] != of_head[name]]
    moved.sort(key=lambda name: -abs(math.log((of_head[name] + 1) / (of_base[name] + 1))))
    return [f"{name} {of_base[name]} -> {of_head[name]}" for name in moved[:MOST_INSTRUCTIONS]]


def _describe_sass(out: Path) -> str:
    sides = [out / "base.sass", out / "head.sass"]
    if not all(side.exists() for side in sides):
        return NO_SASS
    moved = list_moved_instructions(*(side.read_text(encoding="utf-8") for side in sides))
    return (
        "`sass.diff` compares the instructions without their addresses. What moved most: "
        f"{', '.join(moved) or 'no number of any kind'}."
    )


def _describe_case(described: Description, pair: ToolchainPair) -> dict[str, Any]:
    """Returns the content of case.json, which time_pair.py reads."""
    arguments = described.launch["arguments"]
    return {
        **described.launch,
        "dtypes": {each["name"]: each["dtype"] for each in arguments},
        "symbols": {"base": pair.base[0].symbol, "head": pair.head[0].symbol},
    }


def _list_numbers(case: ReproducedCase) -> dict[str, Any]:
    """Returns the report's results about this operator."""
    pair = case.pair

    def list_own(known: Mapping[GpuKey, Any]) -> list[dict[str, Any]]:
        of = (pair.kernel, pair.problem, pair.head_name)
        return [asdict(each) for key, each in known.items() if (*key[:2], key[3]) == of]

    return {
        "base": asdict(case.report.base),
        "head": asdict(case.head),
        "gpus": [asdict(each) for each in case.report.gpus.values()],
        "operator": asdict(pair),
        "frozen": list_own(case.report.frozen),
        "retuned": list_own(case.report.retuned),
        "retunings": list_own(case.report.retunings),
    }


def _list_verdicts(case: ReproducedCase) -> list[str]:
    judged = [each for gpu_model in case.report.gpus for each in judge_report(case.report, gpu_model)]
    judged += [each for each in judge_statically(case.report, case.pair.arch) if not judged]
    lines = []
    for each in judged:
        if each.pair == case.pair:
            lines.append(f"- {each.gpu_model or each.pair.arch}: {each.safety}: {each.reason}")
    return lines


def _write_readme(case: ReproducedCase, described: Description, commands: list[str], sass: str) -> str:
    pair = case.pair
    versions = [f"- base: {case.report.base.compiler}", f"- head: {case.head.compiler}"]
    times = [f"- {side}: {_describe_side(build)}" for side, build in (("base", pair.base[0]), ("head", pair.head[0]))]
    script = (
        f"`python {SCRIPT.name}` times both cubins in fresh processes; it needs CuPy and a GPU of {pair.arch}."
        if described.launch and pair.head[0].cubin is not None
        else "There is no timing script: the head has no machine code, or PyTorch launches this operator."
    )
    grid = " The grid depends on the GPU's multiprocessors." if described.grid_follows_gpu else ""
    return "\n".join(
        [
            f"# {pair.kernel} {pair.problem} on {pair.arch}",
            "",
            *versions,
            "",
            f"The kernel is `{described.entry}` in `library/{described.file}`.",
            f"Config: `{config_option(pair.base[0].config)}`.",
            "",
            *_list_verdicts(case),
            "",
            *times,
            "",
            *([f"Moved: {', '.join(pair.moved)}.", ""] if pair.moved else []),
            script + grid,
            "",
            "Compile again, with the tileiras of the base and then of the head:",
            "",
            "```",
            *commands,
            "```",
            "",
            sass,
            "`numbers.json` has every launch.",
            "",
        ]
    )


def _describe_side(build: CompiledSide) -> str:
    if build.facts is None:
        return f"{build.status}: {build.failure}"
    facts = build.facts
    return (
        f"compiled in {build.cpu_s:.1f} CPU seconds; {facts.registers} registers, {facts.stack_bytes} bytes of spills, "
        f"{facts.shared_bytes} bytes of shared memory, {facts.code_bytes} bytes of code"
    )
