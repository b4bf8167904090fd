"""Commit messages: which are refused, which commits of a clone are looked at, and the hook that Git runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.check_commits import HOOK, ROOT, check_commits, check_message, find_faults, install_hook

BODY = "\n\nBecause."
BEFORE, AFTER = "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"


@pytest.mark.parametrize(
    "subject",
    [
        "judge: order nights by ancestry",
        "grouped_fp8_masked: store 64-row tiles in place",
        "docs: Update tables from the H200 night of 1daa4d3",
        "Support sm_90 on an H100 with FP8",
        "Move to cuda-tile 1.7 on Python 3.13",
        "toolchains: Install 13.5.37 beside the first",
        "Speed up the page of a run",
        "Address what a review found",
    ],
)
def test_a_subject_that_names_one_change_is_accepted(subject: str) -> None:
    assert find_faults(subject + BODY) == []


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("Test that messages match the regressions confirmed in a night", "has 61 letters"),
        ("docs: The tables of a night", "no imperative"),
        ("judge: Orders nights by ancestry", "no imperative"),
        ("Ordering nights by ancestry", "no imperative"),
        ("Masked tiles leave in place", "no imperative"),
        ("judge: Say that a night is unchanged", "describes the author"),
        ("Keep what is right", "describes the author"),
        ("Speed up a claim to 20 ms", "has a figure"),
        ("Spill 128 bytes less", "has a figure"),
        ("Gain 5 % on large squares", "has a figure"),
        ("Gain 12% on large squares", "has a figure"),
        ("Scale errors by 1.5", "has a figure"),
        ("Fix pages, panels", "make two commits"),
        ("Fix pages and panels", "make two commits"),
        ("Fix pages; panels next", "make two commits"),
        ("wip: pages", "is unfinished"),
        ("WIP pages", "is unfinished"),
        ("fixup! Fix pages", "is unfinished"),
    ],
)
def test_a_subject_that_breaks_a_rule_is_refused(subject: str, fault: str) -> None:
    assert any(fault in each for each in find_faults(subject + BODY))


@pytest.mark.parametrize("word", ["it", "Those", "now"])
def test_a_new_subject_names_what_it_means(word: str) -> None:
    assert check_message(f"pages: Draw {word} in time{BODY}") == [f"has '{word}': write what is meant"]
    assert check_message(f"pages: Draw {word}ne in time{BODY}") == []
    assert check_message(f"pages: Name the columns{BODY}") == ["has 'Name': write what is meant"]
    assert check_message(f"pages: Show the name of a column{BODY}") == []


def test_sixty_letters_are_enough() -> None:
    assert find_faults("a" * 60 + BODY) == []


@pytest.mark.parametrize("message", ["Fix pages", "Fix pages\n", "Fix pages\n\n  \n"])
def test_a_message_without_a_reason_is_refused(message: str) -> None:
    assert find_faults(message) == ["has no body that gives the reason"]


def test_a_body_stands_apart_from_the_subject() -> None:
    assert find_faults("Fix pages\nBecause.") == ["has no empty line before the body"]


def test_comments_of_the_editor_are_no_body() -> None:
    assert check_message("Fix pages\n\n# On branch main\n# ------------------------ >8\ndiff --git a b\n") != []
    assert check_message("# A comment\nFix pages\n\nBecause.\n# On branch main\n") == []


def test_what_a_rebase_or_a_merge_writes_passes_the_hook() -> None:
    assert [check_message(text) for text in ("fixup! Fix pages", "Merge branch 'night'", 'Revert "Say"')] == [[]] * 3


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with a commit before the one that adds the tool, and that one."""
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path, "Whatever, and more", BEFORE)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "check_commits.py", tmp_path / "tools")
    git(tmp_path, "add", "tools")
    commit(tmp_path, "The tool", BEFORE)
    return tmp_path


def git(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {f"GIT_{role}_{what}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    env = {**os.environ, **own, **isolated, **environment}
    return subprocess.run(["git", "-C", str(folder), *words], env=env, check=False, capture_output=True, text=True)


def commit(folder: Path, message: str, at: str = AFTER) -> bool:
    return git(folder, "commit", "--allow-empty", "-m", message, GIT_AUTHOR_DATE=at).returncode == 0


def test_commits_that_were_written_after_the_tool_are_checked_and_no_others(clone: Path) -> None:
    commit(clone, "Of a branch that began before, rebased onto the tool", BEFORE)
    assert check_commits(clone) == []
    commit(clone, "Fix pages" + BODY)
    commit(clone, "Fix pages and panels" + BODY)
    (fault,) = check_commits(clone)
    assert "Fix pages and panels: has a comma, ';' or 'and'" in fault


def test_a_shallow_clone_is_checked_as_far_as_it_goes(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for subject in ("Say more", "Let pages be", "Fix pages"):
        commit(clone, subject + BODY)
    git(clone, "tag", "deep")
    shallow = tmp_path_factory.mktemp("shallow")
    git(shallow, "clone", "--quiet", "--depth", "1", f"file://{clone}", ".")
    assert check_commits(shallow) == []
    assert len(check_commits(clone)) == 2


def test_a_folder_without_history_has_no_faults_and_gets_no_hook(tmp_path: Path) -> None:
    assert (check_commits(tmp_path), install_hook(tmp_path)) == ([], None)
    assert list(tmp_path.iterdir()) == []


def test_the_hook_refuses_a_commit_and_lets_a_branch_without_the_tool_alone(clone: Path) -> None:
    assert install_hook(clone) is None
    assert not commit(clone, "Fix pages and panels" + BODY)
    assert commit(clone, "Fix pages" + BODY)
    git(clone, "checkout", "--quiet", "HEAD~2")
    assert not (clone / "tools" / "check_commits.py").exists()
    assert commit(clone, "Whatever, and more")


def test_a_hook_of_somebody_else_stays(clone: Path) -> None:
    own = clone / ".git" / "hooks" / "commit-msg"
    own.parent.mkdir(exist_ok=True)
    own.write_text("#!/bin/sh\n")
    assert f"{own} is yours" in str(install_hook(clone))
    assert own.read_text() == "#!/bin/sh\n"
    own.write_text(HOOK.replace("python3", "python"))
    assert install_hook(clone) is None
    assert own.read_text() == HOOK


def test_a_folder_of_hooks_for_all_clones_stays(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    everywhere = tmp_path_factory.mktemp("hooks")
    git(clone, "config", "core.hooksPath", str(everywhere))
    assert "is yours" in str(install_hook(clone))
    assert list(everywhere.iterdir()) == []
