"""The environment of git: what a hook sets is left out, and what a person needs to reach a server stays."""

import subprocess
from pathlib import Path

import pytest

from tilewatch.git_environment import AS_STORED, make_environment

OF_PEOPLE = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
COUNTED = ("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0")


def test_what_git_calls_local_to_a_repository_is_left_out_but_for_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = subprocess.run(["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True).stdout
    local = set(listed.split()) - {*COUNTED, *AS_STORED}
    assert "GIT_INDEX_FILE" in local
    for name in local:
        monkeypatch.setenv(name, "of a hook")
    assert not local & make_environment().keys()


@pytest.mark.parametrize("name", [*OF_PEOPLE, *COUNTED])
def test_what_a_person_sets_to_reach_a_server_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "of a person")
    assert make_environment()[name] == "of a person"


def test_a_named_repository_is_not_looked_for_further_up(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "inside").mkdir()
    line = ["git", "rev-parse", "--show-toplevel"]
    for environment, code in ((make_environment(), 0), (make_environment(tmp_path / "inside"), 128)):
        assert subprocess.run(line, cwd=tmp_path / "inside", env=environment, capture_output=True).returncode == code
