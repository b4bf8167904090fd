"""Lists mistakes in library files and watch files without a compiler, in a child process."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewatch.kernels.catalog.catalog_child import list_problems, plan_alone
from tilewatch.kernels.catalog.loading import Entry, LibraryOperator, find_first_line, list_failures, load
from tilewatch.kernels.contract import HINTS, Problem
from tilewatch.kernels.gpu.host_code.described_operator import ITEM_BYTES
from tilewatch.kernels.library_errors import LibraryError

MOST_TRIES = 3
"""Most configs to compile before an operator counts as not compiling. The first configs may be too large."""

_LINE = re.compile(r"\bline (\d+)")
_FILE = re.compile(r"[\w.-]+\.py\b")


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the mistakes in the requested files and, for each kernel without mistakes, a few configs to compile."""
    library, arch, files = Path(request["library"]), request["arch"], request["files"]
    try:
        failures = [str(each) for each in list_failures(library, arch)]
        entries = load(library, arch) if _some_file_loads(library, arch) else {}
    except LibraryError as error:
        return {"error": str(error)}
    findings = [_make_finding(str(library), None, sentence) for sentence in failures]
    plans = []
    for entry in entries.values():
        found, planned = _validate(entry, arch) if not files or entry.file in files else ([], [])
        findings += [_make_finding(entry.file, find_first_line(entry), sentence) for sentence in found]
        plans += [{**each, "file": entry.file, "line": find_first_line(entry)} for each in planned]
    named = {each["file"] for each in findings}
    declared = {entry.file for entry in entries.values()}
    for file in files or ([] if entries or findings else [str(library)]):
        if file not in declared | named:
            findings.append(_make_finding(file, None, f"{Path(file).name} declares no operator"))
    # A mistake that belongs to no file has the folder as its file.
    wanted = [*files, *([str(library)] if request.get("is_first") else [])]
    return {"findings": [each for each in findings if not files or each["file"] in wanted], "plans": plans}


def _some_file_loads(library: Path, arch: str) -> bool:
    try:
        return bool(load(library, arch))
    except LibraryError:
        return False


def _validate(entry: Entry, arch: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns two lists: a kernel's mistakes as sentences and, if there are none, configs to compile."""
    found: list[str] = []
    plans = []
    try:
        problems = [problem for _, problem in list_problems(entry)]
    except LibraryError as error:
        return [str(error)], []
    for problem in problems:
        try:
            plans.append(plan_alone(entry, problem, arch))
            if isinstance(entry, LibraryOperator):
                found += [
                    f"{entry.kernel.name} on {problem.name}: {each}"
                    for each in (*_list_wrong_results(entry, problem), *_list_unrepeatable(entry, problem))
                ]
        except LibraryError as error:
            found.append(str(error))
    found += [sentence for plan in plans for sentence in _list_idle_hints(plan)]
    if not problems:
        found.append(f"{entry.kernel.name} has no problem")
    if found:
        return list(dict.fromkeys(found)), []
    own = {plan["trials"][0]["code_key"]: plan for plan in reversed(plans) if plan["trials"]}
    return [], [
        {
            "kernel": entry.kernel.name,
            "problem": plan["problem"],
            "configs": [trial["config"] for trial in plan["trials"][:MOST_TRIES]],
        }
        for plan in reversed(own.values())
    ]


def _list_idle_hints(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each compiler hint whose values all give the same code."""
    for hint in HINTS:
        values: dict[str, list[Any]] = {}
        keys: dict[str, set[str]] = {}
        for trial in plan["trials"]:
            others = repr({name: value for name, value in trial["config"].items() if name != hint})
            values.setdefault(others, []).append(trial["config"].get(hint))
            keys.setdefault(others, set()).add(trial["code_key"])
        if max(map(len, values.values()), default=0) > 1 and all(len(each) == 1 for each in keys.values()):
            yield (
                f"{plan['kernel']} searches the hint {hint}, and asks the compiler for the same code with each value: "
                "the host code does not apply it to the kernel that it launches"
            )


def _list_wrong_results(entry: LibraryOperator, problem: Problem) -> tuple[str, ...]:
    try:
        return entry.trace(problem).list_wrong_results()
    except LibraryError:
        raise
    except Exception as error:
        raise entry.describe_failure(f"on {problem.name} cannot be run", error) from error


def _list_unrepeatable(entry: LibraryOperator, problem: Problem) -> Iterator[str]:
    """Yields a sentence if the measuring process cannot make an array that a launch needs."""
    for each in entry.trace(problem).arrays if not entry.kernel.not_apart else ():
        if each.dtype not in ITEM_BYTES or 0 in each.shape:
            yield (
                f"a launch gets an array of {each.dtype} in the shape {each.shape}, which only the host code's own "
                'process can launch: change it, or say why it must in watch(..., not_apart="...")'
            )
            return


def _make_finding(file: str, line: int | None, sentence: str) -> dict[str, Any]:
    """Returns a finding as a dict. A file and line in the sentence replace the given file and line."""
    named, at = _FILE.search(sentence), _LINE.search(sentence)
    return {"file": named[0] if named else file, "line": int(at[1]) if at else line, "sentence": sentence}
