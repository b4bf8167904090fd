"""The commit of a library folder, its moment, whatever its author's clock said, and folders that have none."""

import datetime as dt
from pathlib import Path

import pytest

from tests.worker.fixtures.tiny_repository import git
from tilewatch.kernels.recording import git_commit
from tilewatch.kernels.recording.git_commit import NoHistory, commit_of, read_moment, repository_name

NOW_S = 1_795_000_000


@pytest.mark.parametrize(
    ("seconds", "moment_s"),
    [
        (str(NOW_S - 1), NOW_S - 1),
        (str(NOW_S), NOW_S),
        (str(NOW_S + 1), NOW_S),
        ("9" * 30, NOW_S),
        ("9" * 31, 0),
        ("1", 1),
        ("-1", 0),
        ("soon", 0),
        ("", 0),
    ],
)
def test_a_moment_is_between_1970_and_now(seconds: str, moment_s: int) -> None:
    now = dt.datetime.fromtimestamp(NOW_S, dt.UTC)
    assert read_moment(seconds, now) == dt.datetime.fromtimestamp(moment_s, dt.UTC)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits and the merge of a branch, of which the last has an old date."""
    folder = tmp_path / "watched"
    (folder / "library").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for subject in ("one", "two"):
        git(folder, "commit", "-q", "--allow-empty", "-m", subject)
    git(folder, "checkout", "-q", "-b", "side", "HEAD~1")
    git(folder, "commit", "-q", "--allow-empty", "-m", "beside")
    git(folder, "checkout", "-q", "main")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-01-02T03:04:05Z")
    git(folder, "merge", "-q", "--no-ff", "-m", "a \x1b[2Jmerge\n\nand its body", "side")
    return folder


def test_a_commit_has_its_place_along_first_parents_and_its_subject_without_controls(repository: Path) -> None:
    found = commit_of(repository / "library")
    assert (found.repository, found.position, found.author) == ("watched", 3, "Tester")
    assert len(found.sha) == 40
    assert "\x1b" not in found.subject
    assert found.subject.startswith("a ")
    assert found.subject.endswith("merge")
    assert found.committed_at == "2020-01-02T03:04:05+00:00"
    earlier = commit_of(repository, "HEAD~1")
    assert (earlier.subject, earlier.position) == ("two", 2)


def test_a_folder_without_a_commit_is_named_with_what_is_missing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    for folder, revision, sentence in (
        (tmp_path / "none", "HEAD", f"there is no folder {tmp_path}/none"),
        (tmp_path / "plain", "HEAD", f"{tmp_path}/plain is not in a Git repository"),
        (repository, "no-such", f"the repository of {repository} has no commit 'no-such'"),
        (repository, "--all", f"the repository of {repository} has no commit '--all'"),
    ):
        with pytest.raises(NoHistory, match=sentence):
            commit_of(folder, revision)
    monkeypatch.setattr(git_commit, "make_environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(NoHistory, match="git is not installed"):
        git_commit._git(repository, "status")


def test_a_repository_without_a_remote_is_named_by_its_folder(repository: Path, tmp_path: Path) -> None:
    assert repository_name(repository / "library") == "watched"
    git(tmp_path, "clone", "-q", "--bare", str(repository), "kept.git")
    git(tmp_path / "kept.git", "remote", "remove", "origin")
    assert repository_name(tmp_path / "kept.git") == "kept"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://user:token@example.org:8443/a/b.git", "https://example.org:8443/a/b.git"),
        ("https://token@example.org/a/b", "https://example.org/a/b"),
        ("https://example.org/a/b.git?token=x#y", "https://example.org/a/b.git"),
        ("ssh://git@example.org:22/b.git", "ssh://example.org:22/b.git"),
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
        ("/srv/git/b.git", "b"),
        ("//server/git/b.git", "b"),
        ("../beside/b", "b"),
        ("file:///srv/b.git", "file:///srv/b.git"),
        ("b.git", "b.git"),
    ],
)
def test_a_remote_is_named_by_its_address_without_credentials(repository: Path, url: str, name: str) -> None:
    """The same repository has the same name on every machine, unless it is a folder of one machine."""
    git(repository, "config", "remote.origin.url", url)
    assert repository_name(repository / "library") == name
