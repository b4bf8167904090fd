"""The name of machine code covers all that made it: no commit's code, and no commit's failure, stands in for
another's."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import cuda.tile as ct
import pytest
from cuda.tile import _compile

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.compiling import compile_child
from tilewatch.kernels.compiling.bytecode import MAGIC
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.compiler_input import CompilerInput, LinkedLibrary, compile_input
from tilewatch.kernels.compiling.operator_code import hash_bundle
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.compiling.traced_code import LaunchInput
from tilewatch.kernels.results import Compiled, is_final

HEADER = MAGIC + bytes((13, 4, 0, 0))
PLAIN = CompilerInput(HEADER + b"\0", 3, (), ())
OTHER = {
    "bytecode": HEADER + b"\2\4code\0",
    "opt_level": 0,
    "preview_features": ("simt",),
    "libraries": (LinkedLibrary(Path("/lib.bc"), b"one"),),
}
"""Another value of each field."""

REQUEST = {"arch": "sm_90", "limit_s": 15.0, "memory_bytes": 1 << 30}
HONEST = tiny_repository.SOURCE.replace("FACTOR", "2.0")


@dataclass(frozen=True)
class LaterInput(CompilerInput):
    """The compiler's input as a later version may have it."""

    warps: int = 4


def name(wanted: CompilerInput, symbol: str = "double", **asked: object) -> str:
    return compile_child._content_key(LaunchInput("", symbol, wanted), {**REQUEST, **asked})


@pytest.mark.parametrize("field", [each.name for each in fields(CompilerInput)])
def test_each_field_of_the_compiler_s_input_changes_the_name(field: str) -> None:
    assert name(replace(PLAIN, **{field: OTHER[field]})) != name(PLAIN)


def test_a_field_that_is_added_changes_the_name() -> None:
    later = LaterInput(**vars(PLAIN))
    assert name(replace(later, warps=8)) != name(later)


@pytest.mark.parametrize("asked", [{"arch": "sm_100"}, {"limit_s": 16.0}, {"memory_bytes": 2 << 30}])
def test_what_is_asked_of_the_compiler_changes_the_name(asked: dict[str, object]) -> None:
    assert name(PLAIN, **asked) != name(PLAIN)


def test_a_stop_by_wall_time_counts_the_cpu_time_of_the_compiler_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child's own CPU time beside it had passed the limit, so the failure of a busy machine was taken for final."""

    def stop(*_: object) -> None:
        raise ct.TileCompilerTimeoutError("stopped", "", None)

    measured = iter((0.0, 15.08))
    monkeypatch.setattr(compile_child, "_measure_cpu_s", lambda: next(measured))
    monkeypatch.setattr(compile_child, "compile_input", stop)
    request = {**REQUEST, "store": tmp_path.as_uri(), "made": "", "wall_limit_s": 120.0}
    outcome = compile_child._compile(LaunchInput("", "double", PLAIN), request)
    assert "the machine was too busy" in outcome["failure"]
    assert not is_final(outcome, request["limit_s"])


@pytest.mark.parametrize(("part", "value"), [("compiler_version", lambda: "cuda-tile 9"), ("NAMING", 0)])
def test_the_compiler_and_the_version_of_names_change_the_name(
    part: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = name(PLAIN)
    monkeypatch.setattr(compile_child, part, value)
    assert name(PLAIN) != before


def test_the_symbol_changes_the_name() -> None:
    assert name(PLAIN, "other") != name(PLAIN)


def test_a_library_counts_by_its_content_and_not_by_where_it_lies() -> None:
    one, moved, changed = (
        replace(PLAIN, libraries=(LinkedLibrary(Path(path), content),))
        for path, content in (("/a/lib.bc", b"one"), ("/b/lib.bc", b"one"), ("/a/lib.bc", b"two"))
    )
    assert name(one) == name(moved)
    assert name(one) != name(changed)


def test_what_was_named_is_what_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit can write into its scratch folder while its code is compiled."""
    file, linked = tmp_path / "lib.bc", list[bytes]()
    file.write_bytes(b"named")
    library = LinkedLibrary.read(file)
    file.write_bytes(b"something else")

    def compile_cubin(bytecode: str, *_: object, linker_inputs: list[Path]) -> Path:
        linked.extend(each.read_bytes() for each in linker_inputs)
        return Path(bytecode)

    monkeypatch.setattr(_compile, "compile_cubin", compile_cubin)
    compile_input(replace(PLAIN, libraries=(library, library)), "sm_90", 60)
    assert linked == [b"named", b"named"]


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.bc"
    large.touch()
    os.truncate(large, 1 << 40)
    for path in (Path("/dev/zero"), tmp_path, tmp_path / "none", large):
        with pytest.raises(OSError, match=str(path)):
            LinkedLibrary.read(path)


def test_a_bundle_is_named_by_the_order_of_its_launches() -> None:
    """Its symbol and the hash of its code are said in this order, and stored with it."""
    launches = [LaunchInput(each, each, PLAIN) for each in ("first", "second")]
    assert hash_bundle(["a", "b"], launches) != hash_bundle(["b", "a"], launches[::-1])


@pytest.fixture
def compile_text(tmp_path: Path) -> Callable[[str], Compiled]:
    """Compiles a library file of this text, in one store, as another commit each time."""
    made = iter(range(10))

    def compile_one(text: str) -> Compiled:
        library = tmp_path / str(next(made))
        library.mkdir()
        (library / "double.py").write_text(text)
        with Compiler(folder(tmp_path / "cubins")) as compiler:
            return compiler.compile(library, "double", "1024", {"width": 128}, "sm_90")

    return compile_one


def test_code_without_optimization_does_not_stand_in_for_optimized_code(
    compile_text: Callable[[str], Compiled],
) -> None:
    slow = compile_text(HONEST.replace("@ct.kernel", "@ct.kernel(opt_level=0)"))
    fast, again = compile_text(HONEST), compile_text(HONEST)
    assert [(each.status, each.reused) for each in (slow, fast, again)] == [("ok", False), ("ok", False), ("ok", True)]
    assert slow.content_key != fast.content_key
    assert slow.code_sha256 != fast.code_sha256
    assert again.code_sha256 == fast.code_sha256


FORGED: dict[str, dict[str, Any]] = {
    "a feature that the compiler refuses": {"preview_features": ["nonsense"]},
    "another symbol": {"symbol": "none_of_that_name"},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_what_one_commit_makes_of_its_input_does_not_outlive_it(
    compile_text: Callable[[str], Compiled], forged: dict[str, Any]
) -> None:
    changed = f"""
from tilewatch.kernels.compiling import trace_child
write = trace_child.write_code
def write_code(*given, **asked):
    code = write(*given, **asked)
    code["launches"][0] |= {forged!r}
    return code
trace_child.write_code = write_code
"""
    before, honest = compile_text(changed + HONEST), compile_text(HONEST)
    assert (before.status, before.symbol) != ("ok", "double"), "the input was not changed"
    assert (honest.status, honest.reused, honest.failure) == ("ok", False, None)
    assert honest.symbol == "double"
