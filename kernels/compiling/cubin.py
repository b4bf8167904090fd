"""Reads static facts from a cubin: registers, stack, shared memory, code size, and the compiler's remarks."""

import hashlib
import io
import re
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from elftools.elf.elffile import ELFFile

from tilewatch.kernels.compiling.programs import find_program
from tilewatch.kernels.results import StaticFacts

CODE_SECTIONS = (".text.", ".nv.constant", ".nv.info.", ".rela.text.")
"""Sections that are hashed: instructions, constants, relocations, and launch limits (registers, barriers, clusters)."""

REQNTID = 0x10
SIZED_VALUE = 4
"""Numbers of an attribute (EIATTR_REQNTID) and of a format (EIFMT_SVAL) in .nv.info sections of cubins."""

API_VERSION = 0x37
"""Number of the attribute EIATTR_CUDA_API_VERSION (134 from ptxas 13.4, 135 from 13.5). Code does not depend on it."""


def hash_machine_code(cubin: bytes, *, with_version: bool = True) -> str:
    """Returns the hash of a cubin's machine code. A renamed kernel keeps its hash."""
    sections = _read_code_sections(cubin)
    # Without it, code of two compilers can be compared.
    if not with_version:
        sections = [(name, _drop_version(data) if name.startswith(".nv.info.") else data) for name, data in sections]
    functions = [name.removeprefix(".text.") for name, _ in sections if name.startswith(".text.")]

    def name_by_place(name: str) -> str:
        function = next((each for each in functions if name.endswith(f".{each}")), None)
        return name if function is None else f"{name.removesuffix(function)}{functions.index(function)}"

    digest = hashlib.sha256()
    for name, data in sorted((name_by_place(name), data) for name, data in sections):
        digest.update(name.encode() + b"\0" + len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def read_static_facts(cubin_path: Path, remarks_yaml: str) -> StaticFacts:
    listing = subprocess.run(
        [find_program("cuobjdump"), "--dump-resource-usage", str(cubin_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    usage = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|SHARED):(\d+)", listing)}
    cubin = cubin_path.read_bytes()
    found = read_remarks(remarks_yaml)
    loads = [remark for remark in found if remark["name"] == "RemarkMemoryLoadInstructionSelected"]
    mmas = [remark for remark in found if "MMA" in remark["name"]]
    return StaticFacts(
        registers=usage["REG"],
        stack_bytes=usage["STACK"],
        shared_bytes=usage["SHARED"],
        code_bytes=sum(len(data) for name, data in _read_code_sections(cubin) if name.startswith(".text.")),
        cubin_bytes=len(cubin),
        tma_loads=sum("TMA" in remark["instruction"] for remark in loads),
        loads=len(loads),
        tensor_core_mmas=sum("ensor" in remark["instruction"] for remark in mmas),
        mmas=len(mmas),
        remarks=found,
    )


def read_threads_per_block(cubin: bytes) -> int | None:
    """Returns how many threads per block a launch must have, or None if any number is allowed."""
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if section.name.startswith(".nv.info."):
            for attribute, value in _read_attributes(section.data()):
                if attribute == REQNTID:
                    x, y, z = struct.unpack("<III", value)
                    return int(x * y * z)
    return None


def _drop_version(info: bytes) -> bytes:
    kept = ((number, value) for number, value in _read_attributes(info) if number != API_VERSION)
    return b"".join(bytes((number,)) + len(value).to_bytes(4, "little") + value for number, value in kept)


def _read_attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the number and value of each attribute of an .nv.info section."""
    # An attribute is a format byte, a number byte and a field of two bytes. The field is the value, or for SIZED_VALUE
    # the length of the value that follows.
    at = 0
    while at + 4 <= len(info):
        length = int.from_bytes(info[at + 2 : at + 4], "little") if info[at] == SIZED_VALUE else 0
        yield info[at + 1], info[at + 4 : at + 4 + length] if length else info[at + 2 : at + 4]
        at += 4 + length


def read_remarks(text: str) -> tuple[dict[str, Any], ...]:
    """Returns the compiler's remarks from YAML, in source order."""
    nodes = yaml.compose_all(text, Loader=yaml.CSafeLoader)  # tagged !Passed or !Missed
    parsed = [_make_remark(node.tag == "!Passed", _make_plain(node)) for node in nodes]
    return tuple(sorted(parsed, key=lambda remark: (remark["line"], remark["name"])))


def _make_remark(passed: bool, document: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for argument in document.get("Args") or []:
        arguments.update(argument)
    return {
        "pass": document.get("Pass", ""),
        "name": document.get("Name", ""),
        "passed": passed,
        "line": int((document.get("DebugLoc") or {}).get("Line", 0)),
        "instruction": str(arguments.get("Instruction", "")),
        "shape": str(arguments.get("Shape", "")),
        "text": str(arguments.get("Remark") or arguments.get("Reason") or ""),
    }


def _make_plain(node: yaml.Node) -> Any:
    """Returns a YAML node as dictionaries, lists and strings, without tags."""
    if isinstance(node, yaml.MappingNode):
        return {_make_plain(key): _make_plain(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_make_plain(each) for each in node.value]
    return node.value


def _read_code_sections(cubin: bytes) -> list[tuple[str, bytes]]:
    sections = ELFFile(io.BytesIO(cubin)).iter_sections()
    return [(section.name, section.data()) for section in sections if section.name.startswith(CODE_SECTIONS)]
