"""Traces a watch folder and compiles each kernel that it launches, in a process of its own that prints JSON lines.

python -m benchmarks.watch_coverage.record WATCH_FOLDER sm_90
"""

import io
import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_TRIES = 4
"""Different launches of a kernel that are compiled before it counts as not compiling: the first config of a search
space may be too large."""

COMPILE_S = 120


def record_and_compile(library: Path, arch: str) -> None:
    """Prints a JSON line for each operator, each failure to load or trace one, and each try to compile a kernel."""
    from tilewatch.kernels.watching import no_gpu, tracer

    no_gpu.install()
    tracer.replace_launch_and_search()
    from tilewatch.kernels.catalog.loading import LibraryOperator, list_failures, load
    from tilewatch.kernels.library_errors import LibraryError

    waiting: dict[tuple[str, str], dict[str, Any]] = {}
    entries = load(library, arch)
    for failed in list_failures(library, arch):
        _print(failure=str(failed))
    for entry in entries.values():
        assert isinstance(entry, LibraryOperator)
        _print(operator=entry.kernel.name, watch_file=Path(entry.file).name)
        for each in entry.kernel.problems:
            try:
                traced = entry.trace(each.problem)
                launches = [one for config in traced.configs for one in entry.list_launches(traced, config)]
            except LibraryError as error:
                _print(failure=str(error), where=_last_frames(error))
                continue
            for launch in launches:
                waiting.setdefault(_name_kernel(launch.kernel), {})[launch.launch_key] = launch
    _compile_each(waiting, arch)


def _name_kernel(kernel: Any) -> tuple[str, str]:
    from tilewatch.kernels.watching.project import CANONICAL

    function = kernel._pyfunc
    return function.__code__.co_filename.removeprefix(f"{CANONICAL}/"), function.__name__


def _compile_each(waiting: Mapping[tuple[str, str], Mapping[str, Any]], arch: str) -> None:
    """Compiles the first launch of every kernel, then the second of those that failed, and so on."""
    left = {name: list(launches.values())[:MOST_TRIES] for name, launches in waiting.items()}
    while left:
        for name, launches in list(left.items()):
            outcome = _compile(launches.pop(0), arch)
            _print(file=name[0], name=name[1], outcome=outcome)
            if outcome == "ok" or not launches:
                del left[name]


def _compile(launch: Any, arch: str) -> str:
    """Returns "ok" or why it does not compile."""
    import cuda.tile as ct
    from cuda.tile.compilation import export_kernel

    from tilewatch.kernels.library_errors import first_line

    try:
        with ct.compiler_timeout(COMPILE_S):
            export_kernel(launch.kernel, [launch.signature], io.BytesIO(), gpu_code=arch, output_format="cubin")
    except Exception as error:  # noqa: BLE001 - the compiler and the kernel may raise anything
        return first_line(error)
    return "ok"


def _last_frames(error: BaseException) -> str:
    cause = error.__cause__ or error
    return "; ".join(f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(cause.__traceback__)[-3:])


def _print(**row: str) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    record_and_compile(Path(sys.argv[1]).resolve(), sys.argv[2])
