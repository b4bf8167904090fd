"""Files of problems that a commit may bring: each is refused in a sentence with its place, or harmless."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.peak_memory import read_peak_mib, reset_peak
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.problems.definitions import read_definitions, read_workloads
from tilewatch.kernels.problems.patterns import MOST_PROBLEMS, read_pattern
from tilewatch.kernels.problems.problem_files import MOST_FILES, MOST_LINES, list_files
from tilewatch.kernels.problems.reading import read_problems

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 12345\n"
Make = Callable[[Path], object]


def text(written: str | bytes) -> Make:
    return lambda file: file.write_bytes(written if isinstance(written, bytes) else written.encode())


def lines(count: int, line: str = '{"m": %d}\n') -> Make:
    return lambda file: file.write_text("".join(line % number for number in range(count)))


def make_hole(file: Path) -> None:
    file.touch()
    os.truncate(file, 3 << 30)


UNREADABLE: dict[str, tuple[Make, str]] = {
    "a link to a device without an end": (lambda file: file.symlink_to("/dev/zero"), "is not a file"),
    "a link to a terminal": (lambda file: file.symlink_to("/dev/tty"), "is not a file"),
    "a pipe": (os.mkfifo, "is not a file"),
    "a link to itself": (lambda file: file.symlink_to(file.name), "cannot be read: Too many levels of symbolic links"),
    "a link to nothing": (lambda file: file.symlink_to("nothing"), "there is no such file at this commit"),
    "a folder": (Path.mkdir, "is a folder"),
    "3 GB of nothing": (make_hole, "has more than 16 MiB"),
    "no text": (text(b'{"m": 1}\n\xff\n'), "not text in UTF-8: invalid start byte at byte 9"),
    "a pointer": (text(POINTER), "it is a pointer of Git LFS and not the file"),
    "brackets": (text('{"m": ' + 100_000 * "["), "not JSON that can be read: "),
    "digits": (text('{"m": ' + 5_000 * "1" + "}"), "not JSON that can be read: Exceeds the limit"),
    "a list": (text("[1]"), "an object is expected"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_cannot_be_read_is_refused_by_each_reader(tmp_path: Path, kind: str) -> None:
    make, sentence = UNREADABLE[kind]
    make(tmp_path / "odd.jsonl")
    readers = [
        lambda: read_problems("odd.jsonl", None, tmp_path),
        lambda: read_definitions("odd.jsonl", tmp_path),
        lambda: read_workloads("odd.jsonl", tmp_path, {}),
    ]
    for read in readers if (tmp_path / "odd.jsonl").exists() else readers[:1]:  # a pattern matches what is there
        with pytest.raises(BadProblem) as caught:
            read()
        assert sentence in str(caught.value)
        assert str(caught.value).startswith("odd.jsonl")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (text(2 * '{"m": 1, "weight": 1e308}\n'), "'weight' must be a number over 0, up to 1e+12, not 1e+308"),
        (text('{"m": 1, "weight": 1' + 400 * "0" + "}"), "'weight' must be a number over 0, up to 1e+12, not 1000"),
        (text(f'{{"m": {2**63}}}'), "'m' must be a whole number from 0 to 2^63-1 or a text, not 9223372036854775808"),
        (text('{"m": 1e308}'), "'m' must be a whole number from 0 to 2^63-1 or a text, not 1e+308"),
        (text('{"m": "1/2"}'), "'m' is '1/2': a text may hold letters"),
        (text('{"m\\u0000,x=": 1}'), "'m\\x00,x=' is not a name"),
        (text('{"%s!": 1}' % (1_000_000 * "k")), "is not a name"),
        (text('{"m": [1]}'), "'m' must be a whole number from 0 to 2^63-1 or a text, not [1]"),
        (lines(MOST_PROBLEMS + 1), "problems: more than 20,000 problems"),
        (lines(MOST_LINES + 1, '{"m": 1}\n%.0s'), "it has 100,001 lines; expected 100,000 at most"),
    ],
)
def test_values_that_no_table_holds_are_refused(tmp_path: Path, make: Make, sentence: str) -> None:
    make(tmp_path / "odd.jsonl")
    with pytest.raises(BadProblem) as caught:
        read_problems("odd.jsonl", None, tmp_path)
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 200


def test_the_largest_files_that_are_read_take_little_memory(tmp_path: Path) -> None:
    reset_peak()
    before_mib = read_peak_mib()
    lines(MOST_PROBLEMS)(tmp_path / "odd.jsonl")
    assert len(read_problems("odd.jsonl", None, tmp_path)) == MOST_PROBLEMS
    assert read_peak_mib() - before_mib < 500


def test_a_pattern_of_ten_billion_problems_is_refused() -> None:
    ten = "{" + ",".join(map(str, range(10))) + "}"
    with pytest.raises(BadProblem, match="names more than 20,000 problems"):
        read_pattern("x".join([ten] * 10), " x ".join("abcdefghij"))


def test_a_pattern_of_too_many_files_is_refused(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 1):
        (tmp_path / f"{number}.json").touch()
    with pytest.raises(BadProblem, match=r"'\*\.json' matches 1,001 files; expected 1,000 at most"):
        list_files("*.json", tmp_path)
