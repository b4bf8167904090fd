"""Each kernel of the library compiles with its default config on its first watched problem: for sm_90, or for the next
architecture that it has a config for. `make test-release` compiles each on every problem for every architecture."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewatch.kernels.catalog.loading import LibraryKernel, load
from tilewatch.kernels.catalog.signature import code_key, element_bytes, signature
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.device import GPU_MODELS
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.results import Compiled
from tilewatch.kernels.tile_table import default_config

ARCHS = ("sm_90", "sm_100", "sm_120")
MORE_ARCHS = ("sm_80", "sm_89", "sm_103", "sm_110", "sm_121")
CORES = 2

OVER_A_LIMIT = ("not compiled within 15 s of CPU time", "the tile compiler needed more than 1.25 GiB")
NO_SPILL = ("gemm_fp4_scaled", "gemm_fp8_block_scaled", "gemm_mxfp8", "grouped_fp8_block_scaled")
"""Kernels that have on sm_120 only configs that do not spill."""

PARTS = 10
"""Parts of the FP8 story's space: one is 50 configs for sm_100 and 150 for sm_120."""

Asked = tuple[str, str, str, dict[str, int]]
CompileAll = Callable[[list[Asked]], list[Compiled]]
FindFailures = Callable[[list[Asked]], list[str]]


@pytest.fixture(scope="module")
def compile_all(pytestconfig: pytest.Config) -> Iterator[CompileAll]:
    """Compiles configs in two compiler processes on one store.

    The store is in pytest's cache folder and names what it holds by the code and the compiler. So the next run
    compiles what changed; a kernel takes a second of a core (2026-11-23).
    """
    url, started = folder(pytestconfig.cache.mkdir("cubins")), list[Compiler]()
    of_thread = threading.local()

    def start() -> None:
        of_thread.compiler = Compiler(url)
        started.append(of_thread.compiler)

    def compile_one(asked: Asked) -> Compiled:
        arch, name, problem, config = asked
        found: Compiled = of_thread.compiler.compile(LIBRARY, name, problem, config, arch)
        return found

    with ThreadPoolExecutor(CORES, initializer=start) as pool:
        yield lambda asked: list(pool.map(compile_one, asked))
    for compiler in started:
        compiler.close()


@pytest.fixture
def find_failures(compile_all: CompileAll) -> FindFailures:
    return lambda asked: [
        f"{each[1:]}: {found.failure}"
        for each, found in zip(asked, compile_all(asked), strict=True)
        if found.status != "ok"
    ]


def list_configs(arch: str, kernels: dict[str, LibraryKernel], problems: int | None = None) -> list[Asked]:
    """One of each signature among a kernel's first problems, or among all. None where a kernel says itself that this
    architecture lacks what it needs."""
    wanted = {}
    for name, loaded in kernels.items():
        configs = loaded.kernel.list_nightly(arch)
        for problem in loaded.kernel.problems[:problems]:
            # Before sm_90 the compiler has no FP8.
            is_fp8 = arch.startswith("sm_8") and (name, problem.name[-3:]) == ("gemm_tiled", "fp8")
            if configs and not is_fp8:
                config = default_config(arch, element_bytes(loaded.kernel, problem), configs, problem.sizes)
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
    kernels, hinted = load(LIBRARY), {**config, "occupancy": 1, "num_worker_warps": 8, "swap_ab": 0}
    assert config in kernels["gemm_tiled"].kernel.space(arch).configs()
    assert all(hinted in kernels[name].kernel.space(arch).configs() for name in walks)
    assert find_failures([(arch, name, problem, hinted) for name, problem in walks.items()]) == []


@pytest.mark.parametrize(
    ("arch", "name", "tile"),
    [
        ("sm_90", "attention_decode", {"tile_n": 64}),
        ("sm_90", "attention_decode_parts", {"tile_n": 64}),
        ("sm_100", "attention_prefill_causal", {"tile_m": 128, "tile_n": 128, "num_worker_warps": 8}),
    ],
)
def test_keys_and_values_have_latency_hints_of_their_own(
    compile_all: CompileAll, arch: str, name: str, tile: dict[str, int]
) -> None:
    kernel = load(LIBRARY)[name].kernel
    config = {**kernel.space(arch).configs()[0], **tile, "latency": 2, "latency_v": 2}
    hinted = [config, {**config, "latency": 4}, {**config, "latency_v": 4}]
    assert all(each in kernel.space(arch).configs() for each in hinted)
    found = compile_all([(arch, name, kernel.problems[0].name, each) for each in hinted])
    assert len({each.code_sha256 for each in found}) == len(hinted)


@pytest.mark.parametrize(("arch", "like"), [("sm_103", "sm_100"), ("sm_121", "sm_120")])
def test_a_gpu_has_the_configs_of_its_family(arch: str, like: str) -> None:
    """A rule for one architecture by its whole name left the other one configs that do not compile."""
    for name, loaded in load(LIBRARY).items():
        assert loaded.kernel.space(arch).configs() == loaded.kernel.space(like).configs(), name


def test_default_configs_on_rtx_blackwell_do_not_spill(compile_all: CompileAll) -> None:
    kernels = {name: each for name, each in load(LIBRARY).items() if name in (*NO_SPILL, "attention_prefill")}
    asked = list_configs("sm_120", kernels, problems=1)
    assert len(asked) == len(NO_SPILL) + 1
    assert {
        each[1]: found.facts and found.facts.stack_bytes for each, found in zip(asked, compile_all(asked), strict=True)
    } == {each[1]: 0 for each in asked}


@pytest.mark.release
@pytest.mark.parametrize("name", NO_SPILL)
def test_no_config_of_a_scaled_product_spills_on_rtx_blackwell(compile_all: CompileAll, name: str) -> None:
    kernel = load(LIBRARY)[name].kernel
    configs = kernel.space("sm_120").configs()
    found = compile_all([("sm_120", name, kernel.problems[0].name, each) for each in configs])
    assert [each.facts and each.facts.stack_bytes for each in found] == [0] * len(configs)


@pytest.mark.release
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("arch", ["sm_100", "sm_120"])
def test_the_fp8_story_s_space_compiles_within_the_limits_or_says_so(
    compile_all: CompileAll, arch: str, part: int
) -> None:
    """`-k "story_s_space and sm_100-0"` compiles 50 configs.

    Parts are drawn. Every tenth config for sm_100 has one of two depths: a part of those had all with a depth of 512 in
    one thread block, and 6 of the 23 that are over a limit.
    """
    kernel = load(LIBRARY)["gemm_fp8"].kernel
    space = kernel.space(arch).configs()
    configs = random.Random(1).sample(space, len(space))[part::PARTS]
    found = compile_all([(arch, "gemm_fp8", kernel.problems[0].name, each) for each in configs])
    failures = [each.failure or "" for each in found if each.status != "ok"]
    assert [each for each in failures if not each.startswith(OVER_A_LIMIT)] == []
    assert len(failures) <= len(found) / 10


@pytest.mark.release
@pytest.mark.parametrize("arch", [*ARCHS, *MORE_ARCHS])
def test_every_kernel_compiles_on_every_problem(find_failures: FindFailures, arch: str) -> None:
    asked = list_configs(arch, load(LIBRARY))
    assert asked
    assert find_failures(asked) == []


def test_every_architecture_of_a_known_gpu_is_compiled() -> None:
    assert {*ARCHS, *MORE_ARCHS} == {each.arch for each in GPU_MODELS}
