"""Commits of a real Git repository."""

from pathlib import Path

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.worker.git.branch_order import order_branch
from tilewatch.worker.git.commits import RepositoryError, find_tips, resolve


def is_followed(repository: Path, sha: str, branch: str) -> bool:
    return order_branch(repository, find_tips(repository, branch), []).has(sha)


def test_a_commit_knows_its_place_in_the_history(repository: Path) -> None:
    sha = tiny_repository.commit(repository, "Triple numbers", factor=3)
    found = resolve(repository, "HEAD")
    assert (found.sha, found.position, found.subject) == (sha, 2, "Triple numbers")


def test_control_characters_of_a_commit_are_replaced(repository: Path) -> None:
    (repository / "more").write_text("")
    tiny_repository.git(repository, "add", ".")
    tiny_repository.git(
        repository,
        "-c",
        "user.name=A\x1b[2Jda",
        "commit",
        "--quiet",
        "--message",
        "Add\x1b[2J",
        "--author=A\x1b[2Jda <a@b>",
    )
    found = resolve(repository, "HEAD")
    assert (found.author, found.subject) == ("A\ufffd[2Jda", "Add\ufffd[2J")


def test_a_repository_is_named_by_its_origin_without_credentials(repository: Path) -> None:
    assert resolve(repository, "HEAD").repository == "watched"
    tiny_repository.git(repository, "remote", "add", "origin", "https://me:secret@example.org/kernels.git")
    assert resolve(repository, "HEAD").repository == "https://example.org/kernels.git"


def test_an_unknown_commit_is_named(repository: Path) -> None:
    with pytest.raises(RepositoryError, match="no commit 'nosuch'"):
        resolve(repository, "nosuch")


def test_a_revision_is_never_taken_for_an_option(repository: Path) -> None:
    with pytest.raises(RepositoryError, match="no commit '--all'"):
        resolve(repository, "--all")


def test_a_folder_without_history_is_named(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="not the top folder of a Git repository"):
        resolve(tmp_path, "HEAD")


def test_a_repository_without_commits_is_named(tmp_path: Path) -> None:
    tiny_repository.git(tmp_path, "init", "--quiet")
    with pytest.raises(RepositoryError, match="with commits"):
        resolve(tmp_path, "HEAD")


def test_a_folder_inside_a_repository_is_not_taken_for_it(repository: Path) -> None:
    with pytest.raises(RepositoryError, match="not the top folder"):
        resolve(repository / "library", "HEAD")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="is not a folder; TILEWATCH_REPOSITORY"):
        resolve(tmp_path / "nowhere", "HEAD")


def test_the_main_line_is_the_followed_branch_along_first_parents(repository: Path) -> None:
    first = resolve(repository, "HEAD").sha
    tiny_repository.git(repository, "switch", "--quiet", "--create", "feature")
    branch = tiny_repository.commit(repository, "Triple numbers", factor=3)
    tiny_repository.git(repository, "switch", "--quiet", "main")
    assert is_followed(repository, first, "HEAD")
    assert not is_followed(repository, branch, "HEAD")
    assert is_followed(repository, branch, "feature")
    tiny_repository.git(repository, "merge", "--quiet", "--no-ff", "--message", "Merge", "feature")
    assert is_followed(repository, resolve(repository, "HEAD").sha, "main")
    assert not is_followed(repository, branch, "main"), "a merged commit is no first parent"
    with pytest.raises(RepositoryError, match="has no branch 'trunk'"):
        is_followed(repository, first, "trunk")


def test_a_clone_that_was_only_fetched_follows_its_remote(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    tiny_repository.git(tmp_path, "clone", "--quiet", str(repository), str(clone))
    ahead = tiny_repository.commit(repository, "Triple numbers", factor=3)
    tiny_repository.git(clone, "fetch", "--quiet")
    assert is_followed(clone, ahead, "HEAD")
