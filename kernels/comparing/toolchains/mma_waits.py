"""Counts in Hopper's machine code how often a kernel waits for its warp-group MMAs. A wait for each MMA made products 8
to 62 % slower on an H200 (docs/use/compilers-13.5.37.md)."""

import io
from collections.abc import Iterable
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

ARCH = "sm_90"
"""The only architecture with warp-group MMAs. Blackwell has other MMAs."""

INSTRUCTION_BYTES = 16
OPCODE = 0xFFF
MMAS = (0x9F0, 0x9F3)
"""Low 12 bits of the opcodes of HGMMA and QGMMA, as `nvdisasm -hex` of nvcc 13.5 shows them (2026-11-22). IGMMA and
BGMMA are missing, because no kernel of the library has them."""

WARPGROUP = 0x9C5
DEPBAR = 1 << 47
"""A bit that distinguishes WARPGROUP.DEPBAR, which waits for a group, from WARPGROUP.ARRIVE, which begins one."""


@dataclass(frozen=True)
class MmaWaits:
    """The number of warp-group MMAs, and of waits for them. If both are equal, the kernel waits for each MMA."""

    groups: int
    mmas: int


def count_mma_waits(cubins: Iterable[bytes]) -> MmaWaits:
    """Counts the MMAs and their waits in cubins for sm_90."""
    sections = (section for cubin in cubins for section in ELFFile(io.BytesIO(cubin)).iter_sections())
    counted = [count_in_code(section.data()) for section in sections if section.name.startswith(".text.")]
    return MmaWaits(sum(each.groups for each in counted), sum(each.mmas for each in counted))


def count_in_code(code: bytes) -> MmaWaits:
    """Counts the MMAs and their waits in the machine code of one function."""
    words = [int.from_bytes(code[start : start + 8], "little") for start in range(0, len(code), INSTRUCTION_BYTES)]
    return MmaWaits(
        sum(word & OPCODE == WARPGROUP and not word & DEPBAR for word in words),
        sum(word & OPCODE in MMAS for word in words),
    )
