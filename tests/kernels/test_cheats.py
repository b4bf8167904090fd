"""Ways to look faster or righter than one is, or to change what is not one's own: each is refused, is caught, or has no
effect. Those that are not caught yet are listed in docs/operate/security.md."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kernels.fixtures.fake_gpu import (
    LIBRARY,
    PROBLEM,
    UUID,
    Rig,
    install_for_children,
    measure_in_this_process,
    write_giving_library,
)
from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.compiling.traced_code import BadTracedCode, read_traced
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.measuring.description_schema import BadDescription, validate_description
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed, _refuse_impossible, sweep
from tilewatch.kernels.results import Compiled, TrialResult
from tilewatch.kernels.toolchains.versions import compiler_version

confined = pytest.mark.skipif(not sandbox.landlock_version(), reason="this kernel has no Landlock")

HONEST = tiny_repository.SOURCE.replace("FACTOR", "2")

NO_EFFECT = {
    "its code has another name": "from tilewatch.kernels.compiling import compile_child\n"
    "compile_child._content_key = lambda *_: 'f' * 64\ncompile_child.code_sha256 = lambda *_: 'f' * 64",
    "what is stored is something else": "from tilewatch.kernels.compiling.store import CubinStore\n"
    "CubinStore.put = lambda *_: None",
    "another tile compiler": "import os\n"
    "tool = os.open(os.path.join(os.environ['TMPDIR'], 'tileiras'), os.O_WRONLY | os.O_CREAT, 0o755)\n"
    "os.write(tool, b'#!/bin/sh\\nexit 1')\nos.close(tool)\nos.environ['PATH'] = os.environ['TMPDIR']",
    "it prints an answer": 'print(\'{"traced": {"failure": "forged"}}\', flush=True)',
    "the limits are lifted": "from tilewatch.kernels.compiling import compiler_guard\n"
    "compiler_guard.CompilerGuard._end = None\nimport time\ntime.perf_counter = lambda: 0.0",
}
"""What a library does when it is imported."""

FORGE = "import os\nfor number in range(3, 20):\n    try:\n        os.write(number, {!r})\n    except OSError: pass\n"


def _forged(**fields: object) -> bytes:
    launch = {"key": "", "symbol": "double_tiles", "bytecode": "aGVsbG8=", "opt_level": 3, "preview_features": []}
    code = {"compiler": compiler_version(), "launches": [{**launch, **fields}], "is_bundle": False}
    return json.dumps({"traced": code}).encode() + b"\n"


REFUSED = {
    "it writes into the store": (
        "open({store!r} + '/forged.cubin', 'w')",
        "does not load: PermissionError: [Errno 13] Permission denied",
    ),
    "it writes what every Python loads": (
        "import sysconfig\nopen(sysconfig.get_path('purelib') + '/tilewatch_cheat.pth', 'w')",
        "does not load: PermissionError: [Errno 13] Permission denied",
    ),
    "it ends with success": ("import os\nos._exit(0)", "the library's process died: exit code 0"),
    "it exits while it is read": ("import sys\nsys.exit()", "library file double.py does not load: SystemExit"),
    "it answers in another form": (
        FORGE.format(b'{"traced": 7}\n'),
        "the library's process died: its answer is not what was asked for",
    ),
    "it answers with code of its own": (
        FORGE.format(_forged()),
        "BadBytecode: not TileIR bytecode: the magic number is missing",
    ),
    "it gives arguments to the tile compiler": (
        FORGE.format(_forged(preview_features=["x -o /etc/passwd"])),
        "the traced code is not as it must be: launches.0.preview_features.0: String should match pattern",
    ),
}
"""What a library does, and the sentence that a person reads."""


@dataclass(frozen=True)
class Bench:
    """One compiler for all cheats, as a worker has it."""

    compiler: Compiler
    store: Path
    honest: Compiled

    def compile(self, library: Path, prelude: str) -> Compiled:
        library.mkdir()
        (library / "double.py").write_text(f"{prelude}\n{HONEST}")
        return self.compiler.compile(library, "double", "1024", {"width": 128}, "sm_90")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    root = tmp_path_factory.mktemp("cheats")
    with Compiler(folder(root / "cubins")) as compiler:
        (root / "honest").mkdir()
        (root / "honest" / "double.py").write_text(HONEST)
        honest = compiler.compile(root / "honest", "double", "1024", {"width": 128}, "sm_90")
        assert honest.status == "ok", honest.failure
        yield Bench(compiler, root / "cubins", honest)


@confined
@pytest.mark.parametrize("cheat", NO_EFFECT)
def test_a_cheat_in_the_library_s_process_changes_nothing(bench: Bench, tmp_path: Path, cheat: str) -> None:
    """Its code is found in the store under the name that the honest library gave it."""
    outcome = bench.compile(tmp_path / "library", NO_EFFECT[cheat])
    assert (outcome.status, outcome.reused, outcome.failure) == ("ok", True, None)
    assert (outcome.content_key, outcome.code_sha256) == (bench.honest.content_key, bench.honest.code_sha256)


@confined
@pytest.mark.parametrize("cheat", REFUSED)
def test_a_cheat_while_compiling_is_refused_with_a_sentence(bench: Bench, tmp_path: Path, cheat: str) -> None:
    prelude, sentence = REFUSED[cheat]
    try:
        said = bench.compile(tmp_path / "library", prelude.replace("{store!r}", repr(str(bench.store)))).failure
    except BuildError as error:
        said = str(error)
    assert said is not None
    assert sentence in said
    assert bench.honest.content_key is not None
    assert CubinStore(folder(bench.store)).cubin(bench.honest.content_key).startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"bytecode": "not base64!"}, "bytecode"),
        ({"opt_level": "3; rm"}, "opt_level"),
        ({"symbol": "a\x00b"}, "symbol"),
        ({"libraries": ["relative.bc"]}, "libraries"),
        ({"key": ["a"]}, "key"),
    ],
)
def test_made_up_code_is_refused_with_the_name_of_its_field(fields: dict[str, object], place: str) -> None:
    with pytest.raises(BadTracedCode, match=place):
        read_traced(json.loads(_forged(**fields))["traced"])


@pytest.mark.parametrize("launches", [[], [{}] * 2000, 7, None])
def test_code_of_no_or_too_many_launches_is_refused(launches: object) -> None:
    with pytest.raises(BadTracedCode, match="launches"):
        read_traced({"compiler": compiler_version(), "is_bundle": True, "launches": launches})


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "the output of the config before is kept": ({"fault": "stale"}, "the output 'y' left elements unwritten"),
    "the last tile is skipped": ({"fault": "last row unwritten"}, "the output 'y' left elements unwritten"),
    "less is computed than asked for": ({"fault": "off"}, "the output 'y' is off by"),
    "it runs where the timer does not look": ({"fault": "no record"}, "0 kernel records for 1 kernels launched"),
    "it computes when it is checked, and not when it is timed": (
        {"fault": "rests later", "fault_after": 1},
        "when it was timed, the output 'y' left elements unwritten",
    ),
    "it keeps a mark in its input": ({"fault": "marks its input"}, "it writes into 'x', which is an input"),
    "it keeps a mark in its input once it was checked": (
        {"fault": "marks its input", "fault_after": 1},
        "when it was timed, it wrote into 'x', which is an input",
    ),
    "it writes behind its output": (
        {"writes": "behind"},
        "it writes outside of its arrays: 4 bytes behind 'y', the first one 0 after its end",
    ),
    "it writes in front of its input": (
        {"writes": "in front"},
        "it writes outside of its arrays: 4 bytes in front of 'x', the first one 4 before its start",
    ),
    "it writes behind its output once it was checked": (
        {"writes": "behind", "writes_after": 1},
        "when it was timed, it wrote outside of its arrays: 4 bytes behind 'y', the first one 0 after its end",
    ),
}
"""What a kernel does on the GPU, by its fault (tests/kernels/fixtures/fake_gpu), and the sentence."""


@pytest.mark.parametrize("cheat", WRONG)
def test_a_cheat_on_the_gpu_is_not_timed(rig: Rig, cheat: str) -> None:
    fault, sentence = WRONG[cheat]
    child, _ = rig.start()
    rig.trial(child, rig.cubin(), samples=1)
    answer = rig.trial(child, rig.cubin(**fault), 1, samples=1)
    assert "samples_us" not in answer
    assert sentence in answer["failure"]
    assert rig.trial(child, rig.cubin(), 2)["status"] == "timed", "what it left behind is no other config's fault"


def test_a_kernel_that_rests_on_a_written_output_never_meets_one(rig: Rig) -> None:
    child, _ = rig.start()
    assert rig.trial(child, rig.cubin(fault="rests on a written output"))["samples_us"] == [100.0] * 5


def test_a_kernel_that_computes_no_more_once_it_is_in_the_race_leaves_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_in_this_process(monkeypatch)
    child = GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}))
    cubins = [rig.cubin(1), rig.cubin(2, 90.0, fault="rests later", fault_after=6)]
    result = sweep(child, cubins, on_trial=lambda _: None)
    child.close()
    assert result.winner == {"tile_rows": 1}
    assert [trial.status for trial in result.trials] == ["timed", "wrong"]
    assert result.trials[1].failure is not None
    assert result.trials[1].failure.startswith("when it was timed, the output 'y' left elements unwritten")


CHANGED = {
    "any error is right": ("lambda problem: 1e-5", "lambda problem: float('inf')", "its tolerance is inf; at most"),
    "an output of zeros is right": ("lambda problem: 1e-5", "lambda problem: 1.0", "its tolerance is 1; at most 0.25"),
    "no error is a number": ("lambda problem: 1e-5", "lambda problem: float('nan')", "its tolerance is nan; at most"),
    "the reference has no output": ('return {"y": expected}', "return {}", "its reference gives nothing"),
    "any value is right": (
        'return {"y": expected}',
        'return {"y": expected * xp.float32("nan")}',
        "gives no number for",
    ),
    "the reference is smaller": ('return {"y": expected}', 'return {"y": expected[:1]}', "its reference gives 'y' in"),
}
"""A line of the library, what it becomes, and the sentence."""


@pytest.mark.parametrize("cheat", CHANGED)
def test_a_library_that_calls_anything_right_is_refused(rig: Rig, tmp_path: Path, cheat: str) -> None:
    old, new, sentence = CHANGED[cheat]
    source = (LIBRARY / "rows.py").read_text()
    assert old in source
    (tmp_path / "rows.py").write_text(source.replace(old, new))
    with pytest.raises(LibraryError, match=sentence):
        rig.start(tmp_path)


PATCHES = """
import atexit, os, sys, threading, time, types
import tilewatch.kernels.statistics as statistics
from tilewatch.kernels.gpu import gpu_child, prepared_problem, result_error, rounds, timing
timing.CuptiTimer.time = lambda self, launches, names, before=None: [1.0 for _ in launches]
quick = lambda timer, entries, count, **_: rounds.TimedRounds(*2 * [[[1.0] * count for _ in entries]])
rounds.time_rounds = gpu_child.time_rounds = quick
result_error.judge = prepared_problem.judge = lambda *_: result_error.NO_ERROR
prepared_problem.PreparedProblem.error = lambda *_: result_error.NO_ERROR
gpu_child._draws = prepared_problem.random = None
statistics.median_interval = statistics.ratio_interval = None
time.monotonic = time.perf_counter = lambda: 0.0
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.modules["tilewatch.kernels.gpu.health.canary"] = types.ModuleType("canary")
atexit.register(os._exit, 0)
threading.Thread(target=threading.Event().wait, daemon=True).start()
print('{"samples_us": [[1.0]]}', flush=True)
"""
"""What a library does to everything that measures, and to its own process, while it is imported."""


def test_what_a_library_does_to_its_own_process_changes_neither_times_nor_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_for_children(monkeypatch)
    (tmp_path / "store").mkdir()
    rig = Rig(tmp_path / "store")
    library = tmp_path / "library"
    library.mkdir()
    (library / "rows.py").write_text(PATCHES + (LIBRARY / "rows.py").read_text())
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")  # its files may import what they like
    child = GpuChild(GpuSetup(library, rig.kernel, PROBLEM, rig.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}))
    try:
        result = sweep(child, [rig.cubin(1), rig.cubin(2, 90.0), rig.cubin(4, fault="off")], on_trial=lambda _: None)
        assert child.introduction["library_runs_apart"]
        assert child._child is not None
        assert child._child._library is None, "its process has ended"
    finally:
        child.close()
    assert [trial.median_us for trial in result.trials] == [100.0, 90.0, None]
    assert (result.trials[2].failure or "").startswith("the output 'y' is off by")


GIVEN = {"dtype": "float32", "shape": [1], "base64": base64.b64encode(bytes(4)).decode()}
DESCRIBED: dict[str, object] = {
    "kernel": "k",
    "sizes": {"rows": 4},
    "arrays": [
        {"name": name, "shape": [4, 4], "dtype": "float32", "output": name == "y", "fill": "normal", "aligned": True,
         "inout": False} for name in "xy"
    ],
    "given": {"x": GIVEN},
    "tolerance": 0.01,
    "flops": 16,
    "bytes": 128,
    "launches": {"{}": {"grid": [1, 1, 1], "arguments": ["x", {"name": "n", "value": 4, "dtype": "int32"}, "y"]}},
}  # fmt: skip


def test_an_honest_description_is_accepted() -> None:
    validate_description(DESCRIBED, "k")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kernel": "another"}, "kernel: expected k"),
        ({"arrays": 7}, "arrays: Input should be a valid list"),
        ({"arrays": [*DESCRIBED["arrays"], *DESCRIBED["arrays"]]}, "arrays: a name occurs twice"),  # type: ignore[misc]
        ({"flops": -1}, "flops: Input should be greater than or equal to 0"),
        ({"bytes": "1e9"}, "bytes: Input should be a valid integer"),
        ({"timer": "mine"}, "timer: Extra inputs are not permitted"),
        ({"launches": {"{}": {"grid": [1, 1], "arguments": []}}}, "List should have at least 3 items"),
        ({"launches": {"{}": {"grid": [1, 1, 1], "arguments": ["z"]}}}, "launches: there is no array 'z'"),
        ({"given": {"x": [[1.0]]}}, "given.x: Input should be a valid dictionary"),
        ({"given": {"x": {**GIVEN, "dtype": "object"}}}, "given.x.dtype: Input should be 'bool', 'int8', "),
        ({"given": {"x": {**GIVEN, "shape": [0]}}}, "given.x.shape.0: Input should be greater than or equal to 1"),
        ({"given": {"x": {**GIVEN, "shape": []}}}, "given.x.shape: List should have at least 1 item"),
        ({"given": {"x": {**GIVEN, "base64": 7}}}, "given.x.base64: Input should be a valid string"),
        ({"given": {"x": {**GIVEN, "file": "/dev/zero"}}}, "given.x.file: Extra inputs are not permitted"),
        (
            {"launches": {"{}": {"grid": [1, 1, 1], "arguments": [{"name": "p", "value": 1, "dtype": "void*"}]}}},
            "launches.{}._Launch.arguments.0",
        ),
    ],
)
def test_a_made_up_description_is_refused_with_the_name_of_its_field(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadDescription, match="the described problem is not as it must be: ") as refused:
        validate_description({**DESCRIBED, **fields}, "k")
    assert sentence in str(refused.value)


MADE_UP = {
    "too few bytes": (
        {"shape": [64, 64]},
        "the values of array x have 4 bytes, expected 16,384: float32 in shape (64, 64)",
    ),
    "too many bytes": ({"dtype": "int8"}, "the values of array x have 4 bytes, expected 1: int8 in shape (1,)"),
    "more elements than memory": ({"shape": [2**31 - 1] * 8}, "the values of array x have 4 bytes, expected 1,809,251"),
    "another shape": ({}, "the values of array x have the shape (1,), expected (64, 64)"),
    "no base64": ({"base64": "AAAA!AA=="}, "the values of array x are not base64"),
    "half of a base64": ({"base64": "AAAAA"}, "the values of array x are not base64"),
    "no ASCII": ({"base64": "\u00e9" * 4}, "the values of array x are not base64"),
}
"""What a library's process says of the values of an input, beside GIVEN, and the sentence."""


@pytest.mark.parametrize("cheat", MADE_UP)
def test_made_up_values_are_refused(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cheat: str) -> None:
    from tilewatch.kernels.gpu import described_problem

    fields, sentence = MADE_UP[cheat]
    monkeypatch.setattr(described_problem, "encode_given", lambda *_: {"x": {**GIVEN, **fields}})
    with pytest.raises(LibraryError) as refused:
        rig.start(write_giving_library(tmp_path / "library"))
    assert sentence in str(refused.value)


HANDLES = {
    "no handle": ({"handle": "00", "shape": [64, 64]}, "the reference's 'y' has no handle of 64 bytes"),
    "another's handle": ({"handle": "41" * 64, "shape": [64, 64]}, "the reference's 'y' cannot be copied from its"),
    "another shape": ({"handle": "00" * 64, "shape": [1]}, r"gives 'y' in shape (1,), expected (64, 64)"),
}
"""What a library's process says of its reference, and the sentence."""


@pytest.mark.parametrize("cheat", HANDLES)
def test_a_made_up_reference_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch, cheat: str) -> None:
    from tilewatch.kernels.gpu import shared_arrays

    shared, sentence = HANDLES[cheat]
    monkeypatch.setattr(shared_arrays, "share", lambda *_: {"dtype": "float32", **shared})
    with pytest.raises(LibraryError) as refused:
        rig.start()
    assert sentence in str(refused.value)


@confined
def test_a_library_on_a_gpu_writes_nothing_that_the_measuring_process_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_for_children(monkeypatch)
    rig = Rig(tmp_path)
    cheat = f"open({str(tmp_path / 'cupy_kernel')!r}, 'w')\n"
    (tmp_path / "rows.py").write_text(cheat + (LIBRARY / "rows.py").read_text())
    setup = GpuSetup(tmp_path, rig.kernel, PROBLEM, rig.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID})
    with pytest.raises(SweepFailed, match=r"could not prepare 64x64: .*PermissionError: \[Errno 13\]"):
        GpuChild(setup)


def test_bytes_stated_too_low_are_at_least_those_of_the_outputs(rig: Rig, tmp_path: Path) -> None:
    """The last element of this kernel's output is not compared, so nobody need write it."""
    source = (LIBRARY / "rows.py").read_text()
    (tmp_path / "rows.py").write_text(source.replace("bytes=lambda problem: 12 *", "bytes=lambda problem: 0 *"))
    _, introduction = rig.start(tmp_path)
    assert introduction["work"]["bytes"] == 4 * (64 * 64 - 1)


def test_a_time_that_no_gpu_reaches_is_refused_with_both_numbers() -> None:
    trial = _refuse_impossible(TrialResult({}, "timed", (1.5,), 1.5, 0.0), floor_us=2.25)
    assert trial.status == "wrong"
    assert trial.failure is not None
    assert "1.50 us is impossible" in trial.failure
    assert "at least 2.25 us" in trial.failure
