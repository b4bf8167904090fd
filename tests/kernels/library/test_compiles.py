"""The kernels of the library compile with their default configs: on sm_90 each on every watched problem, elsewhere each
function whose search space is another than there. `make test-release` compiles the rest too."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.loading import LibraryKernel, load
from tilewatch.kernels.signature import code_key, element_bytes, signature
from tilewatch.kernels.tile_table import default_config

FIRST, OTHERS = "sm_90", ("sm_100", "sm_120")
CORES = 2

FindFailures = Callable[[str, dict[str, LibraryKernel], bool], list[str]]


@pytest.fixture(scope="module")
def find_failures(pytestconfig: pytest.Config) -> Iterator[FindFailures]:
    """Compiles kernels for an architecture, on each problem or on the first, in two compiler processes on one store:
    problems of one signature are compiled once.

    The store is in pytest's cache folder and names what it holds by the code and the compiler. So the next run
    compiles what changed; all of it takes 100 s of a core, a third of it for each architecture (2026-11).
    """
    url, started = folder(pytestconfig.cache.mkdir("cubins")), list[Compiler]()
    of_thread = threading.local()

    def start() -> None:
        of_thread.compiler = Compiler(url, limit_s=60)
        started.append(of_thread.compiler)

    def compiled(asked: tuple[str, str, str, dict[str, int]]) -> str | None:
        arch, name, problem, config = asked
        outcome = of_thread.compiler.compile(LIBRARY, name, problem, config, arch)
        return None if outcome.status == "ok" else f"{name} {problem} {config}: {outcome.failure}"

    with ThreadPoolExecutor(CORES, initializer=start) as pool:
        yield lambda *asked: [failure for failure in pool.map(compiled, list_configs(*asked)) if failure]
    for compiler in started:
        compiler.close()


def list_configs(
    arch: str, kernels: dict[str, LibraryKernel], every_problem: bool
) -> list[tuple[str, str, str, dict[str, int]]]:
    """One of each signature. None where a kernel says itself that this architecture lacks what it needs."""
    wanted = {}
    for name, loaded in kernels.items():
        configs = loaded.kernel.space(arch).configs()
        for problem in loaded.kernel.problems[: None if every_problem else 1]:
            if configs:
                config = default_config(arch, element_bytes(loaded.kernel, problem), configs)
                key = code_key(loaded.source_sha256, arch, signature(loaded.kernel, problem, config))
                wanted.setdefault(key, (arch, name, problem.name, config))
    assert wanted
    return list(wanted.values())


def list_functions_with_another_space(arch: str) -> dict[str, LibraryKernel]:
    """One kernel of each function. A function whose space is that of sm_90 differs in the tile compiler alone."""
    functions = {}
    for name, loaded in load(LIBRARY).items():
        if loaded.kernel.space(arch) != loaded.kernel.space(FIRST):
            functions.setdefault(id(loaded.kernel.entry), (name, loaded))
    return dict(functions.values())


@pytest.mark.parametrize("arch", [FIRST, *(pytest.param(each, marks=pytest.mark.release) for each in OTHERS)])
def test_every_kernel_compiles_with_its_default_config(find_failures: FindFailures, arch: str) -> None:
    assert find_failures(arch, load(LIBRARY), True) == []


@pytest.mark.parametrize("arch", OTHERS)
def test_a_function_that_is_tuned_otherwise_elsewhere_compiles_there(find_failures: FindFailures, arch: str) -> None:
    assert find_failures(arch, list_functions_with_another_space(arch), False) == []
