"""Proposes a watch file for a checkout: records calls, writes them to a file and validates the file."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewatch.given_files import MOST_TOML_BYTES, read_given_text
from tilewatch.kernels import project_settings
from tilewatch.kernels.children import environments, interpreters
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.children.interpreters import BadInterpreter
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.proposing import stated_packages
from tilewatch.kernels.proposing.proposed_file import ProposedOperator, RecordedCall, name_entries, write_file
from tilewatch.kernels.proposing.repository_sources import KernelName
from tilewatch.kernels.proposing.stated_packages import StatedPackages
from tilewatch.kernels.validating.mistake import Mistake
from tilewatch.kernels.validating.mistakes import LONGEST_WALL, validate_library

DRIVER_S = 120.0
"""Seconds that a driver (see Driver) may take on an idle machine before its child process is ended."""

FILE, FOLDERS = "proposed.py", ("watch", "tilewatch_watch", "tilewatch_operators")
NOT_CALLED = "no test, benchmark or script that runs without a GPU calls it"

MOST_LOOKS = 4
"""The most drivers that are run to find a call of host code for a kernel of which only a `ct.launch` was recorded."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Proposal:
    """A proposed watch file and its settings. `packages` is a sentence about missing packages, or empty."""

    text: str
    settings: str
    entries: tuple[ProposedOperator, ...]
    kernels: tuple[KernelName, ...]
    left_out: Mapping[KernelName, str]
    packages: str = ""

    def __str__(self) -> str:
        ends = [*(f"{each}." for each in [self.packages] if each), "Add to pyproject.toml:", *self.settings.split("\n")]
        return f"{self.text}\n" + "".join(f"# {each}\n" for each in ends)


@dataclass
class _Recorded:
    """The recorded calls of each kernel, or the reason why a kernel has no calls."""

    calls: dict[KernelName, list[RecordedCall]] = field(default_factory=dict)
    reasons: dict[KernelName, str] = field(default_factory=dict)
    looked: Counter[KernelName] = field(default_factory=Counter)

    def wants_more(self, kernel: KernelName) -> bool:
        """Returns whether to run more tests or scripts to find a call that launches this kernel."""
        calls = self.calls.get(kernel, ())
        return not calls or (calls[0].is_launch and self.looked[kernel] < MOST_LOOKS)

    def add(self, answer: Mapping[str, Any], file: str, missing: Iterable[KernelName]) -> None:
        """Adds the calls that a test or script made, and a reason for each `missing` kernel without calls."""
        for kernel, fields in answer.get("calls", ()):
            known = self.calls.setdefault(KernelName(*kernel), [])
            known += {RecordedCall.read(fields)} - set(known)
            known.sort(key=lambda one: one.is_launch)
        stopped = [answer["failure"]] if "failure" in answer else answer["stopped"]
        self.looked.update(self.calls.keys() & missing)
        for kernel in missing - self.calls.keys():
            if stopped and (file == kernel.file or kernel not in self.reasons):
                self.reasons[kernel] = f"{file} stops: {stopped[0]}"
            if why := answer.get("reasons", {}).get(f"{kernel.file}: {kernel.name}"):
                self.reasons[kernel] = why


def propose(
    root: Path, arch: str, store_url: str, on_step: Say = lambda _: None, python: Path | None = None
) -> Proposal:
    """Proposes a watch file for a checkout, and writes it there. Raises LibraryError if the checkout has no kernel."""
    listed = _Drivers(root, arch).list()
    kernels = tuple(KernelName(*each) for each in listed["kernels"])
    if not kernels:
        raise LibraryError("no Python file of the repository has a function under @ct.kernel")
    folder = next(each for each in map(root.joinpath, FOLDERS) if not os.path.lexists(each))
    folder.mkdir()
    settings = f'[tool.tilewatch]\nwatch = "{folder.name}"\npath = {json.dumps(listed["path"])}'
    interpreters.use(folder, python)
    stated = _install_stated(root, on_step, listed["imports_torch"]) if python is None else None
    if stated is not None and stated.text is not None:
        settings += f"\nrequirements = {json.dumps(stated.file)}"
    _write_settings(root, settings)
    recorded = _record(_choose_drivers(root, arch, folder), listed, on_step)
    entries = _choose(folder, arch, store_url, recorded, on_step)
    reached = {kernel for each in entries for kernel in each.kernels}
    left_out = {each: recorded.reasons.get(each, NOT_CALLED) for each in kernels if each not in reached}
    packages = "" if stated is None else stated.describe()
    return Proposal(write_file(entries, left_out), settings, entries, kernels, left_out, packages)


def _install_stated(root: Path, on_step: Say, imports_torch: bool) -> StatedPackages | None:
    """Installs missing required packages, if possible. Returns these packages, or None if none is missing."""
    stated = stated_packages.find_stated(root)
    if stated is None or stated.text is None:
        return stated
    on_step(f"installing the packages of {stated.file}")
    try:
        environment = environments.describe(stated.file, stated.text, None)
        environments.provide(environment)
    except BadInterpreter as error:
        return replace(stated, text=None, failure=str(error))
    # The packages replace Tilewatch's own, which may be the only ones with PyTorch.
    if imports_torch and find_spec("torch") and not (environment.packages / "torch").is_dir():
        return replace(stated, text=None, failure="it does not bring torch, which its code imports")
    return stated


def _choose_drivers(root: Path, arch: str, folder: Path) -> "_Drivers":
    """Returns a runner of tests and scripts in the watch folder's environment, or else in Tilewatch's environment."""
    if interpreters.find(folder) is None:
        return _Drivers(root, arch)
    drivers = _Drivers(root, arch, folder)
    try:
        drivers.list()
    except LibraryError:  # such as an environment without NumPy
        return _Drivers(root, arch)
    return drivers


def _write_settings(root: Path, settings: str) -> None:
    """Adds the settings to the checkout's pyproject.toml."""
    file = root / project_settings.FILE
    text = "" if file.is_symlink() or not file.is_file() else read_given_text(file, MOST_TOML_BYTES)
    file.unlink(missing_ok=True)  # it may be a link out of the checkout
    file.write_text(f"{text}\n{settings}\n")


class _Drivers:
    """A runner of tests and scripts in a child process, in the Python environment of `library` or of Tilewatch."""

    def __init__(self, root: Path, arch: str, library: Path | None = None) -> None:
        self._root, self._arch, self._library = root, arch, library
        self._child: ChildProcess | None = None

    def list(self) -> dict[str, Any]:
        """Returns a dict with the repository's kernels, its tests and scripts, and its import folders."""
        answer = self._ask({"ask": "list"})
        self.close()
        if "failure" in answer:
            raise LibraryError(f"the repository cannot be read: {answer['failure']}")
        return answer

    def record(
        self, file: str, path: Sequence[str], wanted: Iterable[KernelName], welcome: Iterable[KernelName]
    ) -> dict[str, Any]:
        """Returns the kernel calls that a file makes, or a "failure" if the child process died or hung."""
        # For `welcome` kernels only the file and the first arguments of its tests are run.
        kernels = {"wanted": list(map(astuple, wanted)), "welcome": list(map(astuple, welcome))}
        return self._ask({"ask": "record", "file": file, "path": path, **kernels})

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._child is None:
            self._child = ChildProcess("propose", library=self._library, readable=[str(self._root)])
        asked = {**request, "root": str(self._root), "arch": self._arch}
        try:
            return self._child.ask(asked, deadline_s=LONGEST_WALL * DRIVER_S)
        except (ChildDied, ChildHung) as error:
            self.close()
            return {"failure": str(error)}


def _record(drivers: _Drivers, listed: Mapping[str, Any], on_step: Say) -> _Recorded:
    """Runs tests and scripts until each kernel has a call of host code. Returns the recorded calls."""
    recorded = _Recorded()
    wanted = {KernelName(*each) for each in listed["kernels"]}
    try:
        for driver in listed["drivers"]:
            leads_to = {KernelName(*each) for each in driver["kernels"]} & wanted
            if missing := set(filter(recorded.wants_more, leads_to)):
                on_step(f"{driver['file']}: recording its calls")
                files = {each.file for each in missing}  # a backward lies beside its forward, and no name leads to it
                beside = {each for each in wanted if each.file in files and recorded.wants_more(each)}
                answer = drivers.record(driver["file"], listed["path"], missing, beside)
                recorded.add(answer, driver["file"], missing)
    finally:
        drivers.close()
    return recorded


def _choose(folder: Path, arch: str, store_url: str, recorded: _Recorded, on_step: Say) -> tuple[ProposedOperator, ...]:
    """Returns operators that pass validation. For each kernel, tries the recorded calls in order until one passes."""
    left = {kernel: list(calls) for kernel, calls in recorded.calls.items()}
    entries: tuple[ProposedOperator, ...] = ()
    while left:
        picked: dict[RecordedCall, list[KernelName]] = {}
        for kernel, calls in left.items():
            picked.setdefault(calls[0], []).append(kernel)
        entries = name_entries(picked)
        failed = _list_failures(folder, entries, arch, store_url, on_step)
        if not failed:
            break
        for kernel, reason in (
            (one, failed[each.name]) for each in entries if each.name in failed for one in each.kernels
        ):
            recorded.reasons[kernel] = reason
            left[kernel].pop(0)
        left = {kernel: calls for kernel, calls in left.items() if calls}
    return entries if left else ()


def _list_failures(
    folder: Path, entries: Sequence[ProposedOperator], arch: str, store_url: str, on_step: Say
) -> dict[str, str]:
    """Validates operators, and returns an error message for each operator that fails, by name."""
    text = write_file(entries, {})
    folder.joinpath(FILE).write_text(text)
    try:
        findings = validate_library(folder, [FILE], [arch], store_url, on_step=on_step).findings
    except LibraryError as error:
        return dict.fromkeys((each.name for each in entries), str(error))
    return _blame(findings, entries, text)


def _blame(findings: Iterable[Mistake], entries: Sequence[ProposedOperator], text: str) -> dict[str, str]:
    """Returns each operator's first mistake, by name. A mistake outside of all operators counts for each of them."""
    lines = text.split("\n")
    ends = [place for place, line in enumerate(lines, 1) if line.startswith("@watch")] + [len(lines)]
    found: dict[str, str] = {}
    for finding in findings:
        line = lines[finding.line - 1] if finding.line and finding.line <= len(lines) else ""
        blamed = [
            each
            for place, each in enumerate(entries)
            if ends[place] <= (finding.line or 0) < ends[place + 1] or f'import_module("{each.call.module}")' in line
        ]
        for each in blamed or entries:
            found.setdefault(each.name, finding.sentence)
    return found
