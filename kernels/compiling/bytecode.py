"""Hashes TileIR bytecode without source positions, so that moving a kernel's lines does not change the hash.

The bytecode (CUDA Tile IR, 13.1 to 13.4) is a header of 12 bytes, then sections, then the byte 0x00. A section has an
id byte, a length and the content. If bit 7 of the id is set, an alignment and padding bytes of 0xcb precede the
content. Numbers are LEB128. Positions are in section 3 and in names of inlined functions: "helper@file:7:1_s0"."""

import hashlib
import re
from collections.abc import Iterator, Sequence

MAGIC = b"\x7fTileIR\x00"
HEADER_BYTES = 12
END = 0x00
STRINGS = 0x01
DEBUG = 0x03
HELPER = re.compile(rb"(\w+@\w+):\d+:\d+(_s\d+)")
"""Matches the name of an inlined function in cuda-tile 1.7: function, file, line, column, number of the inlining."""


class BadBytecode(ValueError):
    """Raised if bytes are not TileIR bytecode of a known layout."""


def hash_without_positions(bytecode: bytes) -> str:
    """Returns the SHA-256 of bytecode without its source positions, in hexadecimal."""
    digest = hashlib.sha256(bytecode[:HEADER_BYTES])
    for section, content in read_sections(bytecode):
        if section == DEBUG:
            continue
        strings = _read_strings(content) if section == STRINGS else ()
        hashed = b"".join(map(_drop_position, strings)) or content
        digest.update(bytes((section,)) + len(hashed).to_bytes(8, "little") + hashed)
    return digest.hexdigest()


def read_sections(bytecode: bytes) -> Iterator[tuple[int, bytes]]:
    if not bytecode.startswith(MAGIC):
        raise BadBytecode("not TileIR bytecode: the magic number is missing")
    at = HEADER_BYTES
    while at < len(bytecode):
        section, aligned = bytecode[at] & 0x7F, bytecode[at] & 0x80
        at += 1
        if section == END:
            return
        length, at = _read_number(bytecode, at)
        if aligned:
            alignment, at = _read_number(bytecode, at)
            at += -at % alignment
        if at + length > len(bytecode):
            raise BadBytecode(f"section {section} ends {at + length - len(bytecode)} bytes after the file")
        yield section, bytecode[at : at + length]
        at += length
    raise BadBytecode("the end marker is missing")


def _drop_position(string: bytes) -> bytes:
    """Returns a string with its length in front. Removes the source position from an inlined function's name."""
    helper = HELPER.fullmatch(string)
    kept = helper[1] + helper[2] if helper else string
    return len(kept).to_bytes(8, "little") + kept


def _read_strings(content: bytes) -> Sequence[bytes]:
    """Returns the strings of a section, or an empty sequence if its layout is unknown."""
    try:
        count, at = _read_number(content, 0)
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


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise BadBytecode("a number runs past the end of the file")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
