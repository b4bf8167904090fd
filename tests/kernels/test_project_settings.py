"""`[tool.tilewatch]` of a repository: what it says, and a sentence with the place for every mistake."""

from pathlib import Path

import pytest

from tilewatch.kernels.project_settings import BadProject, ProjectSettings, parse, read


def test_the_table_says_what_is_watched_imported_and_followed() -> None:
    text = '[tool.tilewatch]\nwatch = "watch"\npath = ["src", "lib/python"]\nbranch = "release"\n'
    assert parse(text, "here") == ProjectSettings("watch", ("src", "lib/python"), "release")
    assert parse("[tool.tilewatch]", "here") == ProjectSettings()


@pytest.mark.parametrize("text", ["", "[tool.black]", "[project]"])
def test_a_repository_without_the_table_has_no_settings(text: str, tmp_path: Path) -> None:
    assert parse(text, "here") is None
    assert read(tmp_path) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('watch = "/etc"', "`watch` of .* is a folder of the repository"),
        ('watch = "../other"', "`watch` of .* is a folder of the repository"),
        ("watch = 3", "`watch` of .* is a folder of the repository"),
        ('path = "src"', "`path` of .* is a list of folders"),
        ('path = ["src", "a/../../b"]', "`path` of .* is a list of folders"),
        ("branch = true", "`branch` of .* is the name of a branch"),
        ('tuned = "../tuned.json"', "`tuned` of .* is a file of the repository"),
        ('paths = ["src"]', "has no setting 'paths'; it has watch, path, branch, tuned, requirements"),
        ("watch", "cannot be read"),
    ],
)
def test_a_mistake_is_a_sentence_that_names_the_file(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.tilewatch]\n{line}\n")
    with pytest.raises(BadProject, match=f"^{tmp_path}/pyproject.toml.*{words}"):
        read(tmp_path)


def test_a_table_that_is_none_is_named() -> None:
    assert parse("tool = 5", "here") is None
    with pytest.raises(BadProject, match=r"^here: \[tool.tilewatch\] is a table"):
        parse("[tool]\ntilewatch = 5", "here")
