"""Files with secrets are found where others may read them, or where a secret can be guessed."""

from pathlib import Path

import pytest

from tilewatch.worker.local.secret_files import Weakness, find_weaknesses


@pytest.mark.parametrize(
    ("mode", "text", "sentences"),
    [
        (0o600, "[channels.team]\n", []),
        (0o640, "[channels.team]\n", ["other users may read FILE"]),
        (0o604, '[auth]\ncookie_secret = "0123456789abcdef"\n', ["other users may read FILE"]),
        (0o600, '[auth]\ncookie_secret = "x"\n', ["cookie_secret in FILE has 1 character; expected 16 at least"]),
        (0o600, "auth = 3\n", []),
        (0o600, "no TOML", []),
    ],
)
def test_a_weak_file_is_named(mode: int, text: str, sentences: list[str], tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    file.write_text(text)
    file.chmod(mode)
    found = find_weaknesses([file, tmp_path / "not there"])
    assert [each.sentence.replace(str(file), "FILE") for each in found] == sentences


def test_a_readable_file_is_closed_by_the_command_that_it_comes_with(tmp_path: Path) -> None:
    file = tmp_path / "notify.toml"
    file.write_text("")
    file.chmod(0o644)
    assert find_weaknesses([file]) == [Weakness(f"other users may read {file}", f"chmod 600 {file}")]
