"""Scores `tilewatch compare`: its error rates and power on made-up and recorded launches, and the time of whole
answers.

The recorded launches are those of benchmarks/gpu/compare.py at commit e7265af. The whole answer for a changed kernel
file is timed only on a machine with a GPU."""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.compare_worlds import NOISES, Ended, compare, find_next_look
from tilewatch import processes
from tilewatch.kernels import device
from tilewatch.kernels.comparing.verdict import Design, judge
from tilewatch.kernels.library import FOLDER

RECORDED = Path(__file__).parent / "gpu" / "launches_h200.json"
DESIGN = Design(operators=3)
"""Design of a comparison of one changed kernel file with three problems."""

FINE = Design(operators=1, most_launches=400, margin=0.001)
"""Design of `compare --kernel K --problem P --margin 0.1% --launches 400`."""

PLANTED = 0.0015
"""The change that the fine design must find."""


@dataclass(frozen=True)
class Recorded:
    """The launches of one pair of sides, in the order in which they ran."""

    name: str
    is_aa: bool
    launches: tuple[tuple[float, float], ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=1000)
    bounds.add_options(parser)
    options = parser.parse_args()
    sys.exit(bounds.report(_measure(options.worlds), report_only=options.report_only, write=options.write))


def _measure(worlds: int) -> Iterator[Figure]:
    yield from _score_made(worlds)
    yield from _score_recorded(worlds)
    yield from _score_fine(worlds)
    yield from _time_answers()


def _score_made(worlds: int) -> Iterator[Figure]:
    for operators in (1, 20):
        chance = random.Random(f"launches {operators}")  # noqa: S311 - made launches
        large = [compare(0.05, NOISES["quiet"], Design(operators=operators), chance) for _ in range(worlds)]
        launches = statistics.median(each.verdict.launches for each in large)
        yield Figure(f"made, quiet: launches for a step of 5 %, {operators} changed operators", f"{launches:.0f}")
    for noise, make in NOISES.items():
        chance = random.Random(f"made {noise}")  # noqa: S311 - made launches
        same = [compare(0.0, make, DESIGN, chance) for _ in range(worlds)]
        yield from _score_same(f"made, {noise}", same)
        covered = list(same)
        for step in (0.01, 0.005):
            stepped = [compare(step, make, DESIGN, chance) for _ in range(worlds)]
            covered += stepped
            yield _count(f"made, {noise}: a step of {step:.1%} found", _is("slower", stepped))
        limit = [compare(0.011, make, DESIGN, chance) for _ in range(worlds)]
        wrong = [each.verdict.not_slower_than <= 0.01 for each in limit]
        yield _count(f"made, {noise}: 1.1% slower called not slower than 1%", wrong)
        share = 100 * sum(each.is_covered for each in covered) / len(covered)
        yield bounds.measure(f"made, {noise}: coverage of 95% intervals", share, cases=len(covered))


def _score_recorded(worlds: int) -> Iterator[Figure]:
    pairs = _read_recorded()
    chance = random.Random("recorded")  # noqa: S311 - an order, not a secret
    drawn: list[Ended] = []
    real: list[Ended] = []
    for pair in (each for each in pairs if each.is_aa):
        drawn += [_end(0.0, _draw(pair, chance)) for _ in range(worlds // 5)]
        launches = iter(pair.launches)
        while (ended := _end(0.0, launches)) is not None:
            real.append(ended)
    yield from _score_same("H200, drawn again with sides swapped at random", [each for each in drawn if each])
    yield from _score_same("H200, as it ran", real)
    for pair in (each for each in pairs if not each.is_aa):
        found = [each for _ in range(worlds // 5) if (each := _end(0.0, _draw(pair, chance, may_swap=False)))]
        middle = sorted(each.verdict.change for each in found)[len(found) // 2]
        size = "a step of 0.9% or more" if middle > 0.009 else "a step of 0.5% or more" if middle > 0.005 else "a step"
        yield _count(f"H200, {pair.name}, {middle:+.2%}: {size} found", _is("slower", found))


def _score_fine(worlds: int) -> Iterator[Figure]:
    """Yields what a margin of 0.1 % finds, in made launches and in recorded ones with a change planted in the head."""
    chance = random.Random("fine")  # noqa: S311 - made launches
    quiet = [[compare(change, NOISES["quiet"], FINE, chance) for _ in range(worlds)] for change in (0.0, PLANTED)]
    yield from _score_planted("margin 0.1%, made, quiet", *quiet)
    for pair in (each for each in _read_recorded() if each.is_aa):
        ended = [
            [_end(change, _draw(pair, chance, planted=change), FINE) for _ in range(worlds // 5)]
            for change in (0.0, PLANTED)
        ]
        yield from _score_planted(f"margin 0.1%, H200, {pair.name}", *([each for each in of if each] for of in ended))


def _score_planted(of: str, same: list[Ended], changed: list[Ended]) -> Iterator[Figure]:
    yield _count(f"{of}: equal code called slower or faster", _is("slower", same, "faster"))
    yield _count(f"{of}: a step of {PLANTED:.2%} found", _is("slower", changed))
    covered = [each.is_covered for each in (*same, *changed)]
    yield bounds.measure(f"{of}: coverage of 95% intervals", 100 * sum(covered) / len(covered), cases=len(covered))
    launches = sorted(each.verdict.launches for each in (*same, *changed))
    yield Figure(
        f"{of}: launches, median and 90th percentile",
        f"{launches[len(launches) // 2]}, {launches[len(launches) * 9 // 10]}",
    )


def _score_same(of: str, ended: list[Ended]) -> Iterator[Figure]:
    yield _count(f"{of}: equal code called slower or faster", _is("slower", ended, "faster"))
    fine = [each.verdict.not_slower_than <= 0.01 for each in ended]
    yield _count(f"{of}: equal code called not slower than 1% or less", fine)
    launches = sorted(each.verdict.launches for each in ended)
    middle, late = launches[len(launches) // 2], launches[len(launches) * 9 // 10]
    yield Figure(f"{of}: launches, median and 90th percentile", f"{middle}, {late}")


def _end(change: float, launches: Iterator[tuple[float, float]], design: Design = DESIGN) -> Ended | None:
    """Runs one comparison on recorded launches; None if there are too few of them."""
    base_us: list[float] = []
    head_us: list[float] = []
    while True:
        for _ in range(find_next_look(len(base_us), design) - len(base_us)):
            launch = next(launches, None)
            if launch is None:
                return None
            base_us.append(launch[0])
            head_us.append(launch[1])
        verdict = judge(base_us, head_us, design)
        if verdict.is_final:
            return Ended(change, verdict)


def _draw(
    pair: Recorded, chance: random.Random, may_swap: bool = True, planted: float = 0.0
) -> Iterator[tuple[float, float]]:
    while True:
        base_us, head_us = chance.choice(pair.launches)
        if may_swap and chance.random() < 0.5:
            base_us, head_us = head_us, base_us
        yield base_us, head_us * (1 + planted)


def _read_recorded() -> list[Recorded]:
    pairs = json.loads(RECORDED.read_text())["pairs"]
    return [
        Recorded(pair["name"], pair["is_aa"], tuple(zip(pair["base_us"], pair["head_us"], strict=True)))
        for pair in pairs
    ]


def _time_answers() -> Iterator[Figure]:
    """Yields the time of whole cold answers of the command in a new repository: one without changed code, and one with
    a changed kernel file."""
    has_gpu = bool(device.gpus())
    options = [] if has_gpu else ["--static"]
    machine = "on the GPU" if has_gpu else "static, every architecture"
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch) / "repository"
        shutil.copytree(FOLDER, repository / "kernels" / "library", ignore=shutil.ignore_patterns("__pycache__"))
        _git(repository, "init", "--quiet")
        _commit(repository)
        _edit(repository, lambda source: source.replace('"""', '"""Other words. ', 1))
        took_s = _time(repository, scratch, ["HEAD~1..HEAD", *options])
        yield _time_answer(f"a comment changed, {machine}: whole answer", took_s)
        _edit(repository, lambda source: source.replace("PaddingMode.ZERO", "PaddingMode.UNDETERMINED"))
        took_s = _time(repository, scratch, ["HEAD~1..HEAD", "--configs", "shipped", *options])
        what = f"one kernel file changed, 3 problems, {machine}: whole answer"
        yield _time_answer(what, took_s)


def _time(repository: Path, scratch: str, arguments: list[str]) -> float:
    started = time.monotonic()
    command = [sys.executable, "-m", "tilewatch.worker.cli.main", "compare", *arguments]
    path = processes.python_path(FOLDER.parents[1] / "src")
    environment = {"TILEWATCH_HOME": f"{scratch}/home-{started}", "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=repository, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode == 2:
        raise SystemExit(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
    return time.monotonic() - started


def _edit(repository: Path, change: Callable[[str], str]) -> None:
    file = repository / "kernels" / "library" / "gemm.py"
    file.write_text(change(file.read_text()))
    _commit(repository)


def _commit(repository: Path) -> None:
    _git(repository, "add", ".")
    _git(repository, "-c", "user.name=Bench", "-c", "user.email=bench@example.org", "commit", "--quiet", "-m", "a step")


def _git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository, check=True)


def _is(kind: str, ended: Iterable[Ended], *others: str) -> list[bool]:
    return [each.verdict.kind in (kind, *others) for each in ended]


def _time_answer(what: str, took_s: float) -> Figure:
    """Returns the time of an answer as a figure. Its bound holds for a machine with a GPU and 16 cores."""
    if bounds.find_bound(what) is None:
        return Figure(what, f"{took_s:.0f} s")
    return bounds.measure(what, took_s, cases=1)


def _count(what: str, hits: list[bool]) -> Figure:
    """Returns the share of cases that are hits as a figure, with its bound if it has one."""
    share = sum(hits) / len(hits)
    text = f"{sum(hits)} of {len(hits)} ({share:.1%})"
    has_bound = bounds.find_bound(what) is not None
    return bounds.measure(what, 100 * share, cases=len(hits), text=text) if has_bound else Figure(what, text)


if __name__ == "__main__":
    main()
