"""Names for TileIR bytecode: the same meaning, the same name."""

import hashlib

import pytest

from tilewatch.kernels.compiling.bytecode import MAGIC, BadBytecode, hash_without_positions, read_sections

HEADER = MAGIC + bytes((13, 4, 0, 0))


def bytecode(*parts: tuple[int, bytes]) -> bytes:
    """Unaligned sections, which the format allows."""
    return HEADER + b"".join(bytes((each, len(content))) + content for each, content in parts) + b"\0"


def test_debug_information_does_not_change_the_name() -> None:
    one = bytecode((2, b"code"), (3, b"line 46"), (1, b"names"))
    other = bytecode((2, b"code"), (3, b"line 4711"), (1, b"names"))
    assert hash_without_positions(one) == hash_without_positions(other)


@pytest.mark.parametrize(
    "changed", [((2, b"CODE"), (1, b"names")), ((2, b"code"), (1, b"nameS")), ((2, b"codenames"),)]
)
def test_everything_else_does(changed: tuple[tuple[int, bytes], ...]) -> None:
    assert hash_without_positions(bytecode(*changed)) != hash_without_positions(bytecode((2, b"code"), (1, b"names")))


def strings(*texts: bytes) -> tuple[int, bytes]:
    """A section of strings as cuda-tile writes it: their number, where each starts, and all texts."""
    starts = [sum(map(len, texts[:number])) for number in range(len(texts))]
    table = b"".join(each.to_bytes(4, "little") for each in starts)
    return 1, bytes((len(texts),)) + bytes(3) + table + b"".join(texts)


def test_the_position_of_a_helper_does_not_change_the_name() -> None:
    one = bytecode((2, b"code"), strings(b"gemm.py", b"helper@gemm:7:1_s0", b"lambda@gemm:9:12_s1"))
    other = bytecode((2, b"code"), strings(b"gemm.py", b"helper@gemm:1007:1_s0", b"lambda@gemm:1009:12_s1"))
    assert hash_without_positions(one) == hash_without_positions(other)


@pytest.mark.parametrize(
    "changed",
    [
        (b"gemm.py", b"other@gemm:7:1_s0", b"7"),
        (b"gemm.py", b"helper@gemm:7:1_s1", b"7"),
        (b"gemm.py", b"helper@gemm:7:1_s0", b"8"),
        (b"gemm.py", b"helper@gemm:7:1_s07", b""),
        (b"gemm.py", b"at helper@gemm:8:1_s0", b"7"),
        (b"gemm.py7", b"helper@gemm:7:1_s0", b""),
        (b"gemm.py", b"helper@gemm:7:1_s0", b"7", b""),
    ],
)
def test_every_other_string_does(changed: tuple[bytes, ...]) -> None:
    plain = bytecode((2, b"code"), strings(b"gemm.py", b"helper@gemm:7:1_s0", b"7"))
    assert hash_without_positions(bytecode((2, b"code"), strings(*changed))) != hash_without_positions(plain)


@pytest.mark.parametrize(
    ("at", "byte"),
    [(0, 9), (0, 0x80), (4, 1), (8, 8), (12, 0xFF)],
    ids=["too many", "a number without end", "a gap", "out of order", "too far"],
)
def test_strings_that_are_laid_out_otherwise_are_hashed_as_they_are(at: int, byte: int) -> None:
    names = set()
    for line in (7, 8):
        number, content = strings(b"gemm.py", b"", b"helper@gemm:%d:1_s0" % line)
        odd = content[:at] + bytes((byte,)) + content[at + 1 :]
        names.add(hash_without_positions(bytecode((2, b"code"), (number, odd))))
    assert len(names) == 2


def test_a_table_of_strings_that_is_cut_short_does_not_stand_for_a_whole_one() -> None:
    tables = [bytes((count, 0, 0, 0)) + bytes(4 * starts) for count, starts in ((0, 0), (2, 2), (3, 2), (3, 3))]
    contents = [*tables, b"\x80"]  # a number that does not end
    assert len({hash_without_positions(bytecode((1, each))) for each in contents}) == 5


def test_what_looks_like_a_helper_elsewhere_than_among_the_strings_counts() -> None:
    code = [strings(b"helper@gemm:%d:1_s0" % line)[1] for line in (7, 8)]
    assert hash_without_positions(bytecode((2, code[0]))) != hash_without_positions(bytecode((2, code[1])))


def test_a_name_hashes_each_section_and_each_string_with_its_length() -> None:
    """A new name compiles everything again, so it changes with NAMING alone."""

    def measured(content: bytes) -> bytes:
        return len(content).to_bytes(8, "little") + content

    texts = measured(b"gemm.py") + measured(b"helper@gemm_s0") + measured(b"")
    hashed = HEADER + b"\2" + measured(b"code") + b"\1" + measured(texts)
    named = bytecode((2, b"code"), (3, b"line 46"), strings(b"gemm.py", b"helper@gemm:7:1_s0", b""))
    assert hash_without_positions(named) == hashlib.sha256(hashed).hexdigest()


@pytest.mark.parametrize(("length", "number"), [(100, b"\x64"), (500, b"\xf4\x03")])
def test_seven_bits_of_a_byte_count_the_length_of_a_section(length: int, number: bytes) -> None:
    assert list(read_sections(HEADER + b"\x42" + number + bytes(length) + b"\0")) == [(0x42, bytes(length))]


def test_aligned_sections_are_padded() -> None:
    head = HEADER + bytes((2 | 0x80, 4, 8))
    padded = head + b"\xcb" * (-len(head) % 8) + b"code" + b"\0"
    assert list(read_sections(padded)) == [(2, b"code")]


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
        list(read_sections(data))
