"""Measures a fetch and the ordering of a history of 100,000 commits, once the clone has its index.

    python -m benchmarks.histories [--commits 100000] [--report-only]

Three histories are ordered: a plain one; one with a foxtrot merge behind its first commits, which needs all of its
commits to be ordered; and one that was rewritten from its middle."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from tilewatch.worker.git import clones
from tilewatch.worker.git.branch_order import order_branch
from tilewatch.worker.git.clones import Clone
from tilewatch.worker.git.commits import find_tips

REPEATS = 5
KNOWN = 400
"""Number of commits that are stored already: a year of nights."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=100_000)
    bounds.add_options(parser)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(Path(scratch), asked.commits)
        sys.exit(bounds.report(figures, report_only=asked.report_only, write=asked.write))


def measure(scratch: Path, commits: int) -> Iterator[Figure]:
    remote = scratch / "remote.git"
    shas = write_history(remote, commits)
    clone = Clone("history", str(remote), scratch / "clones" / "history.git")
    clones.fetch(clone)
    seconds = [_time(lambda: _push_and_fetch(remote, clone)) for _ in range(REPEATS)]
    yield bounds.measure("fetch of one commit", statistics.median(seconds), cases=REPEATS)
    newest = find_tips(clone.folder, "main")
    side = _commit(remote, shas[0])
    foxtrot = _commit(remote, side, newest[-1])
    rewritten = _commit(remote, shas[commits // 2])
    for name, sha in (("foxtrot", foxtrot), ("rewritten", rewritten)):
        subprocess.run(["git", "-C", str(remote), "update-ref", f"refs/heads/{name}", sha], check=True)
    clones.fetch(clone)
    known = shas[:: max(commits // KNOWN, 1)]
    for name, branch in (("plain", "main"), ("foxtrot", "foxtrot"), ("rewritten", "rewritten")):
        tips = find_tips(clone.folder, branch)
        seconds = [_time(lambda tips=tips: order_branch(clone.folder, tips, known)) for _ in range(REPEATS)]  # type: ignore[misc]
        yield bounds.measure(f"{name}: order of a history", statistics.median(seconds), cases=REPEATS)


def write_history(folder: Path, commits: int) -> list[str]:
    """Writes a plain history with one `git fast-import`. Returns its commits, oldest first."""
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch", "main", str(folder)], check=True)
    lines = []
    for number in range(commits):
        lines.append(f"commit refs/heads/main\nmark :{number + 1}\n")
        lines.append(f"committer Bench <bench@example.org> {1_700_000_000 + 60 * number} +0000\ndata 0\n\n")
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input="".join(lines).encode(), check=True)
    listed = subprocess.run(
        ["git", "-C", str(folder), "rev-list", "--reverse", "main"], check=True, capture_output=True
    )
    return listed.stdout.decode().split()


def _commit(folder: Path, *parents: str) -> str:
    who = ["-c", "user.name=Bench", "-c", "user.email=bench@example.org"]
    after = [word for parent in parents for word in ("-p", parent)]
    line = ["git", *who, "-C", str(folder), "commit-tree", f"{parents[0]}^{{tree}}", *after, "-m", "More"]
    return subprocess.run(line, check=True, capture_output=True).stdout.decode().strip()


def _push_and_fetch(remote: Path, clone: Clone) -> None:
    sha = _commit(remote, "refs/heads/main")
    subprocess.run(["git", "-C", str(remote), "update-ref", "refs/heads/main", sha], check=True)
    clones.fetch(clone)
    clones.follow(clone, "main")


def _time(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


if __name__ == "__main__":
    main()
