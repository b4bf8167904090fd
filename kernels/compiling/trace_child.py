"""Runs a library in a child process, and returns the kernel launches of a config as JSON."""

from collections.abc import Mapping
from typing import Any

from tilewatch.kernels.catalog.signature import BadConfig
from tilewatch.kernels.compiling.compiler_input import find_compiler_files
from tilewatch.kernels.compiling.config_code import read_code, write_code, write_failure
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.library_errors import LibraryError, PackageMissing, first_line
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.kernels.watching.declare import BadWatchFile
from tilewatch.kernels.watching.tracer import TracingError


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the launches of a config under "traced", or a message under "error" or "package_missing"."""
    ask = request["ask"]
    if ask == "ready":  # everything this role needs was imported
        return {"compiler": compiler_version(), "files": find_compiler_files()}
    try:
        code = read_code(request)
    except PackageMissing as error:
        return {"package_missing": str(error)}
    except LibraryError as error:
        return {"error": str(error)}
    except (BadConfig, BadProblem, BadWatchFile, TracingError) as error:
        return {"traced": write_failure(str(error))}
    try:
        return {"traced": write_code(code, movable=ask == "trace", named=ask != "read")}
    except Exception as error:  # noqa: BLE001 - the edge of a trial: the compiler and the kernel may raise anything
        return {"traced": write_failure(first_line(error))}
