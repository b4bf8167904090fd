"""Scores how well planted mechanisms are recognised: `python -m benchmarks.mechanisms`. Needs no GPU.

Each of 24 pairs of builds is compiled. The mechanism is decided from configs, static facts and instructions alone, as
it is for runs without hardware counters."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.planted_mechanisms import PLANTED, PlantedMechanism
from tilewatch.kernels.comparing.code_sentences import diff_cubins
from tilewatch.kernels.comparing.outcome import read_winner_facts
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.results import Compiled
from tilewatch.mechanisms.find import KINDS, Mechanism, find_mechanisms, write_mechanisms
from tilewatch.mechanisms.pairs import Moved


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--jobs", type=int, default=2, help="compiler processes")
    bounds.add_options(asked)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilewatch-mechanisms-") as scratch:
        sys.exit(
            bounds.report(_score(Path(scratch), options.jobs), report_only=options.report_only, write=options.write)
        )


def _score(scratch: Path, jobs: int) -> Iterator[Figure]:
    store_url = folder(scratch / "cubins")
    outcomes = _compile(scratch, store_url, jobs)
    right = 0
    for planted, (base, head) in zip(PLANTED, outcomes, strict=True):
        found: tuple[Mechanism, ...] = ()
        if base.facts is not None and head.facts is not None:
            assert base.content_key is not None
            assert head.content_key is not None
            diff = diff_cubins(CubinStore(store_url), base.content_key, head.content_key)
            found = find_mechanisms(
                read_winner_facts(planted.config, base.facts),
                read_winner_facts({**planted.config, **planted.changed}, head.facts),
                tuple(
                    Moved(row.kind, row.loop_depth > 0, row.base, row.head)
                    for each in diff.launches
                    for row in each.rows
                ),
                is_slower=True,
                problem=planted.problem,
                arch=planted.arch,
            )
        is_right = len(found) > 0 and found[0].kind == planted.kind
        right += is_right
        failures = " ".join(each.failure for each in (base, head) if each.failure)
        print(
            f"       {'right' if is_right else 'WRONG'}: {KINDS[planted.kind][0]}, {planted.kernel} {planted.problem}: "
            f"{failures or write_mechanisms(found)}",
            flush=True,
        )
    title = f"main mechanism is the planted one, of {len(PLANTED)}"
    yield bounds.measure(title, 100 * right / len(PLANTED), cases=len(PLANTED))


def _compile(scratch: Path, store_url: str, jobs: int) -> list[tuple[Compiled, Compiled]]:
    def work(planted: PlantedMechanism, library: Path, config: dict[str, int]):  # type: ignore[no-untyped-def]
        return lambda compiler: compiler.compile(library, planted.kernel, planted.problem, config, planted.arch)

    works = []
    for number, planted in enumerate(PLANTED):
        works.append(work(planted, FOLDER, dict(planted.config)))
        works.append(
            work(planted, _write_library(scratch / f"library-{number}", planted), {**planted.config, **planted.changed})
        )
    with CompilerPool(store_url, jobs=jobs, limit_s=300.0) as pool:
        outcomes = pool.run_all(works)
    return list(zip(outcomes[::2], outcomes[1::2], strict=True))


def _write_library(target: Path, planted: PlantedMechanism) -> Path:
    if not planted.file:
        return FOLDER
    shutil.copytree(FOLDER, target, ignore=shutil.ignore_patterns("__pycache__"))
    file = target / planted.file
    source = file.read_text()
    assert planted.old in source, f"{planted.file} has no '{planted.old}'"
    file.write_text(source.replace(planted.old, planted.new))
    return target


if __name__ == "__main__":
    main()
