"""Counts how many public cuTile kernels watch files reach: recorded from host code, and compiled for each architecture.

python -m benchmarks.watch_coverage WATCH_FOLDER SOURCE_FOLDER... [--watch OTHER_WATCH_FOLDER ...] [--arch sm_90]

It lists every function under `@ct.kernel` in the source folders, records each operator and problem of the watch
folders, and compiles one config of each kernel that was launched. It ends with 1 where fewer than BOUND of them are
compiled for every architecture. PyTorch is used where it is installed, else the stand-in of Tilewatch.
"""

import argparse
import ast
import io
import json
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bounds

BOUND = 0.90
"""The share of kernels that must be recorded and compiled."""

MOST_TRIES = 3
"""Different launches of a kernel that are compiled before it counts as one that does not compile: a search space may
begin with a config that is too large."""

COMPILE_S = 120


@dataclass(frozen=True, order=True)
class KernelName:
    file: str
    name: str


def list_kernels(folder: Path) -> Iterator[KernelName]:
    """Lists the functions under `@ct.kernel` or `@ct.kernel(...)`."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.FunctionDef) and any(_is_kernel(each) for each in node.decorator_list):
                yield KernelName(str(file.resolve()), node.name)


def _is_kernel(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (
        isinstance(named, ast.Attribute)
        and named.attr == "kernel"
        and ast.unparse(named.value).endswith(("ct", "tile"))
    )


def record_and_compile(library: Path, arch: str) -> None:
    """Prints a JSON line for each kernel that was launched and for each operator that failed. A process of its own."""
    from tilewatch.kernels.watching import pretend_driver, recorder
    from tilewatch.kernels.watching.torch_stand_in import module

    pretend_driver.install()
    module.install()
    recorder.install()
    from tilewatch.kernels.library_errors import LibraryError
    from tilewatch.kernels.loading import LibraryOperator, list_failures, load

    waiting: dict[KernelName, dict[str, Any]] = {}
    entries = load(library, arch)
    for failure in list_failures(library, arch):
        print(json.dumps({"failure": str(failure)}), flush=True)
    for entry in entries.values():
        assert isinstance(entry, LibraryOperator)
        for each in entry.kernel.problems:
            try:
                recorded = entry.record(each.problem)
                launches = [one for config in recorded.configs[:MOST_TRIES] for one in recorded.launches(config)]
            except LibraryError as error:
                print(json.dumps({"failure": str(error), "where": _last_frames(error)}), flush=True)
                continue
            for launch in launches:
                waiting.setdefault(_name_kernel(launch.kernel, entry.project), {})[launch.key] = launch
    _compile_each(waiting, arch)


def _name_kernel(kernel: Any, project: Any) -> KernelName:
    from tilewatch.kernels.watching.project import CANONICAL

    function = kernel._pyfunc
    file = function.__code__.co_filename
    if file.startswith(f"{CANONICAL}/"):
        file = str(project.root) + file.removeprefix(CANONICAL)
    return KernelName(str(Path(file).resolve()), function.__name__)


def _compile_each(waiting: Mapping[KernelName, Mapping[str, Any]], arch: str) -> None:
    """Compiles the first launch of every kernel, then the second of those that failed, and so on."""
    left = {name: list(launches.values())[:MOST_TRIES] for name, launches in waiting.items()}
    while left:
        for name, launches in list(left.items()):
            outcome = _compile(launches.pop(0), arch)
            print(json.dumps({"file": name.file, "name": name.name, "outcome": outcome}), flush=True)
            if outcome == "ok" or not launches:
                del left[name]


def _compile(launch: Any, arch: str) -> str:
    """Returns "ok" or why it does not compile."""
    import cuda.tile as ct
    from cuda.tile.compilation import export_kernel

    try:
        with ct.compiler_timeout(COMPILE_S):
            export_kernel(launch.kernel, [launch.signature], io.BytesIO(), gpu_code=arch, output_format="cubin")
    except Exception as error:  # noqa: BLE001 - the compiler and the kernel may raise anything
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    return "ok"


def _last_frames(error: BaseException) -> str:
    cause = error.__cause__ or error
    return "; ".join(f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(cause.__traceback__)[-3:])


def _run_child(library: Path, arch: str) -> list[Mapping[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.watch_coverage", "--record", str(library), "--arch", arch]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{library} for {arch} ended with {done.returncode}", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="the watch folder, then source folders")
    parser.add_argument("--watch", action="append", default=[], type=Path, help="one more watch folder")
    parser.add_argument("--arch", action="append", help="default: sm_90 and sm_100")
    parser.add_argument("--json", type=Path, help="also write what was found to this file")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    bounds.add_report_only(parser)
    given = parser.parse_args()
    archs = given.arch or ["sm_90", "sm_100"]
    if given.record is not None:
        record_and_compile(given.record.resolve(), archs[0])
        return
    if len(given.folders) < 2:
        parser.error("a watch folder and at least one source folder are needed")
    kernels = sorted({kernel for folder in given.folders[1:] for kernel in list_kernels(folder)})
    rows = {
        arch: [row for each in (given.folders[0], *given.watch) for row in _run_child(each, arch)] for arch in archs
    }
    outcomes = {arch: _outcomes(rows[arch], kernels) for arch in archs}
    if given.json is not None:
        given.json.write_text(json.dumps(rows))
    for kernel in kernels:
        print("  ".join([f"{kernel.file}: {kernel.name}", *(f"{arch} {outcomes[arch][kernel]}" for arch in archs)]))
    for sentence in sorted({row["failure"] for arch in archs for row in rows[arch] if "failure" in row}):
        print(f"left out: {sentence}")
    right = [kernel for kernel in kernels if all(outcomes[arch][kernel] == "ok" for arch in archs)]
    what = f"kernels recorded and compiled for {' and '.join(archs)}, of {len(kernels)}"
    figure = bounds.at_least(what, 100 * len(right) / len(kernels), 100 * BOUND, " %", 1)
    sys.exit(bounds.report([figure], report_only=given.report_only))


def _outcomes(rows: list[Mapping[str, Any]], kernels: list[KernelName]) -> dict[KernelName, str]:
    """Returns "ok", "not recorded" or the first failure for each kernel."""
    found = dict.fromkeys(kernels, "not recorded")
    for row in rows:
        kernel = KernelName(row.get("file", ""), row.get("name", ""))
        if kernel in found and found[kernel] != "ok" and (row["outcome"] == "ok" or found[kernel] == "not recorded"):
            found[kernel] = row["outcome"]
    return found


if __name__ == "__main__":
    main()
