"""Whole commits of a real Git repository, checked out once, read-only, and removed when unused."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.worker.fixtures import small_disk, tiny_repository
from tilewatch.worker.git import checkouts
from tilewatch.worker.git.checkouts import (
    IN_USE_S,
    KeptCommit,
    checkout,
    checkout_commit,
    checkout_library,
    choose_unused,
    remove_unused,
)
from tilewatch.worker.git.commits import RepositoryError, resolve


def test_a_checkout_holds_the_commit_and_not_the_working_tree(repository: Path, tmp_path: Path) -> None:
    first = resolve(repository, "HEAD").sha
    tiny_repository.commit(repository, "Triple numbers", factor=3)
    (repository / "library" / "double.py").write_text("unfinished work")
    library = checkout(repository, first, "library", tmp_path / "cache")
    assert (library / "double.py").read_text() == tiny_repository.SOURCE.replace("FACTOR", "2.0")
    assert (repository / "library" / "double.py").read_text() == "unfinished work"


def test_a_checkout_leaves_the_repository_as_it_was(repository: Path, tmp_path: Path) -> None:
    before = sorted(path for path in (repository / ".git").rglob("*"))
    checkout(repository, resolve(repository, "HEAD").sha, "library", tmp_path / "cache")
    assert sorted(path for path in (repository / ".git").rglob("*")) == before
    assert tiny_repository.git(repository, "status", "--porcelain") == ""


def test_workers_that_check_out_at_once_agree_and_leave_nothing_half_made(repository: Path, tmp_path: Path) -> None:
    sha, cache = resolve(repository, "HEAD").sha, tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: checkout(repository, sha, "library", cache), range(8)))
    assert set(found) == {cache / sha / "library"}
    assert [path.name for path in found[0].iterdir()] == ["double.py"]
    assert [path.name for path in cache.iterdir()] == [sha]


def test_a_commit_without_the_library_is_named(repository: Path, tmp_path: Path) -> None:
    sha = resolve(repository, "HEAD").sha
    with pytest.raises(RepositoryError, match=r"has no folder 'kernels/library'; `watch` of \[tool.tilewatch\] "):
        checkout(repository, sha, "kernels/library", tmp_path / "cache")


def test_a_cache_that_cannot_be_made_is_named_with_its_setting(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(RepositoryError, match=r"home/commits cannot be made: .*; TILEWATCH_HOME names the data folder"):
        checkout(repository, resolve(repository, "HEAD").sha, "library", tmp_path / "home" / "commits")


@pytest.mark.parametrize("named", ["/dev/zero", "/dev/ptmx", "other.toml"])
def test_settings_that_are_a_link_are_refused_unread(repository: Path, tmp_path: Path, named: str) -> None:
    (repository / "pyproject.toml").symlink_to(named)
    tiny_repository.git(repository, "add", ".")
    tiny_repository.commit(repository, "Link", factor=3)
    with pytest.raises(RepositoryError, match=r"pyproject.toml of commit .* is a link or a folder, not a file"):
        checkout_library(repository, resolve(repository, "HEAD").sha, "library", tmp_path / "cache")


def test_settings_of_more_than_a_quarter_of_a_mebibyte_are_refused(repository: Path, tmp_path: Path) -> None:
    (repository / "pyproject.toml").write_text("#" * ((1 << 18) + 1))
    tiny_repository.git(repository, "add", ".")
    tiny_repository.commit(repository, "Fill", factor=3)
    with pytest.raises(RepositoryError, match=r"pyproject.toml of commit .* has more than 0.25 MiB"):
        checkout_library(repository, resolve(repository, "HEAD").sha, "library", tmp_path / "cache")


def test_settings_are_those_of_the_commit(repository: Path, tmp_path: Path) -> None:
    sha = resolve(repository, "HEAD").sha
    assert checkout_library(repository, sha, "library", tmp_path / "cache").name == "library"
    (repository / "watch").mkdir()
    (repository / "watch" / "file.py").write_text("")
    (repository / "pyproject.toml").write_text("[tool.tilewatch]\nwatch = 'watch'\n")
    tiny_repository.git(repository, "add", ".")
    tiny_repository.commit(repository, "Watch", factor=3)
    sha = resolve(repository, "HEAD").sha
    assert checkout_library(repository, sha, "library", tmp_path / "cache").name == "watch"


def test_a_commit_that_is_larger_than_a_disk_is_refused_before_a_file_of_it_is_written(
    repository: Path, tmp_path: Path
) -> None:
    """Git stores it in kilobytes: ten folders of ten folders of ..., with 10^9 files."""

    def git(*arguments: str, stdin: str) -> str:
        command = ["git", "-c", "user.name=Tester", "-c", "user.email=tester@example.org", *arguments]
        return subprocess.run(command, cwd=repository, check=True, input=stdin, capture_output=True, text=True).stdout

    entry = f"100644 blob {git('hash-object', '-w', '--stdin', stdin='x').strip()}"
    for _ in range(9):
        tree = "".join(f"{entry}\t{number}\n" for number in range(10))
        entry = f"040000 tree {git('mktree', stdin=tree).strip()}"
    sha = git("commit-tree", entry.split()[2], stdin="Bomb").strip()
    with pytest.raises(RepositoryError, match=r"has more than 200,000 files or 4 GiB"):
        checkout_commit(repository, sha, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("left_bytes", [0, 100_000])
def test_a_commit_that_does_not_fit_on_a_full_disk_says_so(repository: Path, tmp_path: Path, left_bytes: int) -> None:
    (repository / "large").write_bytes(os.urandom(200_000))
    sha = tiny_repository.commit(repository, "Fill", factor=3)
    cache = tmp_path / "cache"
    cache.mkdir()
    with small_disk.mount(cache, "1m"):
        unwritten = pytest.raises(RepositoryError, match=r"unable to write file large|Out of diskspace")
        with small_disk.fill(cache, left_bytes), unwritten:
            checkout_commit(repository, sha, cache)
        assert checkout_commit(repository, sha, cache).is_dir()


def test_a_commit_may_have_as_many_bytes_and_files_as_are_allowed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "other").write_bytes(bytes(500))
    sha = tiny_repository.commit(repository, "Fill", factor=3)
    size_bytes = 500 + (repository / "library" / "double.py").stat().st_size
    for files, most_bytes in ((2, size_bytes - 1), (1, size_bytes)):
        monkeypatch.setattr(checkouts, "MOST_FILES", files)
        monkeypatch.setattr(checkouts, "MOST_BYTES", most_bytes)
        with pytest.raises(RepositoryError, match="has more than"):
            checkout_commit(repository, sha, tmp_path / "cache")
    monkeypatch.setattr(checkouts, "MOST_FILES", 2)
    assert checkout_commit(repository, sha, tmp_path / "cache").is_dir()


def test_a_library_that_is_a_link_out_of_the_commit_is_refused(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository / "watch").symlink_to(tmp_path / "elsewhere")
    (repository / "inside").symlink_to("library")
    tiny_repository.git(repository, "add", ".")
    tiny_repository.commit(repository, "Link", factor=3)
    sha = resolve(repository, "HEAD").sha
    with pytest.raises(RepositoryError, match=r"'watch' of commit .* is a link out of the commit"):
        checkout(repository, sha, "watch", tmp_path / "cache")
    assert checkout(repository, sha, "inside", tmp_path / "cache").name == "inside"


@pytest.mark.parametrize("absolute", [True, False])
def test_a_library_outside_of_the_commit_is_refused(repository: Path, tmp_path: Path, absolute: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    sha = resolve(repository, "HEAD").sha
    library = str(tmp_path / "elsewhere") if absolute else "../../elsewhere"
    with pytest.raises(RepositoryError, match="is not a folder of a commit"):
        checkout(repository, sha, library, tmp_path / "cache")


def test_a_checkout_of_an_unknown_commit_says_so(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="no commit"):
        checkout(repository, "0" * 40, "library", tmp_path / "cache")


def test_a_commit_of_another_repository_says_which_one_this_worker_watches(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError) as raised:
        checkout(repository, "ab" * 20, "library", tmp_path / "cache")
    assert f"the repository of {repository} has no commit" in str(raised.value)
    assert "fetch it, or let Tilewatch clone the repository of the job by itself" in str(raised.value)


def test_a_checkout_holds_the_whole_commit(repository: Path, tmp_path: Path) -> None:
    (repository / "package").mkdir()
    (repository / "package" / "helper.py").write_text("FACTOR = 3")
    (repository / ".gitattributes").write_text("package export-ignore")
    sha = tiny_repository.commit(repository, "Add a package", factor=3)
    folder = checkout_commit(repository, sha, tmp_path / "cache")
    assert (folder / "package" / "helper.py").read_text() == "FACTOR = 3"
    assert checkout(repository, sha, "library", tmp_path / "cache") == folder / "library"


def test_a_bare_clone_is_checked_out_too(repository: Path, tmp_path: Path) -> None:
    tiny_repository.git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    sha = resolve(repository, "HEAD").sha
    assert (checkout(tmp_path / "bare.git", sha, "library", tmp_path / "cache") / "double.py").is_file()


def test_nobody_may_write_into_a_checkout(repository: Path, tmp_path: Path) -> None:
    (repository / "link").symlink_to("library/double.py")
    sha = tiny_repository.commit(repository, "Add a link", factor=3)
    folder = checkout_commit(repository, sha, tmp_path / "cache")
    paths = [folder, *folder.rglob("*")]
    assert {path.name for path in paths if path.lstat().st_mode & 0o222} == {"link"}, "a link has no mode of its own"
    assert (repository / "library" / "double.py").stat().st_mode & 0o200


def kept(name: str, used_at: float, size_bytes: int = 1) -> KeptCommit:
    return KeptCommit(Path(name), used_at, size_bytes)


def test_the_longest_unused_checkouts_go_until_the_rest_is_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkouts, "KEPT_COMMITS", 2)
    monkeypatch.setattr(checkouts, "KEPT_BYTES", 10)
    now = 10 * IN_USE_S
    assert choose_unused([kept("b", 2), kept("a", 1), kept("c", 3)], now) == [Path("a")]
    assert choose_unused([kept("a", 1, 1), kept("b", 2, 10)], now) == [Path("a")]
    assert choose_unused([kept("a", 1, 5), kept("b", 2, 5)], now) == []
    assert choose_unused([kept(name, now - IN_USE_S + 1) for name in "abc"], now) == [], "a job may be reading them"


def test_a_removed_checkout_is_made_again(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    first, second = resolve(repository, "HEAD").sha, tiny_repository.commit(repository, "Triple", factor=3)
    (cache / "working-tree").mkdir(parents=True)
    for sha in (first, second):
        os.utime(checkout_commit(repository, sha, cache), (1, 1))
    monkeypatch.setattr(checkouts, "KEPT_COMMITS", 1)
    checkout_commit(repository, second, cache)  # used now
    remove_unused(cache, time.time())
    assert sorted(path.name for path in cache.iterdir()) == sorted((second, "working-tree"))
    assert (checkout(repository, first, "library", cache) / "double.py").is_file()


def test_what_a_killed_process_left_half_made_or_half_removed_is_removed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, sha = tmp_path / "cache", resolve(repository, "HEAD").sha
    os.utime(checkout_commit(repository, sha, cache), (1, 1))
    for name in (f".removing-{sha}", ".making-old", ".making-now"):
        (cache / name / "files").mkdir(parents=True)
    os.utime(cache / ".making-old", (1, 1))
    monkeypatch.setattr(checkouts, "KEPT_COMMITS", 0)
    remove_unused(cache, time.time())
    assert [path.name for path in cache.iterdir()] == [".making-now"]


def test_a_checkout_that_somebody_asks_for_while_others_are_looked_at_stays(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, sha = tmp_path / "cache", resolve(repository, "HEAD").sha
    os.utime(checkout_commit(repository, sha, cache), (1, 1))

    def choose(kept: list[KeptCommit], now: float) -> list[Path]:
        chosen = choose_unused(kept, now)
        checkout_commit(repository, sha, cache)
        return chosen

    monkeypatch.setattr(checkouts, "KEPT_COMMITS", 0)
    monkeypatch.setattr(checkouts, "choose_unused", choose)
    remove_unused(cache, time.time())
    assert (cache / sha).is_dir()
