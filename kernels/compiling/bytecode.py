"""Hashes TileIR bytecode by what it does: all sections but the one that holds positions in the source.

Layout (CUDA Tile IR bytecode, version 13.1 to 13.4): 12 bytes of header, then sections until an end marker 0x00, each
an id byte (bit 7: aligned), a length, and if aligned the alignment and padding of 0xcb up to it. Numbers are LEB128.
A comment added above a kernel moves only line numbers, which live in section 3, so it keeps the name. A helper function
also has a position in the name by which that section knows it, "helper@file:7:1_s0", which is a string like others.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence

MAGIC = b"\x7fTileIR\x00"
HEADER_BYTES = 12
END = 0x00
STRINGS = 0x01
DEBUG = 0x03
HELPER = re.compile(rb"(\w+@\w+):\d+:\d+(_s\d+)")
"""The name of an inlined function, as cuda-tile 1.7 makes it: function, file, line, column, number of the inlining."""


class BadBytecode(ValueError):
    """Not TileIR bytecode as this module knows it; the message says where."""


def meaning_sha256(bytecode: bytes) -> str:
    """Returns the hash of the header and of every section but debug information, without the positions of helper
    functions."""
    digest = hashlib.sha256(bytecode[:HEADER_BYTES])
    for section, content in sections(bytecode):
        if section == DEBUG:
            continue
        strings = _strings(content) if section == STRINGS else ()
        hashed = b"".join(map(_without_position, strings)) or content
        digest.update(bytes((section,)) + len(hashed).to_bytes(8, "little") + hashed)
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


def _without_position(string: bytes) -> bytes:
    """Returns the string, with its length before it."""
    helper = HELPER.fullmatch(string)
    kept = helper[1] + helper[2] if helper else string
    return len(kept).to_bytes(8, "little") + kept


def _strings(content: bytes) -> Sequence[bytes]:
    """Returns the strings of a section; none where it is not laid out as we know it."""
    try:
        count, at = _number(content, 0)
    except BadBytecode:
        return ()
    at += -at % 4
    texts = content[at + 4 * count :]
    starts = [
        int.from_bytes(content[each : each + 4], "little") for each in range(at, min(at + 4 * count, len(content)), 4)
    ]
    ends = [*starts[1:], len(texts)]
    if len(starts) != count or starts != sorted(starts) or starts[:1] != [0] or starts[-1] > len(texts):
        return ()
    return [texts[start:end] for start, end in zip(starts, ends, strict=True)]


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
