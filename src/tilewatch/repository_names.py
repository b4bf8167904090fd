"""Names of repositories in the database: those of main lines, and those of branches, which are kept apart from them."""

BRANCH_START = " (branch "


def name_of_branch(repository: str, branch: str) -> str:
    """Names a branch's commits as a repository of their own, so that its runs never meet those of the main line."""
    return f"{repository}{BRANCH_START}{branch})"


def split_branch(name: str) -> tuple[str, str | None]:
    """Returns the name of the main line, and the branch; None for a name that `name_of_branch` did not give."""
    repository, start, rest = name.partition(BRANCH_START)
    return (repository, rest.removesuffix(")")) if start and rest.endswith(")") else (name, None)


def is_branch(name: str) -> bool:
    """Returns whether a name is one that `name_of_branch` gave."""
    return split_branch(name)[1] is not None
