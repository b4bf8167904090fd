"""Writes recorded calls as the text of a watch file."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from tilewatch.kernels.proposing.repository_sources import KernelName

UNCHECKED = "no reference is written for it yet"

HEADER = """# Proposed by Tilewatch from calls in tests, benchmarks and scripts. Give each operator a reference,
# and problems that matter to you (docs/start/your-kernels.md)."""


@dataclass(frozen=True)
class RecordedCall:
    """A recorded call as Python source: a call of `ct.launch` if `is_launch`, otherwise a call of host code."""

    module: str
    function: str
    lines: tuple[str, ...]
    run: str
    sizes: tuple[tuple[str, int], ...]
    imports: tuple[str, ...]
    is_launch: bool = False

    @classmethod
    def read(cls, fields: Sequence[Any]) -> "RecordedCall":
        """Makes a RecordedCall from a list of its fields, as read from JSON."""
        module, function, lines, run, sizes, imports, is_launch = fields
        return cls(module, function, tuple(lines), run, tuple(map(tuple, sizes)), tuple(imports), is_launch)


@dataclass(frozen=True)
class ProposedOperator:
    """An operator of the proposed watch file, with its call and the kernels that the call launches."""

    name: str
    call: RecordedCall
    kernels: tuple[KernelName, ...]


def name_entries(chosen: Mapping[RecordedCall, Sequence[KernelName]]) -> tuple[ProposedOperator, ...]:
    """Makes an operator with a unique name for each call."""
    entries: list[ProposedOperator] = []
    for call, kernels in chosen.items():
        base = re.sub(r"\W", "_", call.function.removesuffix(".apply")).strip("_").lower() or "operator"
        name, number = base, 1
        while name in {each.name for each in entries}:
            number += 1
            name = f"{base}_{number}"
        entries.append(ProposedOperator(name, call, tuple(kernels)))
    return tuple(entries)


def write_file(entries: Sequence[ProposedOperator], left_out: Mapping[KernelName, str]) -> str:
    """Returns the text of a watch file. Kernels in `left_out` become comments with the reason."""
    modules = _name_modules(entries)
    plain = sorted({each for entry in entries for each in entry.call.imports})
    lines = [HEADER, "from importlib import import_module", ""]
    lines += [f"import {each}" for each in plain if each != "importlib"]
    lines += ["", "from tilewatch import case, watch", ""]
    lines += [f'{name} = import_module("{module}")' for module, name in modules.items()]
    for entry in entries:
        lines += ["", "", *_write_entry(entry, modules[entry.call.module])]
    if left_out:
        lines += ["", "", "# Not watched:"]
        lines += [
            f"# {each.file}: {each.name}: {shorten(reason, 300, placeholder=' ...')}"
            for each, reason in sorted(left_out.items())
        ]
    return "\n".join(lines) + "\n"


def _name_modules(entries: Iterable[ProposedOperator]) -> dict[str, str]:
    """Maps each imported module to the name of its variable in the watch file."""
    named: dict[str, str] = {}
    for module in dict.fromkeys(entry.call.module for entry in entries):
        base = re.sub(r"\W", "_", module.rpartition(".")[2])
        name = f"{base}_module" if not base[0].isdigit() else f"module_{base}"
        while name in named.values():
            name += "_"
        named[module] = name
    return named


def _write_entry(entry: ProposedOperator, module: str) -> Iterator[str]:
    call = entry.call
    sizes = dict(call.sizes) or {"n1": 1}
    pattern, names = "x".join(map(str, sizes.values())), " x ".join(sizes)
    yield f'@watch(problems="{pattern}", names="{names}", unchecked="{UNCHECKED}")'
    yield f"def {entry.name}(p):"
    yield from (f"    {each}" for each in call.lines)
    run = call.run.replace("{}", f"{module}.") if call.is_launch else f"{module}.{call.run}"
    yield f"    return case(run=lambda: {run})"
