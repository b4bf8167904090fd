"""Counts in Hopper's machine code how often a kernel waits for its warp-group MMAs. Bytes in, numbers out.

wgmma runs beside other instructions: a kernel issues several and waits once for all of them. Where something reads the
accumulator in between, ptxas makes it wait for each one ("wgmma.mma_async instructions are serialized", C7514), which
made products 8 to 62 % slower on an H200
(docs/use/compilers-13.5.37.md). PTX ISA, "Asynchronous warpgroup instructions".
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

ARCH = "sm_90"
"""The only architecture with warp-group MMAs; Blackwell's are of another kind."""

INSTRUCTION_BYTES = 16
OPCODE = 0xFFF
MMAS = frozenset((0x9F0, 0x9F3))
"""The opcodes of HGMMA and QGMMA: the low 12 bits, as `nvdisasm -hex` of nvcc 13.5 shows them (2026-11-22). IGMMA and
BGMMA were not seen: no kernel of the library has them."""

WARPGROUP = 0x9C5
DEPBAR = 1 << 47
"""Set in WARPGROUP.DEPBAR, which waits in the end; not set in WARPGROUP.ARRIVE, of which each group of MMAs has one."""


@dataclass(frozen=True)
class MmaWaits:
    """Counts how a loop waits for warp-group MMAs. `groups` of `mmas` are waited for one after the other: as many as
    MMAs where each is waited for."""

    groups: int
    mmas: int


def count_mma_waits(cubins: Iterable[bytes]) -> MmaWaits:
    """Counts over all functions of these cubins for sm_90."""
    counted = [count_in_code(section) for cubin in cubins for section in _list_code(cubin)]
    return MmaWaits(sum(each.groups for each in counted), sum(each.mmas for each in counted))


def count_in_code(code: bytes) -> MmaWaits:
    """Counts in the instructions of one function."""
    words = [int.from_bytes(code[start : start + 8], "little") for start in range(0, len(code), INSTRUCTION_BYTES)]
    return MmaWaits(
        sum(word & OPCODE == WARPGROUP and not word & DEPBAR for word in words),
        sum(word & OPCODE in MMAS for word in words),
    )


def _list_code(cubin: bytes) -> list[bytes]:
    sections = ELFFile(io.BytesIO(cubin)).iter_sections()
    return [section.data() for section in sections if section.name.startswith(".text.")]
