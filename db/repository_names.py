"""Builds and splits the names of repositories in the database, such as "NAME (branch BRANCH)"."""

BRANCH_START = " (branch "

UNDER = "under "

EXAMPLES = ("tilewatch-story",)
"""Names of repositories in recordings with planted regressions, which are examples for people."""


def name_of_branch(repository: str, branch: str) -> str:
    """Returns the repository name under which a branch is stored."""
    return f"{repository}{BRANCH_START}{branch})"


def is_example(name: str) -> bool:
    """Returns whether a repository is an example with artificial regressions, which pages do not count."""
    return name in EXAMPLES


def split_branch(name: str) -> tuple[str, str | None]:
    """Splits a stored name into the repository and the branch, which is None for a main line."""
    repository, start, rest = name.partition(BRANCH_START)
    return (repository, rest.removesuffix(")")) if start and rest.endswith(")") else (name, None)


def is_branch(name: str) -> bool:
    """Returns whether a repository's stored name is the name of a branch."""
    return split_branch(name)[1] is not None


def name_under_toolchain(branch: str | None, toolchain: str) -> str:
    """Returns the branch name for results of another toolchain. `branch` is None for the main line."""
    # The space is safe, because no branch name can have one.
    return " ".join(filter(None, (branch, f"{UNDER}{toolchain}")))


def branch_without_toolchain(name: str) -> str | None:
    """Returns the branch in a stored name, without its toolchain; None for the main line."""
    _, branch = split_branch(name)
    return f" {branch or ''}".partition(f" {UNDER}")[0].strip() or None


def describe_branch(name: str) -> str:
    """Returns words for a branch name, such as "branch NAME" or "under TOOLCHAIN"."""
    return name if name.startswith(UNDER) else f"branch {name}"
