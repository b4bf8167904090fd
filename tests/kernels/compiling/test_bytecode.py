"""Names for TileIR bytecode: the same meaning, the same name."""

import pytest

from tilewatch.kernels.compiling.bytecode import MAGIC, BadBytecode, meaning_sha256, sections

HEADER = MAGIC + bytes((13, 4, 0, 0))


def bytecode(*parts: tuple[int, bytes]) -> bytes:
    """Unaligned sections, which the format allows."""
    return HEADER + b"".join(bytes((each, len(content))) + content for each, content in parts) + b"\0"


def test_debug_information_does_not_change_the_name() -> None:
    one = bytecode((2, b"code"), (3, b"line 46"), (1, b"names"))
    other = bytecode((2, b"code"), (3, b"line 4711"), (1, b"names"))
    assert meaning_sha256(one) == meaning_sha256(other)


@pytest.mark.parametrize(
    "changed", [((2, b"CODE"), (1, b"names")), ((2, b"code"), (1, b"nameS")), ((2, b"codenames"),)]
)
def test_everything_else_does(changed: tuple[tuple[int, bytes], ...]) -> None:
    assert meaning_sha256(bytecode(*changed)) != meaning_sha256(bytecode((2, b"code"), (1, b"names")))


def test_aligned_sections_are_padded() -> None:
    head = HEADER + bytes((2 | 0x80, 4, 8))
    padded = head + b"\xcb" * (-len(head) % 8) + b"code" + b"\0"
    assert list(sections(padded)) == [(2, b"code")]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"ELF", "magic number"),
        (HEADER + bytes((2, 9)) + b"code", "ends 5 bytes after"),
        (HEADER + bytes((2, 1)) + b"c", "end marker"),
        (HEADER + bytes((2, 0x80)), "runs past the end"),
    ],
)
def test_what_is_no_bytecode_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(BadBytecode, match=what):
        list(sections(data))
