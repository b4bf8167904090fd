"""Times what a compile worker takes to go from one toolchain to another, which it does for a job, without a restart.

    python -m benchmarks.toolchain_switch

The toolchains are the installed one, in folders of their own. The first job of a toolchain starts its child process,
which imports cuda-tile; the child is kept for the next jobs. A switch ends when the child can compile.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.planted_toolchains import UNHARMED, make_toolchain
from tilewatch.kernels.compiling.trial import ARCH, CONFIG, KERNEL, PROBLEM
from tilewatch.kernels.library import FOLDER
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import compiler

TOOLCHAINS = 5
MOST_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bounds.add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-switch-") as folder:
        try:
            sys.exit(bounds.report(_measure(Path(folder)), report_only=options.report_only, write=options.write))
        finally:
            compiler.close()


def _measure(root: Path) -> Iterator[Figure]:
    # Nothing here asks a server.
    context = Context.of(Settings(home=root, database_url="postgresql://nowhere", broker_url="redis://nowhere"))
    names = [f"copy-{number}" for number in range(TOOLCHAINS)]
    for name in names:
        make_toolchain(context.toolchains, UNHARMED, name)
    _switch_s(context, None)
    first = [_switch_s(context, name) for name in names]
    again = [_switch_s(context, name) for name in (None, *names)]
    yield bounds.at_most(f"longest first switch of {len(first)}, the child starts", max(first), MOST_S, " s", 2)
    yield bounds.at_most(f"longest later switch of {len(again)}", max(again), MOST_S, " s", 2)


def _switch_s(context: Context, name: str | None) -> float:
    """Seconds until the child names the code of a config. It compiles one afterwards, so that it is in use."""
    started = time.perf_counter()
    switched = compiler.open_compiler(context, name)
    switched.identify(FOLDER, KERNEL, PROBLEM, CONFIG, ARCH)
    taken_s = time.perf_counter() - started
    switched.compile(FOLDER, KERNEL, PROBLEM, CONFIG, ARCH)
    return taken_s


if __name__ == "__main__":
    main()
