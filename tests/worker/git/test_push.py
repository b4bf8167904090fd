"""A commit of one changed file in a bare repository, and the token with which it is pushed."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.worker.fixtures.tiny_repository import git
from tilewatch.worker.git.clones import Clone
from tilewatch.worker.git.push import commit_file, with_token

FILE = "library/table.json"


@pytest.fixture
def bare(repository: Path, tmp_path: Path) -> Path:
    (repository / FILE).write_text("{}\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "Add a table")
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    return tmp_path / "bare.git"


def test_a_commit_changes_one_file_and_is_made_again_the_same(bare: Path) -> None:
    tip = git(bare, "rev-parse", "main").strip()
    (sha,) = {commit_file(bare, tip, FILE, "[1]\n", "Change it\n\nAnd say why.\n") for _ in range(2)}
    assert git(bare, "show", f"{sha}:{FILE}") == "[1]\n"
    assert git(bare, "diff", "--name-only", tip, sha).split() == [FILE]
    assert git(bare, "show", "--no-patch", "--format=%cn: %s|%b", sha).strip() == "Tilewatch: Change it|And say why."


def test_a_filter_of_the_clone_does_not_run(bare: Path, tmp_path: Path) -> None:
    (bare / "info").mkdir(exist_ok=True)
    (bare / "info" / "attributes").write_text("*.json filter=evil\n")
    git(bare, "config", "filter.evil.clean", f"touch {tmp_path / 'ran'}; cat")
    commit_file(bare, git(bare, "rev-parse", "main").strip(), FILE, "[1]\n", "Change it")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("host", "password"), [("forge.example.org", 's3"cr$t'), ("other.example.org", None)])
def test_the_token_is_for_the_host_of_the_repository_alone(tmp_path: Path, host: str, password: str | None) -> None:
    clone = with_token(Clone("name", "https://forge.example.org/owner/name.git", tmp_path), 's3"cr$t')
    asked = subprocess.run(
        ["git", *clone.options, "credential", "fill"],
        input=f"protocol=https\nhost={host}\n\n",
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_TERMINAL_PROMPT": "0", **clone.variables},
        capture_output=True,
        text=True,
    )
    found = dict(line.split("=", 1) for line in asked.stdout.splitlines())
    assert found.get("password") == password
    assert "s3" not in f"{clone} {clone.options}", "other users see a command line"


@pytest.mark.parametrize(
    "address", ["git@forge.example.org:owner/name.git", "http://forge.example.org/name", "/folder"]
)
def test_the_token_is_sent_by_https_alone(address: str, tmp_path: Path) -> None:
    clone = Clone("name", address, tmp_path)
    assert with_token(clone, "secret") == clone
