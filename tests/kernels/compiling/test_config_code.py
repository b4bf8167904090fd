"""What a library makes of a config: its launches and their hash, before anything is compiled."""

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest
from cuda.tile.compilation import CallingConvention, KernelSignature, ScalarConstraint

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.compiling import config_code
from tilewatch.kernels.compiling.compiler_input import CompilerInput, LinkedLibrary, NeedsLibraries
from tilewatch.kernels.compiling.config_code import ConfigCode, LaunchCode, read_code, write_code
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.library_errors import LibraryError, PackageMissing
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.kernels.watching.declare import BadWatchFile
from tilewatch.kernels.watching.tracer import TracingError

SOURCE = tiny_repository.SOURCE.replace("FACTOR", "2.0")
GRID = '(-(-problem.sizes["n"] // config["width"]), 1, 1)'

Read = Callable[..., ConfigCode]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a config's code from a library file of this text."""
    numbers = itertools.count()

    def read_one(source: str = SOURCE, *, problem: str = "1024", **config: int) -> ConfigCode:
        library = tmp_path / str(next(numbers))
        library.mkdir()
        (library / "double.py").write_text(source)
        asked = {"library": library, "kernel": "double", "problem": problem, "config": {"width": 64, **config}}
        return read_code({**asked, "arch": "sm_90"})

    return read_one


@pytest.mark.parametrize("sm_count", [1, 108, 132, 148, 170, 1 << 20])
def test_a_grid_that_changed_on_some_gpus_is_another_launch(read: Read, sm_count: int) -> None:
    """A persistent kernel has as many blocks as the GPU has multiprocessors: 108 on an A100, 170 on an RTX 5090."""
    assert GRID in SOURCE
    plain, changed, elsewhere = (
        read(SOURCE.replace(GRID, f"({grid}, 1, 1)")).hash_launches()
        for grid in ("4", f"5 if sm_count == {sm_count} else 4", "5 if sm_count == 7 else 4")
    )
    assert changed != plain
    assert elsewhere == plain, "no GPU has seven"


@pytest.mark.parametrize(
    ("old", "new", "is_other"),
    [
        ('(config["width"],)', '(2 * config["width"],)', False),
        ('"float32"),', '"float16"),', True),
        ('(problem.sizes["n"],), "float32", output', '(2 * problem.sizes["n"],), "float32", output', True),
        (GRID, "(3, 1, 1)", True),
    ],
)
def test_a_launch_is_its_grid_and_its_arguments_without_constants(
    read: Read, old: str, new: str, is_other: bool
) -> None:
    """Constants are part of the machine code."""
    assert old in SOURCE
    assert (read(SOURCE.replace(old, new)).hash_launches() != read().hash_launches()) is is_other


def test_a_kernel_has_one_launch_that_is_no_bundle_and_hints_are_part_of_the_code(read: Read) -> None:
    plain = write_code(read(), movable=True, named=False)
    (launch,) = plain.pop("launches")
    assert plain == {"compiler": compiler_version(), "is_bundle": False}
    assert (launch["key"], launch["symbol"], launch["programmatic_dependent_launch"]) == ("", "double", False)
    (hinted,) = write_code(read(occupancy=4), movable=True, named=False)["launches"]
    assert hinted["bytecode"] != launch["bytecode"]
    named = read()
    assert write_code(named, movable=True, named=True)["launch_sha256"] == named.hash_launches()


def test_code_that_is_linked_with_files_stays_on_this_machine() -> None:
    libraries = tuple(LinkedLibrary(Path(f"/{name}.bc"), b"") for name in "ab")
    linked = LaunchCode("one", "double", True, lambda: CompilerInput(b"", 3, (), libraries))
    plain = LaunchCode("two", "double", False, lambda: CompilerInput(b"", 3, (), ()))
    code = ConfigCode((plain, linked, plain), lambda: "hash", True)
    with pytest.raises(NeedsLibraries, match=r"linked with /a\.bc, /b\.bc of this machine"):
        write_code(code, movable=True, named=True)
    written = write_code(code, movable=False, named=True)
    assert [each["libraries"] for each in written["launches"]] == [[], ["/a.bc", "/b.bc"], []]
    assert [each["programmatic_dependent_launch"] for each in written["launches"]] == [False, True, False]
    assert (written["is_bundle"], written["launch_sha256"]) == (True, "hash")


def make_launch(
    constant: int = 64, scalar: Any = ct.int32, grid: tuple[int, ...] = (8,), *, is_dependent: bool = False
) -> SimpleNamespace:
    signature = KernelSignature([ScalarConstraint(scalar), constant], CallingConvention.cutile_python_v1(), symbol="k")
    names = {"launch_key": f"{scalar} {constant}", "symbol": "k", "kernel": None}
    return SimpleNamespace(**names, programmatic_dependent_launch=is_dependent, signature=signature, grid=grid)


def read_operator(*launches: SimpleNamespace, error: Exception | None = None) -> ConfigCode:
    """The code of an operator whose host code makes these launches or fails."""

    def launch(config: dict[str, int]) -> tuple[SimpleNamespace, ...]:
        assert config == {"tile": 64}
        if error is not None:
            raise error
        return launches

    def describe_failure(what: str, error: Exception) -> LibraryError:
        assert what == "with {'tile': 64} cannot be traced"
        return (PackageMissing if isinstance(error, ImportError) else LibraryError)("watch file ops.py, line 3: no")

    loaded: Any = SimpleNamespace(trace=lambda _: SimpleNamespace(launches=launch), describe_failure=describe_failure)
    return config_code._code_of_operator(loaded, Problem("8", {"n": 8}), {"tile": 64}, "sm_90")


@pytest.mark.parametrize(
    ("launches", "is_other"),
    [
        ([make_launch(), make_launch(32)], False),
        ([make_launch(), make_launch(grid=(9,))], True),
        ([make_launch(), make_launch(scalar=ct.float32)], True),
        ([make_launch(), make_launch(is_dependent=True)], True),
        ([make_launch()], True),
    ],
)
def test_an_operator_s_launches_are_a_bundle_and_hashed_without_constants(
    launches: list[SimpleNamespace], is_other: bool
) -> None:
    code = read_operator(*launches)
    assert code.is_bundle
    assert [(each.launch_key, each.symbol, each.programmatic_dependent_launch) for each in code.launches] == [
        (each.launch_key, "k", each.programmatic_dependent_launch) for each in launches
    ]
    assert (code.hash_launches() != read_operator(make_launch(), make_launch()).hash_launches()) is is_other


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ValueError("odd tile\nin line 7"), TracingError, "ValueError: odd tile"),
        (TracingError("no GPU"), TracingError, "no GPU"),
        (BadWatchFile("ops.py, line 3: no"), BadWatchFile, "ops.py, line 3: no"),
        (ImportError("host_package"), PackageMissing, "watch file ops.py, line 3: no"),
    ],
)
def test_host_code_that_refuses_a_config_is_no_mistake_of_the_library(
    error: Exception, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind) as raised:
        read_operator(error=error)
    assert (type(raised.value), str(raised.value)) == (kind, sentence)
