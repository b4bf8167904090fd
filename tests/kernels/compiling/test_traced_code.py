"""Host code that runs on some machines only is traced there and compiled anywhere, to the same machine code."""

import io
import os
from pathlib import Path

import cuda.tile as ct
import pytest
from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel

from tests.kernels.fixtures.needs_package import write_package, write_repository
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.compiler_input import CompilerInput, compile_input, make_input
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.compiling.traced_code import BadTracedCode, LaunchInput, OtherCompiler, read_traced
from tilewatch.kernels.library_errors import PackageMissing
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.kernels.watching.tracer import TracingError

PROBLEM = "8x64:bf16"


@pytest.fixture
def watch(tmp_path: Path) -> Path:
    """The watch folder of a repository whose host code imports a package that no path has yet."""
    return write_repository(tmp_path / "repository") / "watch"


@pytest.fixture
def with_package(tmp_path: Path) -> str:
    """PYTHONPATH of a machine that has the package."""
    path = (str(write_package(tmp_path / "packages")), os.environ.get("PYTHONPATH", ""))
    return os.pathsep.join(filter(None, path))


def test_what_one_machine_records_another_compiles_to_the_same_machine_code(
    watch: Path, with_package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator launches two kernels, so its code is a bundle."""
    own, shared = folder(tmp_path / "own"), folder(tmp_path / "shared")
    with monkeypatch.context() as able:
        able.setenv("PYTHONPATH", with_package)
        (plan,) = catalog.read(watch, arch="sm_90", kernel="doubled")
        trial = plan.trials[0]
        with Compiler(own) as compiler:
            direct = compiler.compile(watch, "doubled", PROBLEM, trial.config, "sm_90")
        with Compiler(shared) as compiler:
            compiler.trace(watch, "doubled", PROBLEM, trial.config, "sm_90", code_key=trial.code_key)
    with Compiler(shared) as compiler:
        with pytest.raises(PackageMissing, match="No module named 'host_package'"):
            compiler.compile(watch, "doubled", PROBLEM, trial.config, "sm_90")
        remote = compiler.compile(watch, "doubled", PROBLEM, trial.config, "sm_90", code_key=trial.code_key)
    assert (remote.status, remote.symbol, remote.facts) == ("ok", "double_rows+sum_rows", direct.facts)
    assert remote.content_key == direct.content_key
    assert remote.content_key is not None
    cubins = [CubinStore(store).cubin(remote.content_key) for store in (own, shared)]
    assert cubins[0] == cubins[1]


def trace_failure(version: str, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with this compiler traces a config that has no code."""
    with monkeypatch.context() as other, Compiler(store) as compiler:
        other.setattr(Compiler, "_read_toolchain_version", lambda _: version)
        other.setattr(Compiler, "_ask_tracer", lambda *_: {"compiler": version, "failure": "TileTypeError: no"})
        compiler.trace(Path("watch"), "doubled", PROBLEM, {}, "sm_90", code_key="key")


def test_code_of_another_compiler_is_traced_again(watch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes got a newer cuda-tile. The store has what the older one traced."""
    store = folder(tmp_path / "store")
    trace_failure("cuda-tile 0.9", store, monkeypatch)
    with Compiler(store) as compiler, pytest.raises(PackageMissing) as missing:
        compiler.compile(watch, "doubled", PROBLEM, {}, "sm_90", code_key="key")
    assert missing.value.compiler == compiler_version()


def test_code_for_another_compiler_is_refused_with_both_names(
    watch: Path, with_package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", with_package)
    wanted = rf"traced with {compiler_version()}, but is compiled with cuda-tile 99: set TILEWATCH_COMPILER on every"
    with Compiler(folder(tmp_path / "store")) as compiler, pytest.raises(BuildError, match=wanted):
        compiler.trace(watch, "doubled", PROBLEM, {"tile": 32}, "sm_90", code_key="key", compiler="cuda-tile 99")
    assert not list(tmp_path.glob("store/*/*.recorded"))


def test_an_owners_code_of_another_compiler_is_not_compiled() -> None:
    with pytest.raises(OtherCompiler, match=r"cuda-tile 0\.9, but .*TILEWATCH_COMPILER"):
        read_traced({"compiler": "cuda-tile 0.9", "launches": []})


LAUNCH = {"key": "", "symbol": "double", "bytecode": "aGVsbG8=", "opt_level": 3, "preview_features": []}


def read_launch(**fields: object) -> LaunchInput:
    (launch,) = read_traced(
        {"compiler": compiler_version(), "launches": [{**LAUNCH, **fields}], "is_bundle": True}
    ).launches
    return launch


def test_a_launch_that_says_no_more_is_not_dependent_and_linked_with_nothing(tmp_path: Path) -> None:
    """Code that was traced before 2026-11-29 says neither."""
    assert read_launch() == LaunchInput("", "double", CompilerInput(b"hello", 3, (), ()), False)
    (tmp_path / "lib.bc").write_bytes(b"linked")
    more = read_launch(programmatic_dependent_launch=True, libraries=[str(tmp_path / "lib.bc")])
    assert more.programmatic_dependent_launch
    assert [each.content for each in more.wanted.libraries] == [b"linked"]


@pytest.mark.parametrize(("field", "most"), [("key", 10_000), ("symbol", 10_000)])
def test_a_name_may_be_as_long_as_the_limit(field: str, most: int) -> None:
    assert read_launch(**{field: "x" * most})
    with pytest.raises(BadTracedCode, match=rf"launches\.0\.{field}: String should have at most {most} characters"):
        read_launch(**{field: "x" * (most + 1)})


def test_a_failure_or_a_path_may_be_as_long_as_the_limit() -> None:
    code = {"compiler": compiler_version()}
    with pytest.raises(TracingError, match=r"^x{100000}$"):
        read_traced({**code, "failure": "x" * 100_000})
    with pytest.raises(BadTracedCode, match="failure: String should have at most 100000 characters"):
        read_traced({**code, "failure": "x" * 100_001})
    with pytest.raises(BadTracedCode, match="a library that the kernel is linked with cannot be read: "):
        read_launch(libraries=["/" + "x" * 4095])
    with pytest.raises(BadTracedCode, match="String should have at most 4096 characters"):
        read_launch(libraries=["/" + "x" * 4096])


@pytest.mark.parametrize("left_out", ["launches", "is_bundle"])
def test_a_part_that_is_left_out_is_named(left_out: str) -> None:
    whole = {"compiler": compiler_version(), "launches": [LAUNCH], "is_bundle": False}
    assert read_traced(whole).launch_sha256 is None
    with pytest.raises(BadTracedCode, match=f"the traced code has no '{left_out}'"):
        read_traced({name: value for name, value in whole.items() if name != left_out})


def test_bytecode_with_letters_of_no_base64_is_refused() -> None:
    with pytest.raises(BadTracedCode, match="bytecode: "):
        read_launch(bytecode="aGVs!bG8=")


def test_a_config_without_code_is_recorded_with_its_reason(
    watch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path / "store")
    trace_failure(compiler_version(), store, monkeypatch)
    with Compiler(store) as compiler:
        outcome = compiler.compile(watch, "doubled", PROBLEM, {}, "sm_90", code_key="key")
    assert (outcome.status, outcome.failure) == ("error", "TileTypeError: no")


def print_ones(width: ct.Constant[int]) -> None:
    ct.printf("%f", ct.sum(ct.ones((width,), dtype=ct.float32)))


def test_the_halves_of_compiling_give_what_cutile_exports() -> None:
    kernel = ct.kernel(opt_level=1, occupancy=2)(print_ones)
    signature = KernelSignature([64], CallingConvention.cutile_python_v1(), symbol="print_ones")
    exported = io.BytesIO()
    export_kernel(kernel, [signature], exported, gpu_code="sm_90", output_format="cubin")
    written = make_input(kernel, signature, "sm_90").to_json()
    assert written["opt_level"] == 1
    launch = {"key": "", "symbol": "print_ones", **written}
    (read,) = read_traced({"compiler": compiler_version(), "launches": [launch], "is_bundle": False}).launches
    assert compile_input(read.wanted, "sm_90", 60)[0] == exported.getvalue()
