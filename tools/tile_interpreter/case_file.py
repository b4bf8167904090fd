"""Writes interpreted cases with their cubins into one file, so that a GPU machine can run the same cases.

`python -m tools.tile_interpreter.case_file FILE` needs the tile compiler and no GPU; on_gpu.py runs the
file and needs nothing but NumPy and CuPy.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.library import FOLDER
from tools.tile_interpreter import running
from tools.tile_interpreter.cases import SMALL, Case, cases, inputs

HERE = Path(__file__).resolve().parent
LIBRARY = FOLDER
PROBES = HERE / "probes"


def write(file: Path, arch: str, most: int, only: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Writes at most `most` cases of each kernel, spread over its space. Returns their number and the cases that did
    not compile."""
    manifest: list[dict[str, Any]] = []
    contents: dict[str, np.ndarray] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder_path, _start(folder_path) as compiler:
        store = CubinStore(folder(Path(folder_path)))
        for library, found, case in _wanted(arch, most, only):
            problem = found.kernel.parse(case.problem)
            outcome = compiler.compile(library, case.kernel, case.problem, case.config, arch)
            if outcome.status != "ok":
                failures.append(f"{case.kernel} {case.problem} {dict(case.config)}: {outcome.failure}")
                continue
            assert outcome.content_key is not None
            contents[f"cubin/{outcome.content_key}"] = np.frombuffer(store.cubin(outcome.content_key), np.uint8)
            raw = inputs(found.kernel, problem)
            for name, bits in raw.items():
                contents[f"input/{case.kernel}/{problem.name}/{name}"] = bits
            for name, bits in running.run(found, problem, case.config, raw).items():
                contents[f"output/{len(manifest)}/{name}"] = bits
            manifest.append(_entry(found, problem, case, outcome.content_key, outcome.symbol))
    contents["manifest"] = np.frombuffer(json.dumps(manifest).encode(), np.uint8)
    np.savez_compressed(file, **contents)
    return len(manifest), failures


def _start(folder_path: str) -> Compiler:
    """Starts a compiler that may take longer than a night's: one of grouped_fp8_by_ends takes 22 s (2026-11-29)."""
    return Compiler(folder(Path(folder_path)), limit_s=60.0)


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_"))


def _wanted(arch: str, most: int, only: Sequence[str]) -> Iterator[tuple[Path, running.Interpreted, Case]]:
    for path in sorted(PROBES.glob("*.py")):
        for name, found in running.load(path).items():
            if not only or name in only:
                yield PROBES, found, Case(name, found.kernel.problems[0].name, {"num_ctas": 1})
    for path in sorted(LIBRARY.glob("*.py")):
        for name, found in running.load(path).items() if path.stem != "__init__" else ():
            if _number(SMALL[name].needs) <= _number(arch) and (not only or name in only):
                every = list(cases(found.kernel))
                # A stride that is prime to most sizes meets all problems and all values of the space.
                for turn in range(min(most, len(every))):
                    yield LIBRARY, found, every[turn * 37 % len(every)]


def _entry(
    found: running.Interpreted, problem: Problem, case: Case, content_key: str, symbol: str | None
) -> dict[str, Any]:
    kernel = found.kernel
    return {
        "kernel": case.kernel,
        "problem": problem.name,
        "config": dict(case.config),
        "content_key": content_key,
        "symbol": symbol,
        "grid": kernel.grid(problem, case.config, running.SM_COUNT),
        "tolerance": kernel.tolerance(problem),
        "arrays": [[spec.name, list(spec.shape), spec.dtype, spec.output] for spec in kernel.arrays(problem)],
        "scalars": list(kernel.scalars(problem, case.config).values()) if kernel.scalars else [],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--most", type=int, default=24, help="cases of each kernel")
    parser.add_argument("--kernel", action="append", default=[], help="only this kernel; repeat it for several")
    asked = parser.parse_args()
    count, failures = write(asked.file, asked.arch, asked.most, asked.kernel)
    print(f"{count} cases in {asked.file}")
    for failure in failures:
        print(f"not compiled: {failure}")


if __name__ == "__main__":
    main()
