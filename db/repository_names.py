"""Names repositories in the database. A branch is stored as a repository of its own, so that its runs are separate from
the main line's. So are runs with another toolchain, under a name with a space, which a branch cannot have."""

BRANCH_START = " (branch "

UNDER = "under "

EXAMPLES = ("tilewatch-story",)
"""Names of repositories in recordings with planted regressions, which are examples for people."""


def name_of_branch(repository: str, branch: str) -> str:
    """Returns the name under which a branch is stored, as if it were a repository."""
    return f"{repository}{BRANCH_START}{branch})"


def is_example(name: str) -> bool:
    """Returns whether a repository's changes were planted. Planted changes are shown apart and not counted."""
    return name in EXAMPLES


def split_branch(name: str) -> tuple[str, str | None]:
    """Splits a stored name into the repository and the branch. The branch is None for a main line."""
    repository, start, rest = name.partition(BRANCH_START)
    return (repository, rest.removesuffix(")")) if start and rest.endswith(")") else (name, None)


def is_branch(name: str) -> bool:
    """Returns whether a stored name is that of a branch."""
    return split_branch(name)[1] is not None


def name_under_toolchain(branch: str | None, toolchain: str) -> str:
    """Returns the branch name for commits that another toolchain compiled. `branch` is None for the main line."""
    return " ".join(filter(None, (branch, f"{UNDER}{toolchain}")))


def branch_without_toolchain(name: str) -> str | None:
    """Returns a branch name without its toolchain; None if the name is the main line's."""
    _, branch = split_branch(name)
    return f" {branch or ''}".partition(f" {UNDER}")[0].strip() or None


def describe_branch(name: str) -> str:
    """Returns words for a branch name: that it is a branch, or that it is the main line under a toolchain."""
    return name if name.startswith(UNDER) else f"branch {name}"
