"""Repositories that are set up in odd ways are read as they are, or refused in a sentence that says what is wrong."""

import os
from pathlib import Path

import pytest

from tests.worker.fixtures import odd_histories
from tests.worker.fixtures.tiny_repository import git
from tilewatch.kernels.problems.outside_files import POINTER, list_pointers
from tilewatch.worker.cli.compare_sides import find_repository
from tilewatch.worker.git import clones
from tilewatch.worker.git.branch_order import order_branch
from tilewatch.worker.git.clones import Clone, FetchFailed
from tilewatch.worker.git.commits import (
    RepositoryError,
    find_merge_base,
    find_tips,
    first_parents,
    is_ancestor,
    resolve,
)
from tilewatch.worker.git.commits import git as read_git
from tilewatch.worker.git.working_tree import copy_working_tree
from tilewatch.worker.settings import Settings


def follow(tmp_path: Path, remote: Path, branch: str | None = None) -> Clone:
    clone = Clone("odd", str(remote), tmp_path / "clones" / "odd.git")
    clones.fetch(clone)
    clones.follow(clone, branch or clones.choose_branch(clone))
    return clone


def places(folder: Path, branch: str = "HEAD") -> list[str]:
    found = order_branch(folder, find_tips(folder, branch), []).positions
    return sorted(found, key=found.__getitem__)


def test_a_worktree_is_read_at_its_own_head(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path / "r", "worktree", "add", "--quiet", str(tmp_path / "tree"), "-b", "side", shas[0])
    own = odd_histories.add(tmp_path / "tree", "Own")
    assert resolve(tmp_path / "tree", "HEAD").sha == own
    assert places(tmp_path / "tree") == [shas[0], own]
    assert places(tmp_path / "r") == shas


def test_a_bare_repository_is_read(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "r"), "bare.git")
    git(tmp_path / "bare.git", "remote", "remove", "origin")
    found = resolve(tmp_path / "bare.git", "main")
    assert (found.repository, found.sha) == ("bare", shas[-1])
    assert places(tmp_path / "bare.git") == shas
    assert places(follow(tmp_path, tmp_path / "bare.git").folder) == shas


def test_a_remote_with_long_hashes_is_followed(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    git(tmp_path / "r", "init", "--quiet", "--object-format", "sha256", "--initial-branch", "main")
    shas = [odd_histories.add(tmp_path / "r", subject) for subject in ("One", "Two")]
    clone = follow(tmp_path, tmp_path / "r")
    assert {len(sha) for sha in shas} == {64}
    assert places(clone.folder, "main") == shas
    assert resolve(clone.folder, "main").sha == shas[-1]


def test_a_detached_head_is_followed_where_no_branch_is_named(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path / "r", "switch", "--quiet", "--detach", shas[0])
    assert places(tmp_path / "r") == shas[:1]
    assert places(tmp_path / "r", "main") == shas


def test_a_remote_without_a_default_branch_is_named(tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path / "r", "switch", "--quiet", "--detach")
    odd_histories.add(tmp_path / "r", "On no branch")
    clone = Clone("odd", str(tmp_path / "r"), tmp_path / "clones" / "odd.git")
    clones.fetch(clone)
    with pytest.raises(RepositoryError, match="odd has no default branch: name the branch"):
        clones.choose_branch(clone)


def test_the_default_branch_has_its_name_where_a_tag_has_it_too(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path / "r", "tag", "main", shas[0])
    clone = follow(tmp_path, tmp_path / "r")
    assert clones.choose_branch(clone) == "main"
    assert places(clone.folder, "main") == shas


@pytest.mark.parametrize("name", ["feature/a.b", "weiß", "0123456789", "-".join("ab"), "refs/heads/main", "@home"])
def test_a_branch_may_have_any_name_that_git_takes(tmp_path: Path, name: str) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path / "r", "update-ref", f"refs/heads/{name}", shas[0])
    clone = follow(tmp_path, tmp_path / "r", name)
    assert find_tips(clone.folder, f"refs/heads/{name}")[-1] == shas[0]
    assert resolve(clone.folder, name).sha == shas[0]


def test_a_branch_that_became_a_folder_of_branches_is_fetched(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path / "r", "branch", "topic")
    clone = follow(tmp_path, tmp_path / "r")
    git(tmp_path / "r", "branch", "--delete", "--force", "topic")
    git(tmp_path / "r", "branch", "topic/one", shas[0])
    clones.fetch(clone)
    assert resolve(clone.folder, "topic/one").sha == shas[0]


def test_a_push_with_force_deletes_nothing_that_was_fetched(tmp_path: Path) -> None:
    base, old = odd_histories.make(tmp_path / "r", "Old")
    clone = follow(tmp_path, tmp_path / "r")
    (new,) = odd_histories.rewrite(tmp_path / "r", base, "New")
    clones.fetch(clone)
    read_git(clone.folder, "gc", "--quiet")
    assert find_tips(clone.folder, "main")[-1] == new
    assert resolve(clone.folder, old).sha == old


def test_a_commit_that_was_pushed_during_a_fetch_is_followed(tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "r")
    clone = follow(tmp_path, tmp_path / "r")
    later = odd_histories.add(tmp_path / "r", "Pushed meanwhile")
    clones.follow(clone, "main")
    assert find_tips(clone.folder, "main")[-1] == later


def test_a_fetch_that_leaves_the_branch_as_it_was_is_no_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = odd_histories.make(tmp_path / "r")
    clone = follow(tmp_path, tmp_path / "r")
    later = odd_histories.add(tmp_path / "r", "Two")
    monkeypatch.setattr(clones, "_fetch", lambda _: None)
    with pytest.raises(
        FetchFailed, match=f"has main at {later[:10]}, and git fetch leaves the clone's at {first[:10]}"
    ):
        clones.follow(clone, "main")


def test_signatures_that_a_person_wants_to_see_are_in_no_subject(tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "r")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n bm8=\n -----END PGP SIGNATURE-----"
    odd_histories.write_raw(tmp_path / "r", ("\n\nDouble", f"\n{signature}\n\nDouble"))
    git(tmp_path / "r", "config", "log.showSignature", "true")
    found = resolve(tmp_path / "r", "HEAD")
    assert (found.subject, found.author) == ("Double numbers", "Tester")


def test_a_persons_output_encoding_changes_no_subject(tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "r", "Größe ändern ≥ 2")
    git(tmp_path / "r", "config", "i18n.logOutputEncoding", "ISO-8859-1")
    assert resolve(tmp_path / "r", "HEAD").subject == "Größe ändern ≥ 2"


def test_a_commit_in_another_encoding_is_read(tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "r", "Plain")
    raw = git(tmp_path / "r", "cat-file", "commit", "HEAD")
    assert "\n\nPlain" in raw
    sha = odd_histories.write_raw(tmp_path / "r", ("\n\nPlain", "\nencoding ISO-8859-1\n\nGr\xf6\xdfe"))
    assert resolve(tmp_path / "r", sha).subject == "Größe"


def test_a_commit_without_author_and_message_is_read(tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "r", "Two")
    author = next(line for line in git(tmp_path / "r", "cat-file", "commit", "HEAD").splitlines() if "author" in line)
    sha = odd_histories.write_raw(tmp_path / "r", (author, "author  <> 0 +0000"))
    found = resolve(tmp_path / "r", sha)
    assert (found.author, found.position) == ("", 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to another user")
def test_a_repository_of_another_user_is_refused_in_gits_words(tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "r")
    for path in (tmp_path / "r", *(tmp_path / "r").rglob("*")):
        os.chown(path, 12345, 12345)
    with pytest.raises(RepositoryError, match=r"git refuses .*dubious ownership"):
        resolve(tmp_path / "r", "HEAD")


def test_a_source_that_is_a_partial_clone_is_cloned(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path / "r", "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{tmp_path}/r", "partial")
    assert places(follow(tmp_path, tmp_path / "partial").folder) == shas


def test_a_partial_clone_whose_remote_is_gone_fails_in_a_sentence(tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "r")
    git(tmp_path / "r", "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{tmp_path}/r", "partial")
    (tmp_path / "r").rename(tmp_path / "away")
    assert resolve(tmp_path / "partial", "HEAD").position == 1
    with pytest.raises(RepositoryError, match="`git show` fails in "):
        read_git(tmp_path / "partial", "show", "HEAD:library/double.py")


def test_a_clone_that_borrows_objects_is_read(tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    git(tmp_path, "clone", "--quiet", "--shared", str(tmp_path / "r"), "shared")
    assert places(tmp_path / "shared") == shas


def test_merge_bases_are_of_branches_and_not_of_tags(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    first, second = odd_histories.make(folder, "Two")
    git(folder, "switch", "--quiet", "--create", "topic")
    topic = odd_histories.add(folder, "Topic")
    git(folder, "tag", "main", first)
    git(folder, "tag", "topic", first)
    assert find_merge_base(folder, "main", "topic") == second
    assert find_merge_base(folder, second, topic) == second


def test_a_criss_cross_merge_has_a_merge_base(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    odd_histories.make(folder)
    git(folder, "switch", "--quiet", "--create", "topic")
    topic = odd_histories.add(folder, "Topic")
    git(folder, "switch", "--quiet", "main")
    main = odd_histories.add(folder, "Main")
    git(folder, "merge", "--quiet", "--no-ff", "--message", "One way", topic)
    git(folder, "switch", "--quiet", "topic")
    git(folder, "merge", "--quiet", "--no-ff", "--message", "The other way", main)
    assert find_merge_base(folder, "main", "topic") in (main, topic)


def test_histories_without_a_common_commit_have_no_merge_base(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    first, *_ = odd_histories.make(folder)
    git(folder, "switch", "--quiet", "--orphan", "other")
    other = odd_histories.add(folder, "Other")
    with pytest.raises(RepositoryError, match="main and other have no commit in common"):
        find_merge_base(folder, "main", "other")
    assert not is_ancestor(folder, first, other)
    assert not is_ancestor(folder, "f" * 40, other)
    assert first_parents(folder, "f" * 40, 5) == []


@pytest.mark.parametrize("names", [("GIT_DIR",), ("GIT_DIR", "GIT_WORK_TREE"), ("GIT_INDEX_FILE",)])
def test_a_hooks_environment_makes_no_other_repository_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    shas = odd_histories.make(tmp_path / "r", "Two")
    (tmp_path / "r" / "library").mkdir(exist_ok=True)
    (tmp_path / "r" / "library" / "sizes.jsonl").write_text(f"{POINTER}v1\n")
    git(tmp_path / "r", "add", ".")
    odd_histories.make(tmp_path / "other")
    for name in names:
        place = {"GIT_DIR": ".git", "GIT_INDEX_FILE": ".git/index"}.get(name, "")
        monkeypatch.setenv(name, str(tmp_path / "other" / place))
    assert places(tmp_path / "r") == shas
    assert resolve(tmp_path / "r", "HEAD").sha == shas[-1]
    assert list_pointers(tmp_path / "r" / "library") == ["sizes.jsonl"]
    assert (copy_working_tree(tmp_path / "r", "library", tmp_path / "copy") / "sizes.jsonl").is_file()
    monkeypatch.chdir(tmp_path / "r" / "library")
    assert find_repository(Settings()) == tmp_path / "r"
