"""Validates a library folder without a GPU: loads its files, traces launches and compiles configs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.compiling.compiler import LIMIT_S, Compiler
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.validating.missing_files import find_outside_files
from tilewatch.kernels.validating.mistake import Mistake

READ_CPU_S = 120.0
"""CPU seconds that reading a folder may take for an architecture. A limit of wall time would blame a busy machine."""

LONGEST_WALL = 20
"""The wall seconds for each allowed CPU second. A process that takes longer waits for something, and is ended."""


@dataclass(frozen=True)
class Validated:
    """The mistakes in a library folder, and the number of operators that compiled."""

    findings: tuple[Mistake, ...]
    operators: int


def validate_library(
    library: Path,
    files: Sequence[str],
    archs: Sequence[str],
    store_url: str,
    *,
    limit_s: float = LIMIT_S,
    on_step: Callable[[str], None] = lambda _: None,
) -> Validated:
    """Validates files of a folder, or all files if `files` is empty. A compilation may take `limit_s` CPU seconds."""
    names = sorted(files or (each.name for each in library.glob("*.py") if not each.name.startswith("_")))
    findings: list[Mistake] = []
    plans = []
    with closing(ChildProcess("validate", library=library, cpu_limit_s=READ_CPU_S * len(archs))) as child:
        for arch in archs:
            for number, name in enumerate(names or [""]):
                on_step(f"{name or library}: tracing for {arch}")
                request = {"library": str(library), "files": [name] if name else [], "arch": arch}
                answer = _ask(child, {**request, "is_first": number == 0})
                findings += [Mistake(each["file"], each["line"], each["sentence"]) for each in answer["findings"]]
                plans += [{**each, "arch": arch} for each in answer["plans"]]
    failed = list(_compile(library, plans, store_url, limit_s, on_step)) if plans else []
    findings += [mistake for _, mistake in failed]
    compiled = {plan["kernel"] for plan in plans} - {kernel for kernel, _ in failed}
    return Validated(tuple(dict.fromkeys((*findings, *find_outside_files(library, files)))), len(compiled))


def _compile(
    library: Path,
    plans: Sequence[dict[str, Any]],
    store_url: str,
    limit_s: float,
    on_step: Callable[[str], None],
) -> Iterator[tuple[str, Mistake]]:
    """Compiles each operator's configs. Yields the operator's name and a mistake if all configs fail."""
    with Compiler(store_url, limit_s=limit_s, wall_limit_s=LONGEST_WALL * limit_s) as compiler:
        for plan in plans:
            on_step(f"{plan['file']}: compiling {plan['kernel']} on {plan['problem']} for {plan['arch']}")
            for config in plan["configs"]:
                outcome = compiler.compile(library, plan["kernel"], plan["problem"], config, plan["arch"])
                if outcome.status == "ok":
                    break
            else:
                what = f"{plan['kernel']} on {plan['problem']} does not compile for {plan['arch']}"
                sentence = f"{what} with {plan['configs'][-1]}: {outcome.failure}"
                yield plan["kernel"], Mistake(plan["file"], plan["line"], sentence)


def _ask(child: ChildProcess, request: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = child.ask(request, deadline_s=LONGEST_WALL * READ_CPU_S)
    except (ChildHung, ChildDied) as error:
        raise LibraryError(f"the library {request['library']} cannot be read: {error}") from None
    if "error" in answer:
        raise LibraryError(answer["error"])
    return answer
