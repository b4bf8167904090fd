"""Orders the commits of a followed branch: each commit comes after its ancestors.

Commits that a merge or a forced push took off the line of first parents stay in the order."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tilewatch.worker.git.commits import git, is_shallow

Parents = Mapping[str, Sequence[str]]
"""Maps each commit to its parents, in Git's order."""


@dataclass(frozen=True)
class BranchOrder:
    """The order of a branch. `positions` maps hashes to numbers from 1. `left` has commits that left the branch."""

    positions: Mapping[str, int]
    left: frozenset[str]

    def has(self, sha: str) -> bool:
        """Returns whether a commit is on the branch now."""
        return sha in self.positions and sha not in self.left


def order_branch(repository: Path, tips: Sequence[str], known: Sequence[str]) -> BranchOrder:
    """Returns the order of a branch. `tips` are the newest commits, `known` the commits stored earlier, in order."""
    first_parents = git(repository, "rev-list", "--first-parent", tips[-1], "--").split()
    if {*known, *tips} <= set(first_parents):
        return BranchOrder({sha: place for place, sha in enumerate(reversed(first_parents), 1)}, frozenset())
    listed = list(dict.fromkeys([*known, *tips]))
    found = _list_found(repository, listed)
    parents = _read_parents(repository, [sha for sha in listed if sha in found])
    reached = find_reached(parents, tips)
    heads = sorted((sha for sha in listed if sha in found), key=reached.__contains__)  # removed commits first
    ordered = place_lost(order_by_ancestry(parents, [*heads, tips[-1]]), known, set(listed) - found)
    left = set[str]() if is_shallow(repository) else set(ordered) - reached  # a shallow clone lacks commits
    return BranchOrder({sha: place for place, sha in enumerate(ordered, 1)}, frozenset(left))


def order_by_ancestry(parents: Parents, heads: Sequence[str]) -> list[str]:
    """Lists the heads and their first-parent ancestors. Each commit comes after its ancestors."""
    line: set[str] = set()
    for head in heads:
        line.update(takewhile(lambda sha: sha not in line, _walk_first_parents(parents, head)))
    return [sha for sha in _walk_after_parents(parents, heads) if sha in line]


def find_reached(parents: Parents, heads: Iterable[str]) -> set[str]:
    """Returns the heads and all their ancestors."""
    reached: set[str] = set()
    waiting = list(heads)
    while waiting:
        sha = waiting.pop()
        if sha not in reached:
            reached.add(sha)
            waiting.extend(parents.get(sha, ()))
    return reached


def place_lost(ordered: Sequence[str], known: Sequence[str], lost: Collection[str]) -> list[str]:
    """Returns `ordered` with the `lost` commits inserted, each after the commit before it in `known`."""
    after: dict[str | None, list[str]] = {}
    before: str | None = None
    for sha in known:
        if sha in lost:
            after.setdefault(before, []).append(sha)
        else:
            before = sha
    return [*after.get(None, ()), *(each for sha in ordered for each in (sha, *after.get(sha, ())))]


def _walk_first_parents(parents: Parents, head: str) -> Iterator[str]:
    sha: str | None = head
    while sha is not None:
        yield sha
        sha = next(iter(parents.get(sha, ())), None)


def _walk_after_parents(parents: Parents, heads: Iterable[str]) -> Iterator[str]:
    """Yields the heads and their ancestors, each once and after its parents."""
    done: set[str] = set()
    for head in heads:  # without recursion, because histories are long
        path = [head] if head not in done else []
        while path:
            for parent in parents.get(path[-1], ()):
                if parent not in done:
                    path.append(parent)
                    break
            else:
                sha = path.pop()
                done.add(sha)
                yield sha


def _list_found(repository: Path, shas: Sequence[str]) -> set[str]:
    """Returns the hashes in `shas` that are commits of the repository."""
    asked = "".join(f"{sha}^{{commit}}\n" for sha in shas)
    answers = git(repository, "cat-file", "--batch-check=%(objectname)", stdin=asked).splitlines()
    return {sha for sha, answer in zip(shas, answers, strict=True) if answer == sha}


def _read_parents(repository: Path, heads: Sequence[str]) -> dict[str, list[str]]:
    listed = git(repository, "rev-list", "--parents", "--stdin", stdin="".join(f"{sha}\n" for sha in heads))
    parents = (line.split(" ") for line in listed.splitlines())
    return {sha: others for sha, *others in parents}
