"""Scores the code diff: which source lines it blames for planted changes, and how long a diff takes. Needs no GPU.

    python -m benchmarks.code_diff [--report-only] [--all]

40 one-line changes of 8 kernels are made for sm_90 and sm_100 each. The changed bytecode is compared with the unchanged
one, and the bytecode alone decides which lines are blamed. For one change of each kernel, or for all with --all, both
sides are compiled too. These diffs are timed. They are also scored a second time from machine code alone, as for cubins
that were stored without their bytecode."""

import argparse
import functools
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.planted_changes import HARMLESS, PLANTED, Planted
from tilewatch.kernels.catalog.loading import load
from tilewatch.kernels.catalog.signature import element_bytes
from tilewatch.kernels.code_diff.code_diff import CodeDiff, CodeText, diff_code
from tilewatch.kernels.code_diff.source_line import SourceLine
from tilewatch.kernels.code_diff.tile_ir import read_tile_ir
from tilewatch.kernels.code_diff.tile_ir_diff import diff_tile_ir
from tilewatch.kernels.compiling.compiler_input import CompilerInput, compile_input
from tilewatch.kernels.compiling.config_code import read_code
from tilewatch.kernels.compiling.disassembly import disassemble, disassemble_bytecode
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.tile_table import default_config

ARCHS = ("sm_90", "sm_100")
HARMLESS_PAIRS = 20
COMPILE_LIMIT_S = 300.0


@dataclass(frozen=True)
class Scored:
    """A planted change and the source lines that were blamed for it, in the order of blame."""

    planted: Planted
    arch: str
    line: SourceLine
    blamed: tuple[SourceLine, ...]

    @property
    def place(self) -> int | None:
        """Returns the place of the changed line among the blamed ones, 1 for the first. Returns None if it was not
        blamed."""
        return self.blamed.index(self.line) + 1 if self.line in self.blamed else None


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--all", action="store_true", help="compile every change, not one of each kernel")
    bounds.add_options(asked)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilewatch-code-diff-") as scratch:
        folder = Path(scratch)
        figures = itertools.chain(_score_planted(folder, compiles_all=options.all), _score_harmless(folder))
        sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def _score_planted(folder: Path, *, compiles_all: bool) -> Iterator[Figure]:
    by_bytecode: list[Scored] = []
    by_machine_code: list[Scored] = []
    took_s: list[float] = []
    compiled: set[str] = set()
    for number, planted in enumerate(PLANTED):
        source = (FOLDER / planted.file).read_text()
        changed, line_number = planted.apply(source)
        library = _write_library(folder / f"planted-{number}", planted.file, changed)
        line = SourceLine(f"watched_library/{planted.file}", line_number)
        for arch in ARCHS:
            base, head = _make(FOLDER, planted.kernel, arch), _make(library, planted.kernel, arch)
            changes = diff_tile_ir(_read(base), _read(head)).changes
            by_bytecode.append(Scored(planted, arch, line, tuple(each.line for each in changes)))
            if compiles_all or (planted.kernel not in compiled and arch == ARCHS[number // 5 % 2]):
                compiled.add(planted.kernel)
                diff, seconds, machine_lines = _diff_compiled(base, head, arch)
                took_s.append(seconds)
                by_machine_code.append(Scored(planted, arch, line, machine_lines))
                print(f"       {planted.kernel} {arch}: {diff.sentence}", flush=True)
    yield from _report_scores("from bytecode", by_bytecode)
    yield from _report_scores("from machine code alone", by_machine_code)
    yield bounds.measure(f"one diff, the longest of {len(took_s)}", max(took_s), cases=len(took_s))


def _diff_compiled(
    base: CompilerInput, head: CompilerInput, arch: str
) -> tuple[CodeDiff, float, tuple[SourceLine, ...]]:
    cubins = [compile_input(each, arch, COMPILE_LIMIT_S)[0] for each in (base, head)]
    started = time.perf_counter()
    texts = [disassemble(cubin, each.bytecode) for cubin, each in zip(cubins, (base, head), strict=True)]
    diff = diff_code(*texts)
    seconds = time.perf_counter() - started
    alone = diff_code(*(CodeText(each.sass, None) for each in texts))
    return diff, seconds, alone.lines


def _report_scores(what: str, scored: list[Scored]) -> Iterator[Figure]:
    for each in scored:
        if each.place != 1:
            blamed = ", ".join(map(str, each.blamed[:4])) or "none"
            print(
                f"       {each.planted.kernel} {each.arch}, {each.planted.new}: {each.line} is {each.place}, {blamed}"
            )
    for name, most in (("first", 1), ("in the first three", 3)):
        share = 100 * sum(each.place is not None and each.place <= most for each in scored) / len(scored)
        title = f"planted line {name}, {what}, of {len(scored)}"
        yield (
            Figure(title, f"{share:.1f} %")
            if bounds.find_bound(title) is None
            else bounds.measure(title, share, cases=len(scored))
        )


def _score_harmless(folder: Path) -> Iterator[Figure]:
    kernels = list(dict.fromkeys((each.kernel, each.file) for each in PLANTED))
    pairs = list(itertools.product(kernels, HARMLESS))[:: len(kernels) * len(HARMLESS) // HARMLESS_PAIRS]
    blamed = 0
    for number, ((kernel, file), change) in enumerate(pairs[:HARMLESS_PAIRS]):
        source = (FOLDER / file).read_text()
        changed = change(source)
        assert changed != source
        library = _write_library(folder / f"harmless-{number}", file, changed)
        arch = ARCHS[number % 2]
        found = diff_tile_ir(_read(_make(FOLDER, kernel, arch)), _read(_make(library, kernel, arch))).changes
        blamed += len(found)
        for each in found:
            print(f"       {kernel} {arch}, {change.__name__}: {each.line} {each.edits}")
    yield bounds.measure(
        f"lines blamed for {len(pairs[:HARMLESS_PAIRS])} harmless changes", blamed, cases=len(pairs[:HARMLESS_PAIRS])
    )


def _write_library(folder: Path, file: str, changed: str) -> Path:
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / file).write_text(changed)
    return folder


@functools.cache
def _make(library: Path, name: str, arch: str) -> CompilerInput:
    kernel = load(library, arch)[name].kernel
    problem = kernel.problems[0]
    configs = kernel.list_nightly(arch)
    config = default_config(arch, element_bytes(kernel, problem), configs, problem.sizes)
    request = {"library": str(library), "kernel": name, "problem": problem.name, "config": config, "arch": arch}
    (launch,) = read_code(request).launches
    return launch.make_input()


@functools.cache
def _read(wanted: CompilerInput):  # type: ignore[no-untyped-def]
    return read_tile_ir(disassemble_bytecode(wanted.bytecode))


if __name__ == "__main__":
    main()
