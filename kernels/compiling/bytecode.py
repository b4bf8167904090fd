"""Hashes TileIR bytecode by what it does: all sections but the one that holds positions in the source.

Layout (CUDA Tile IR bytecode, version 13.1 to 13.4): 12 bytes of header, then sections until an end marker 0x00, each
an id byte (bit 7: aligned), a length, and if aligned the alignment and padding of 0xcb up to it. Numbers are LEB128.
A comment added above a kernel moves only line numbers, which live in section 3, so it keeps the name.
"""

import hashlib
from collections.abc import Iterator

MAGIC = b"\x7fTileIR\x00"
HEADER_BYTES = 12
END = 0x00
DEBUG = 0x03


class BadBytecode(ValueError):
    """Not TileIR bytecode as this module knows it; the message says where."""


def meaning_sha256(bytecode: bytes) -> str:
    """Hash of the header and of every section but debug information."""
    digest = hashlib.sha256(bytecode[:HEADER_BYTES])
    for section, content in sections(bytecode):
        if section != DEBUG:
            digest.update(bytes((section,)) + len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def sections(bytecode: bytes) -> Iterator[tuple[int, bytes]]:
    if not bytecode.startswith(MAGIC):
        raise BadBytecode("not TileIR bytecode: the magic number is missing")
    at = HEADER_BYTES
    while at < len(bytecode):
        section, aligned = bytecode[at] & 0x7F, bytecode[at] & 0x80
        at += 1
        if section == END:
            return
        length, at = _number(bytecode, at)
        if aligned:
            alignment, at = _number(bytecode, at)
            at += -at % alignment
        if at + length > len(bytecode):
            raise BadBytecode(f"section {section} ends {at + length - len(bytecode)} bytes after the file")
        yield section, bytecode[at : at + length]
        at += length
    raise BadBytecode("the end marker is missing")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise BadBytecode("a number runs past the end of the file")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
