"""Files of others: links that have no end, pipes that nobody writes to, files that are too large."""

import os
from pathlib import Path

import pytest

from tilewatch.given_files import (
    MOST_KEY_PARTS,
    BadFile,
    CannotWrite,
    NoFile,
    parse_toml,
    read_given,
    read_given_text,
    write_given,
)


def test_what_is_in_a_file_or_behind_a_link_to_one_is_returned(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("ä")
    (tmp_path / "link").symlink_to("file")
    assert read_given_text(tmp_path / "link", 2) == "ä"
    assert read_given(tmp_path / "file", 2) == "ä".encode()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/ptmx", "/dev/null"])
def test_a_link_to_a_device_is_no_file(tmp_path: Path, device: str) -> None:
    (tmp_path / "link").symlink_to(device)
    with pytest.raises(BadFile, match="link is not a file"):
        read_given(tmp_path / "link", 10)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="pipe is not a file"):
        read_given(tmp_path / "pipe", 10)


def test_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="is a folder"):
        read_given(tmp_path, 10)


def test_a_file_of_more_than_it_may_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 11)
    assert len(read_given(tmp_path / "file", 11)) == 11
    with pytest.raises(BadFile, match="has more than"):
        read_given(tmp_path / "file", 10)


def test_what_is_not_there_is_no_file_and_what_is_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoFile, match="there is no file"):
        read_given(tmp_path / "nothing", 10)
    (tmp_path / "file").write_bytes(b"ab\xff")
    with pytest.raises(BadFile, match="not text in UTF-8: invalid start byte at byte 2"):
        read_given_text(tmp_path / "file", 10)


@pytest.mark.parametrize("part", ["a", "b-2_", "1", '"x.y"', "'z'", r'"\""', r'"\\"'])
@pytest.mark.parametrize("dot", [".", " \t. "])
@pytest.mark.parametrize(
    "line",
    [
        *("{} = 1", "[{}]", "[[ {} ]]", "x = {{ {} = 1 }}", '# \'\n# """\n{} = 1'),
        *('x = {{ s = """"\'""", {} = 1 }}', "x = {{ s = '''\"''', {} = 1 }}", "x = '#'\n{} = 1"),
    ],
)
def test_a_dotted_key_has_few_parts(part: str, dot: str, line: str) -> None:
    """The parser takes memory by the square of their number."""
    assert parse_toml(line.format(dot.join([part] * MOST_KEY_PARTS)))
    with pytest.raises(BadFile, match="a key of more than 32 parts"):
        parse_toml(line.format(dot.join([part] * (MOST_KEY_PARTS + 1))))


def test_a_line_of_many_versions_is_no_long_key() -> None:
    versions = ", ".join(f'"package{number}==1.2.3"' for number in range(100))
    assert len(parse_toml(f"dependencies = [{versions}]")["dependencies"]) == 100


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "1" * 5_000, "x = 1\nx = 2", "x"])
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(BadFile, match="it is not TOML"):
        parse_toml(text)


def test_a_file_that_cannot_be_written_has_a_sentence(tmp_path: Path) -> None:
    """Any other error ends a comparison with 1, as a kernel that became slower does."""
    with pytest.raises(CannotWrite, match="/dev/full cannot be written: No space left on device"):
        write_given(Path("/dev/full"), "text")
    with pytest.raises(CannotWrite, match="cannot be written: Is a directory"):
        write_given(tmp_path, "text")
