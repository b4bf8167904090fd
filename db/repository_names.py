"""Names of repositories in the database: those of main lines, and those of branches, which are kept apart from them.

What is compiled with another toolchain is kept apart alike, under a name that no branch can have, since it has a space.
"""

BRANCH_START = " (branch "

UNDER = "under "

EXAMPLES = ("tilewatch-story",)
"""Repositories of recordings whose regressions were planted, to show what one looks like."""


def name_of_branch(repository: str, branch: str) -> str:
    """Names a branch's commits as a repository of their own, so that its runs never meet those of the main line."""
    return f"{repository}{BRANCH_START}{branch})"


def is_example(name: str) -> bool:
    """Returns whether the changes of a repository were planted: they are shown apart, and are in no count."""
    return name in EXAMPLES


def split_branch(name: str) -> tuple[str, str | None]:
    """Returns the name of the main line, and the branch; None for a name that `name_of_branch` did not give."""
    repository, start, rest = name.partition(BRANCH_START)
    return (repository, rest.removesuffix(")")) if start and rest.endswith(")") else (name, None)


def is_branch(name: str) -> bool:
    """Returns whether a name is one that `name_of_branch` gave."""
    return split_branch(name)[1] is not None


def name_under_toolchain(branch: str | None, toolchain: str) -> str:
    """Names what a toolchain compiled like a branch; None for the main line's commits."""
    return " ".join(filter(None, (branch, f"{UNDER}{toolchain}")))


def branch_without_toolchain(name: str) -> str | None:
    """Returns the branch whose commits a name stands for, whatever compiled them; None for those of the main line."""
    _, branch = split_branch(name)
    return f" {branch or ''}".partition(f" {UNDER}")[0].strip() or None


def describe_branch(name: str) -> str:
    """Says for people what the branch of a name is: a branch, or the main line under a toolchain."""
    return name if name.startswith(UNDER) else f"branch {name}"
