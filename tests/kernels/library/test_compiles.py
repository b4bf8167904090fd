"""Every kernel of the library compiles for every architecture with its default config, on every watched problem."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.loading import load
from tilewatch.kernels.signature import code_key, element_bytes, signature
from tilewatch.kernels.tile_table import default_config

ARCHS = ("sm_90", "sm_100", "sm_120")
CORES = 2


@pytest.fixture(scope="module")
def compilers(pytestconfig: pytest.Config) -> Iterator[ThreadPoolExecutor]:
    """Two compiler processes on one store, so that problems of one signature are compiled once.

    The store is in pytest's cache folder and names what it holds by the code and the compiler. So the next run
    compiles what changed; all of it takes 100 s of a core, a third of it for each architecture (2026-11).
    """
    url, started = folder(pytestconfig.cache.mkdir("cubins")), list[Compiler]()
    of_thread = threading.local()

    def start() -> None:
        of_thread.compiler = Compiler(url, limit_s=60)
        started.append(of_thread.compiler)

    pool = ThreadPoolExecutor(CORES, initializer=start)
    pool.of_thread = of_thread  # type: ignore[attr-defined]
    yield pool
    pool.shutdown()
    for compiler in started:
        compiler.close()


@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_compiles_with_its_default_config(compilers: ThreadPoolExecutor, arch: str) -> None:
    wanted = {}
    for name, loaded in load(LIBRARY).items():
        for problem in loaded.kernel.problems:
            configs = loaded.kernel.space(arch).configs()
            if not configs:
                continue  # the kernel says itself that this architecture lacks what it needs
            config = default_config(arch, element_bytes(loaded.kernel, problem), configs)
            key = code_key(loaded.source_sha256, arch, signature(loaded.kernel, problem, config))
            wanted.setdefault(key, (name, problem.name, config))

    def compiled(asked: tuple[str, str, dict[str, int]]) -> str | None:
        name, problem, config = asked
        outcome = compilers.of_thread.compiler.compile(LIBRARY, name, problem, config, arch)  # type: ignore[attr-defined]
        if outcome.status == "ok":
            return None
        return f"{name} {problem} {config}: {outcome.failure}"

    failures = [failure for failure in compilers.map(compiled, wanted.values()) if failure]
    assert wanted
    assert not failures, "\n".join(failures)
