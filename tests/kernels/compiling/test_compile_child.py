"""What a compile gives and stores, whatever the tile compiler does."""

import itertools
import resource
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import cuda.tile as ct
import pytest

from tilewatch.kernels.compiling import compile_child
from tilewatch.kernels.compiling.bytecode import MAGIC
from tilewatch.kernels.compiling.compiler_input import CompilerInput
from tilewatch.kernels.compiling.operator_code import list_code
from tilewatch.kernels.compiling.store import CubinStore, StoreError
from tilewatch.kernels.compiling.traced_code import LaunchInput
from tilewatch.kernels.toolchains.versions import compiler_version

BYTECODE = MAGIC + bytes((13, 4, 0, 0)) + b"\0"
LAUNCH = LaunchInput("", "double", CompilerInput(BYTECODE, 3, (), ()))
SLOW = ct.TileCompilerTimeoutError("stopped", "", None)
CODE = {"symbol": "double", "opt_level": 3, "preview_features": [], "bytecode": "f1RpbGVJUgANBAAAAA=="}
FACTS = {"registers": 32, "stack_bytes": 0, "shared_bytes": 0}
FAILURE = RuntimeError("ptxas failed\nwith code 7")


@pytest.fixture
def asked(tmp_path: Path) -> Mapping[str, Any]:
    limits = {"limit_s": 15.0, "wall_limit_s": 120.0, "memory_bytes": 5 << 28}
    return {"store": tmp_path.as_uri(), "made": "", "arch": "sm_90", **limits}


def compile_with(
    patch: pytest.MonkeyPatch,
    *,
    error: Exception | None = None,
    exceeded: Literal["memory", "cpu"] | None = None,
    guard_cpu_s: float = 0.0,
    cpu_s: float = 4.0,
) -> None:
    """A compiler that ends so, with a guard that has seen so much."""

    class Guard:
        def __init__(self, **limits: float) -> None:
            assert limits == {"memory_bytes": 5 << 28, "cpu_s": 15.0}
            self.exceeded, self.cpu_s = exceeded, guard_cpu_s

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    def compile_input(wanted: CompilerInput, arch: str, timeout_s: float) -> tuple[bytes, str]:
        assert (wanted.bytecode, arch, timeout_s) == (BYTECODE, "sm_90", 120.0)
        if error is not None:
            raise error
        return b"cubin", "remarks"

    used = itertools.cycle((3.0, 3.0 + cpu_s))
    patch.setattr(compile_child, "_measure_cpu_s", lambda: next(used))
    patch.setattr(compile_child, "CompilerGuard", Guard)
    patch.setattr(compile_child, "compile_input", compile_input)
    patch.setattr(compile_child, "hash_machine_code", lambda cubin: f"hash of {cubin.decode()}")
    patch.setattr(compile_child, "_read_facts", lambda cubin, remarks: {**FACTS, "remarks": [cubin.decode(), remarks]})


@pytest.mark.parametrize(
    ("how", "status", "failure", "cpu_s"),
    [
        ({"error": FAILURE}, "error", "RuntimeError: ptxas failed", 4.0),
        ({"error": FAILURE, "guard_cpu_s": 9.0}, "error", "RuntimeError: ptxas failed", 9.0),
        (
            {"error": FAILURE, "exceeded": "memory"},
            "error",
            "the tile compiler needed more than 1.25 GiB",
            4.0,
        ),
        (
            {"error": FAILURE, "exceeded": "cpu", "guard_cpu_s": 15.1},
            "timeout",
            "not compiled within 15 s of CPU time",
            15.1,
        ),
        (
            {"error": SLOW, "guard_cpu_s": 3.14},
            "timeout",
            "stopped after 120 s with 3.1 s of CPU time: the machine was too busy; submit it again to compile it again",
            3.14,
        ),
    ],
)
def test_a_failure_is_stored_with_its_reason_and_the_most_cpu_time_that_was_seen(
    monkeypatch: pytest.MonkeyPatch,
    asked: Mapping[str, Any],
    how: dict[str, Any],
    status: str,
    failure: str,
    cpu_s: float,
) -> None:
    compile_with(monkeypatch, **how)
    outcome = compile_child._compile(LAUNCH, asked)
    assert (outcome["status"], outcome["failure"], outcome["cpu_s"]) == (status, failure, cpu_s)
    assert 0 < outcome["compile_s"] < 60
    assert outcome["reused"] is False
    store = CubinStore(asked["store"])
    stored = store.outcome(outcome["content_key"])
    assert stored is not None
    assert {**stored, "reused": False} == outcome
    assert store.bytecode(outcome["content_key"]) is None


def test_a_compile_is_stored_with_its_code_and_found_again(
    monkeypatch: pytest.MonkeyPatch, asked: Mapping[str, Any]
) -> None:
    compile_with(monkeypatch)
    made = compile_child._compile(LAUNCH, asked)
    assert 0 < made["compile_s"] < 60
    assert {name: value for name, value in made.items() if name != "compile_s"} == {
        "status": "ok",
        "cpu_s": 4.0,
        "content_key": made["content_key"],
        "code_sha256": "hash of cubin",
        "symbol": "double",
        "facts": {**FACTS, "remarks": ["cubin", "remarks"]},
        "reused": False,
    }
    store = CubinStore(asked["store"])
    assert (store.cubin(made["content_key"]), store.bytecode(made["content_key"])) == (b"cubin", BYTECODE)
    compile_with(monkeypatch, error=AssertionError("compiled again"))
    assert compile_child._compile(LAUNCH, asked) == {**made, "reused": True}


@pytest.mark.parametrize(("cpu_s", "reused"), [(14.9, False), (15.0, True)])
def test_a_stored_timeout_is_final_if_the_compiler_had_its_cpu_time(
    monkeypatch: pytest.MonkeyPatch, asked: Mapping[str, Any], cpu_s: float, reused: bool
) -> None:
    compile_with(monkeypatch, error=SLOW, guard_cpu_s=cpu_s)
    compile_child._compile(LAUNCH, asked)
    compile_with(monkeypatch)
    outcome = compile_child._compile(LAUNCH, asked)
    assert (outcome["status"], outcome["reused"]) == ("timeout" if reused else "ok", reused)


def test_a_failure_while_the_disk_is_full_is_not_stored(
    monkeypatch: pytest.MonkeyPatch, asked: Mapping[str, Any], tmp_path: Path
) -> None:
    def refuse() -> None:
        raise StoreError("no space is left")

    compile_with(monkeypatch, error=FAILURE)
    monkeypatch.setattr(compile_child, "require_room", refuse)
    with pytest.raises(StoreError, match="no space is left"):
        compile_child._compile(LAUNCH, asked)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_a_tile_compiler_stores_nothing(
    monkeypatch: pytest.MonkeyPatch, asked: Mapping[str, Any], tmp_path: Path
) -> None:
    compile_with(monkeypatch, error=FileNotFoundError("'tileiras'"))
    assert compile_child._compile(LAUNCH, asked) == {"error": "the tile compiler is missing: 'tileiras'"}
    assert list(tmp_path.iterdir()) == []


def test_bytecode_that_cannot_be_read_has_no_name_and_is_not_stored(asked: Mapping[str, Any], tmp_path: Path) -> None:
    odd = LaunchInput("", "double", CompilerInput(b"ELF", 3, (), ()))
    outcome = compile_child._compile(odd, asked)
    assert (outcome["status"], outcome["content_key"]) == ("error", None)
    assert outcome["failure"] == "BadBytecode: not TileIR bytecode: the magic number is missing"
    assert list(tmp_path.iterdir()) == []


def answer(request: Mapping[str, Any], ask: str, **traced: object) -> Mapping[str, Any]:
    return compile_child.answer({**request, "ask": ask, "traced": {"compiler": compiler_version(), **traced}})


@pytest.mark.parametrize("ask", ["identify", "compile"])
def test_an_answer_has_a_failure_of_the_config_or_an_error_of_the_machine(asked: Mapping[str, Any], ask: str) -> None:
    failed = {"status": "error", "failure": "TileTypeError: no", "compile_s": 0.0, "cpu_s": 0.0, "content_key": None}
    assert answer(asked, ask, failure="TileTypeError: no") == failed
    assert "was traced with another" in answer(asked, ask, compiler="another")["error"]
    launch = {**CODE, "key": "", "bytecode": "RUxG"}  # ELF
    odd = answer(asked, ask, launches=[launch], is_bundle=False)
    assert (odd["status"], odd["content_key"]) == ("error", None)
    assert odd["failure"] == "BadBytecode: not TileIR bytecode: the magic number is missing"


@pytest.mark.parametrize(("keys", "is_bundle"), [(("",), False), (("one",), True), (("one", "two", "one"), True)])
def test_what_is_compiled_has_the_name_that_was_told_before(
    monkeypatch: pytest.MonkeyPatch, asked: Mapping[str, Any], keys: tuple[str, ...], is_bundle: bool
) -> None:
    compile_with(monkeypatch)
    launches = [{**CODE, "key": key, "opt_level": 1 + int(key == "two")} for key in keys]
    named, made, again = (
        answer(asked, ask, launches=launches, is_bundle=is_bundle, launch_sha256="hash of launches")
        for ask in ("identify", "compile", "compile")
    )
    assert named == {"status": "ok", "content_key": made["content_key"], "launch_sha256": "hash of launches"}
    assert (made["status"], made["symbol"]) == ("ok", "+".join(["double"] * len(keys)))
    assert (made["reused"], again["reused"]) == (False, True)
    stored = CubinStore(asked["store"]).cubin(made["content_key"])
    assert list_code(stored) == dict.fromkeys(keys, b"cubin")
    assert stored.startswith(b"PK") is is_bundle


def test_an_outcome_that_cannot_be_read_is_an_error_of_the_store_and_stays(
    asked: Mapping[str, Any], tmp_path: Path
) -> None:
    """A read that failed once was stored as the config's own failure, and no night compiled the config again."""
    launch = {**CODE, "key": ""}
    key = answer(asked, "identify", launches=[launch], is_bundle=False)["content_key"]
    file = tmp_path / key[:2] / f"{key}.json"
    file.parent.mkdir()
    file.write_text("{")
    found = answer(asked, "compile", launches=[launch], is_bundle=False)
    assert list(found) == ["store_error"]
    assert "cannot be read" in found["store_error"]
    assert file.read_text() == "{"


def test_the_cpu_time_is_that_of_this_process_and_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {resource.RUSAGE_SELF: (1.0, 2.0), resource.RUSAGE_CHILDREN: (4.0, 8.0)}
    usages = {who: SimpleNamespace(ru_utime=user, ru_stime=system) for who, (user, system) in used.items()}
    monkeypatch.setattr(resource, "getrusage", usages.__getitem__)
    assert compile_child._measure_cpu_s() == 15.0
