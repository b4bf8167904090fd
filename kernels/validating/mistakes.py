"""Validates a library folder before a GPU is used: loads its files, traces launches and compiles one config."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewatch.kernels.catalog.catalog import DEADLINE_S
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.validating.missing_files import find_outside_files
from tilewatch.kernels.validating.mistake import Mistake


@dataclass(frozen=True)
class Validated:
    """Mistakes of a library folder, and the number of operators that compiled."""

    findings: tuple[Mistake, ...]
    operators: int


def validate_library(library: Path, files: Sequence[str], arch: str, store_url: str) -> Validated:
    """Returns the mistakes of the named files of a folder, or of all its files. Raises LibraryError if it
    has no files."""
    answer = _ask({"library": str(library), "files": list(files), "arch": arch})
    findings = [Mistake(each["file"], each["line"], each["sentence"]) for each in answer["findings"]]
    plans = answer["plans"]
    failed = tuple(_compile(library, plans, arch, store_url)) if plans else ()
    outside = find_outside_files(library, files)
    return Validated((*findings, *failed, *outside), len(plans) - len(failed))


def _compile(library: Path, plans: Sequence[dict[str, Any]], arch: str, store_url: str) -> Iterator[Mistake]:
    """Compiles configs of each operator until one compiles. Yields a mistake if none does."""
    with Compiler(store_url) as compiler:
        for plan in plans:
            for config in plan["configs"]:
                outcome = compiler.compile(library, plan["kernel"], plan["problem"], config, arch)
                if outcome.status == "ok":
                    break
            else:
                what = f"{plan['kernel']} on {plan['problem']} does not compile for {arch} with {plan['configs'][-1]}"
                yield Mistake(plan["file"], plan["line"], f"{what}: {outcome.failure}")


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    child = ChildProcess("validate", library=request["library"])
    try:
        answer = child.ask(request, deadline_s=DEADLINE_S)
    except (ChildHung, ChildDied) as error:
        raise LibraryError(f"the library {request['library']} cannot be read: {error}") from None
    finally:
        child.close()
    if "error" in answer:
        raise LibraryError(answer["error"])
    return answer
