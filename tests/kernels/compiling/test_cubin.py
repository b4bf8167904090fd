"""What is read out of a cubin: the hash of its code, and the compiler's remarks."""

import dataclasses
import hashlib
import io
import re
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from cuda.tile.compilation import export_kernel

from tests.kernels.fixtures.gpu_library import rows
from tilewatch.kernels.catalog.signature import signature, tile_signature
from tilewatch.kernels.compiling.cubin import (
    hash_machine_code,
    read_remarks,
    read_static_facts,
    read_threads_per_block,
)

YAML = """--- !Passed
Pass:            Memory
Name:            RemarkMemoryLoadInstructionSelected
DebugLoc:        { File: 'watched_library/gemm.py', Line: 46, Column: 16 }
Function:        gemm
Args:
  - RemarkId:    3
  - Remark:      Load instruction selected
  - Instruction: TMA Load instruction
  - Shape:       '[128, 128]'
...
--- !Missed
Pass:            Tensor-core
Name:            RemarkTensorCoreMMA
DebugLoc:        { File: 'watched_library/gemm.py', Line: 12, Column: 18 }
Function:        gemm
Args:
  - RemarkId:    4
  - Reason:      Tile too small
...
"""


def test_remarks_are_read_in_source_order() -> None:
    missed, passed = read_remarks(YAML)
    assert (missed["line"], missed["passed"], missed["text"]) == (12, False, "Tile too small")
    assert (passed["line"], passed["passed"], passed["instruction"]) == (46, True, "TMA Load instruction")
    assert passed["shape"] == "[128, 128]"


def test_a_remark_without_place_or_arguments_has_empty_fields_and_goes_before_others() -> None:
    bare, _, passed = read_remarks(f"{YAML}--- !Passed\nName: Bare\n...\n")
    assert bare == {
        **dict.fromkeys(("pass", "instruction", "shape", "text"), ""),
        **{"name": "Bare", "passed": True, "line": 0},
    }
    assert (passed["pass"], passed["text"]) == ("Memory", "Load instruction selected")


def test_no_remarks_are_none() -> None:
    assert read_remarks("") == ()


def make_cubin(*sections: tuple[str, bytes]) -> bytes:
    """A 64-bit ELF file with these sections."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _ in sections) + b".shstrtab\0"
    body, table = b"", bytes(64)
    for name, data in (*sections, (".shstrtab", names)):
        where = (names.index(name.encode() + b"\0"), 1, 0, 0, 64 + len(body), len(data), 0, 0, 1, 0)
        table += struct.pack("<IIQQQQIIQQ", *where)
        body += data
    count = len(sections) + 2
    head = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1)
    return b"\x7fELF\2\1\1" + bytes(9) + head + body + table


VERSION, THREADS, REGISTERS = b"\x04\x37\x04\0v134", b"\x04\x10\x0c\0" + struct.pack("<III", 2, 3, 4), b"\x03\x1b\xff\0"
PARTS = {
    ".nv.constant0.gemm": b"c",
    ".text.gemm": b"code",
    ".text.add": b"more",
    ".nv.info.gemm": REGISTERS + VERSION + THREADS + REGISTERS,
    ".rela.text.gemm": b"r",
    ".debug_line": b"line 46",
    ".nv.info": b"all",
}


def test_the_hash_covers_code_sections_in_the_order_of_their_names_with_functions_by_number() -> None:
    """A hash of another form makes all stored code other code."""
    numbered = {name.replace("gemm", "0").replace("add", "1"): data for name, data in PARTS.items()}
    hashed = hashlib.sha256()
    for name in (".nv.constant0.0", ".nv.info.0", ".rela.text.0", ".text.0", ".text.1"):
        hashed.update(name.encode() + b"\0" + len(numbered[name]).to_bytes(8, "little") + numbered[name])
    assert hash_machine_code(make_cubin(*PARTS.items())) == hashed.hexdigest()


@pytest.mark.parametrize(
    ("section", "changed", "is_other", "is_other_without_version"),
    [
        (".text.add", b"mor3", True, True),
        (".rela.text.gemm", b"s", True, True),
        (".nv.info.gemm", PARTS[".nv.info.gemm"].replace(b"v134", b"v135"), True, False),
        (".nv.info.gemm", PARTS[".nv.info.gemm"][:-2] + b"\x80\0", True, True),
        (".nv.info.gemm", b"\x03\x1b\x80" + PARTS[".nv.info.gemm"][3:], True, True),
        (".nv.constant0.gemm", b"d", True, True),
        (".debug_line", b"line 47", False, False),
        (".nv.info", b"any", False, False),
    ],
)
def test_what_else_is_in_a_cubin_is_no_part_of_its_code(
    section: str, changed: bytes, is_other: bool, is_other_without_version: bool
) -> None:
    cubins = make_cubin(*PARTS.items()), make_cubin(*{**PARTS, section: changed}.items())
    assert (len(set(map(hash_machine_code, cubins))) == 2) is is_other
    assert (len({hash_machine_code(each, with_version=False) for each in cubins}) == 2) is is_other_without_version


def test_a_constant_that_looks_like_a_version_is_a_constant() -> None:
    constants = [
        make_cubin((".text.gemm", b"code"), (".nv.constant0.gemm", VERSION[:-1] + each)) for each in (b"4", b"5")
    ]
    assert len({hash_machine_code(each, with_version=False) for each in constants}) == 2


@pytest.mark.parametrize(
    ("sections", "threads"),
    [
        (PARTS, 24),
        ({**PARTS, ".nv.info.gemm": REGISTERS + VERSION}, None),
        ({**PARTS, ".nv.info.gemm": b"", ".nv.info": THREADS}, None),
    ],
)
def test_the_threads_of_a_block_are_those_of_all_dimensions(sections: dict[str, bytes], threads: int | None) -> None:
    assert read_threads_per_block(make_cubin(*sections.items())) == threads


RESOURCES = """
Fatbin elf code:
Resource usage:
 Function add_tiles:
  REG:38 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:560 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def test_static_facts_count_sizes_and_remarks_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=RESOURCES))
    file = tmp_path / "kernel.cubin"
    file.write_bytes(make_cubin(*PARTS.items()))
    plain_load = YAML.replace("TMA Load", "Load")
    plain_mma = YAML.replace("Reason:      Tile too small", "Instruction: mma").replace("!Missed", "!Passed")
    tensor_mma = plain_mma.replace("Instruction: mma", "Instruction: Tensor core mma")
    facts = read_static_facts(file, YAML + plain_load + plain_mma + tensor_mma)
    assert (facts.registers, facts.stack_bytes, facts.shared_bytes) == (38, 16, 1024)
    assert (facts.code_bytes, facts.cubin_bytes) == (len(b"codemore"), file.stat().st_size)
    assert (facts.tma_loads, facts.loads, facts.tensor_core_mmas, facts.mmas) == (3, 4, 1, 4)
    assert len(facts.remarks) == 8


def export(name: str = "add_tiles", repeats: int = 1) -> bytes:
    """A kernel's cubin."""
    (kernel,) = rows.KERNELS
    config = {"rows": 4, "repeats": repeats, "fault": rows.RIGHT}
    wanted = dataclasses.replace(signature(kernel, kernel.parse("1024x256"), config), symbol=name)
    file = io.BytesIO()
    export_kernel(kernel.entry, [tile_signature(wanted)], file, gpu_code="sm_90", output_format="cubin")
    return file.getvalue()


def test_the_name_of_a_kernel_is_no_part_of_its_code() -> None:
    """So that a commit that only renames a kernel needs no GPU. A digit more in a constant is other code."""
    made = (export(), export("a_much_longer_name"), export(repeats=2))
    hashes = list(map(hash_machine_code, made))
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_version_of_the_compiler_is_no_difference_between_toolchains_and_a_launch_limit_is() -> None:
    cubin = export()
    (version,) = re.findall(rb"\x04\x37\x04\x00....", cubin, re.DOTALL)
    newer = cubin.replace(version, version[:4] + b"\xff" + version[5:])
    (threads,) = re.findall(rb"\x04\x10\x0c\x00....", cubin, re.DOTALL)
    fewer = cubin.replace(threads, threads[:4] + b"\x20" + threads[5:])
    assert hash_machine_code(newer) != hash_machine_code(cubin)
    assert hash_machine_code(newer, with_version=False) == hash_machine_code(cubin, with_version=False)
    assert hash_machine_code(fewer, with_version=False) != hash_machine_code(cubin, with_version=False)
