"""Each kernel of the library compiles with its default config on its first watched problem: for sm_90, or for the next
architecture that it has a config for. `make test-release` compiles each on every problem for every architecture."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewatch.kernels.catalog.loading import LibraryKernel, load
from tilewatch.kernels.catalog.signature import code_key, element_bytes, signature
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.tile_table import default_config

ARCHS = ("sm_90", "sm_100", "sm_120")
MORE_ARCHS = ("sm_103", "sm_110", "sm_121")
CORES = 2

Asked = tuple[str, str, str, dict[str, int]]
FindFailures = Callable[[list[Asked]], list[str]]


@pytest.fixture(scope="module")
def find_failures(pytestconfig: pytest.Config) -> Iterator[FindFailures]:
    """Compiles configs in two compiler processes on one store.

    The store is in pytest's cache folder and names what it holds by the code and the compiler. So the next run
    compiles what changed; a kernel takes a second of a core (2026-11-23).
    """
    url, started = folder(pytestconfig.cache.mkdir("cubins")), list[Compiler]()
    of_thread = threading.local()

    def start() -> None:
        of_thread.compiler = Compiler(url, limit_s=60)
        started.append(of_thread.compiler)

    def compiled(asked: Asked) -> str | None:
        arch, name, problem, config = asked
        outcome = of_thread.compiler.compile(LIBRARY, name, problem, config, arch)
        return None if outcome.status == "ok" else f"{name} {problem} {config}: {outcome.failure}"

    with ThreadPoolExecutor(CORES, initializer=start) as pool:
        yield lambda asked: [failure for failure in pool.map(compiled, asked) if failure]
    for compiler in started:
        compiler.close()


def list_configs(arch: str, kernels: dict[str, LibraryKernel], problems: int | None = None) -> list[Asked]:
    """One of each signature among a kernel's first problems, or among all. None where a kernel says itself that this
    architecture lacks what it needs."""
    wanted = {}
    for name, loaded in kernels.items():
        configs = loaded.kernel.list_nightly(arch)
        for problem in loaded.kernel.problems[:problems]:
            if configs:
                config = default_config(arch, element_bytes(loaded.kernel, problem), configs)
                key = code_key(loaded.source_sha256, arch, signature(loaded.kernel, problem, config))
                wanted.setdefault(key, (arch, name, problem.name, config))
    return list(wanted.values())


def test_every_kernel_compiles_with_its_default_config(find_failures: FindFailures) -> None:
    left, asked = load(LIBRARY), list[Asked]()
    for arch in ARCHS:
        of_arch = list_configs(arch, left, problems=1)
        assert of_arch or arch != ARCHS[0]
        asked += of_arch
        left = {name: loaded for name, loaded in left.items() if name not in {each[1] for each in of_arch}}
    assert not left, "kernels without a config for any architecture"
    assert find_failures(asked) == []


@pytest.mark.parametrize("arch", ["sm_100", "sm_103"])
def test_the_config_with_which_the_fp8_story_began_compiles_on_b200(find_failures: FindFailures, arch: str) -> None:
    config = {"tile_m": 512, "tile_n": 512, "tile_k": 512, "num_ctas": 8, "group_size_m": 8}
    space = load(LIBRARY)["gemm_tiled"].kernel.space(arch).configs()
    assert [each for each in space if each["tile_m"] == 512] == [config]
    assert find_failures([(arch, "gemm_tiled", "320x32576x7168-fp8", config)]) == []


@pytest.mark.parametrize("arch", ["sm_120", "sm_121"])
def test_clusters_compile_on_rtx_blackwell(find_failures: FindFailures, arch: str) -> None:
    config = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "num_ctas": 2, "group_size_m": 8}
    walks = {"gemm_nt": "320x32576x7168-bfloat16", "gemm_nt_fp8": "320x32576x7168-fp8"}
    kernels, hinted = load(LIBRARY), {**config, "occupancy": 1, "num_worker_warps": 8}
    assert config in kernels["gemm_tiled"].kernel.space(arch).configs()
    assert all(hinted in kernels[name].kernel.space(arch).configs() for name in walks)
    assert find_failures([(arch, name, problem, hinted) for name, problem in walks.items()]) == []


@pytest.mark.release
@pytest.mark.parametrize("arch", [*ARCHS, *MORE_ARCHS])
def test_every_kernel_compiles_on_every_problem(find_failures: FindFailures, arch: str) -> None:
    asked = list_configs(arch, load(LIBRARY))
    assert asked
    assert find_failures(asked) == []
