"""Compiling with the real compiler, without a GPU: facts, failures, names by content."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import psutil
import pytest

from tests.worker.fixtures import small_disk, tiny_repository
from tilewatch import processes
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.compiling import compiler as compiler_module
from tilewatch.kernels.compiling.compile_children import BuildError, CompileChildren
from tilewatch.kernels.compiling.compiler import CodeIdentity, Compiler
from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.compiling.store import CubinStore, StoreError, folder
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.library_errors import LibraryError, PackageMissing
from tilewatch.kernels.results import Compiled, StaticFacts
from tilewatch.kernels.toolchains.versions import compiler_version

FOREIGN = Path(__file__).parents[1] / "watching" / "fixtures" / "foreign_repository"
PROBLEM = "320x32576x7168"


def config(tile_m: int = 64, tile_n: int = 64, tile_k: int = 64, num_ctas: int = 1) -> dict[str, int]:
    return {
        "tile_m": tile_m,
        "tile_n": tile_n,
        "tile_k": tile_k,
        "num_ctas": num_ctas,
        "occupancy": 1,
        "group_size_m": 8,
    }


@pytest.fixture
def store(tmp_path: Path) -> str:
    return folder(tmp_path / "cubins")


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_every_architecture_gives_a_cubin_with_its_facts(store: str, arch: str) -> None:
    with Compiler(store) as compiler:
        outcome = compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), arch)
    assert outcome.status == "ok", outcome.failure
    assert outcome.facts is not None
    assert outcome.facts.registers > 0
    assert outcome.facts.code_bytes > 0
    assert (outcome.facts.loads, outcome.facts.mmas) == (2, 1)
    assert outcome.facts.tensor_core_mmas == 1
    assert outcome.cpu_s > 0
    assert outcome.content_key is not None
    assert CubinStore(store).cubin(outcome.content_key).startswith(b"\x7fELF")


def test_what_compiles_gives_way_and_what_reads_a_library_does_not(store: str) -> None:
    """A library is read for what measures, too."""
    ours = psutil.Process()
    before = ours.children(recursive=True)
    with Compiler(store) as compiler:
        compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_90")
        nices = [each.nice() - ours.nice() for each in ours.children(recursive=True) if each not in before]
    assert nices.count(processes.NICENESS) == 1
    assert set(nices) == {0, processes.NICENESS}


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot make another one")
def test_what_compiles_has_a_user_of_its_own_and_what_it_made_is_ours(store: str, tmp_path: Path) -> None:
    ours = psutil.Process()
    before = ours.children(recursive=True)
    with Compiler(store) as compiler:
        compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_90")
        users = {each.uids().effective: each.name() for each in ours.children(recursive=True) if each not in before}
    assert {name for user, name in users.items() if user > sandbox.FIRST_USER} == {"tw-trace", "tw-compile"}
    files = [each for each in (tmp_path / "cubins").rglob("*") if each.is_file()]
    assert {each.suffix for each in files} == {".cubin", ".json", ".tileirbc"}
    assert {each.stat().st_uid for each in (tmp_path / "cubins", *files)} == {0}, "the child may not write there"


def test_a_spilling_config_says_so(store: str) -> None:
    with Compiler(store) as compiler:
        outcome = compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(256, 128, 64), "sm_90")
    assert outcome.facts is not None
    assert outcome.facts.stack_bytes > 0


def test_a_second_compile_comes_from_the_store_and_a_timeout_is_remembered(store: str) -> None:
    with Compiler(store, limit_s=0.05, wall_limit_s=60) as hasty:
        first = hasty.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_100")
        again = hasty.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_100")
    assert (first.status, first.reused, first.failure) == ("timeout", False, "not compiled within 0.05 s of CPU time")
    assert (again.status, again.reused) == ("timeout", True)
    with Compiler(store) as patient:
        first = patient.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_100")
        again = patient.compile(LIBRARY, "gemm_fp8", "128x7168x16384", config(), "sm_100")
    assert (first.status, first.reused) == ("ok", False), "a longer limit is another compiler: its timeouts differ"
    assert (again.status, again.reused) == ("ok", True), "problems that agree on the signature share cubins"
    assert again.facts == first.facts


def test_a_compile_that_the_machine_made_slow_is_tried_again(store: str) -> None:
    """A stopped compiler uses no CPU time: as slow as a machine can be."""
    with Compiler(store, wall_limit_s=0.1) as hurried, Compiler(store) as patient:
        slow = hurried.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_100")
        again = patient.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_100")
    assert (slow.status, slow.reused) == ("timeout", False)
    assert slow.failure is not None
    assert slow.failure.startswith("stopped after 0.1 s with 0.")
    assert "the machine was too busy" in slow.failure
    assert slow.cpu_s < patient.limit_s
    assert hurried.version == patient.version
    assert (again.status, again.reused) == ("ok", False)


def test_a_timeout_stored_while_wall_time_was_limited_is_tried_again(store: str) -> None:
    with Compiler(store) as compiler:
        first = compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_100")
        assert first.content_key is not None
        old = {"status": "timeout", "failure": "not compiled within 15 s", "compile_s": 15.1, "cpu_s": 4.2}
        CubinStore(store).put(first.content_key, {**old, "content_key": first.content_key}, None)
        again = compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_100")
        CubinStore(store).put(first.content_key, {**old, "cpu_s": 15.1, "content_key": first.content_key}, None)
        slow = compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_100")
    assert (again.status, again.reused) == ("ok", False)
    assert (slow.status, slow.reused) == ("timeout", True)


def test_a_compile_that_eats_memory_is_stopped_and_says_so(store: str) -> None:
    with Compiler(store, memory_bytes=200 << 20) as compiler:
        outcome = compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(512, 256, 256), "sm_100")
    assert (outcome.status, outcome.failure) == ("error", "the tile compiler needed more than 0.195312 GiB")


def test_one_library_s_code_does_not_run_in_the_compiles_of_another(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SWITCH, "off")  # it could not write its log
    hostile, log = tmp_path / "hostile", tmp_path / "log"
    hostile.mkdir()
    (hostile / "gemm.py").write_text(f"""
from tilewatch.kernels.compiling import trace_child
read = trace_child.read_code
def read_code(request):
    with open({str(log)!r}, "a") as out:
        out.write(request["library"] + chr(10))
    return read(request)
trace_child.read_code = read_code
KERNELS = ()
""")
    with Compiler(store) as compiler:
        for library in (hostile, LIBRARY, hostile):
            with contextlib.suppress(BuildError):
                compiler.identify(library, "gemm_fp8", PROBLEM, config(), "sm_90")
    assert log.read_text().split() == [str(hostile)], "the second of its own requests, in the child that it changed"


def test_a_bad_tile_is_an_outcome_with_a_sentence(store: str) -> None:
    with Compiler(store) as compiler:
        outcome = compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(tile_m=48), "sm_90")
    assert (outcome.status, outcome.failure) == ("error", "tile_m=48 is not a power of two")


def test_a_store_that_cannot_be_written_is_no_config_s_fault(tmp_path: Path) -> None:
    (tmp_path / "cubins").write_text("a file where a folder should be")
    with Compiler(folder(tmp_path / "cubins")) as compiler, pytest.raises(StoreError, match="cubin store"):
        compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_90")


@pytest.mark.parametrize("left_bytes", [0, 100_000])
def test_a_full_disk_of_temporary_files_is_no_config_s_fault(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_bytes: int
) -> None:
    """Without room no library is traced; with some, the compiler alone fails, and in its own words."""
    (tmp_path / "disk").mkdir()
    with small_disk.mount(tmp_path / "disk", "100m"):
        monkeypatch.setenv("TMPDIR", str(tmp_path / "disk"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
        with (
            small_disk.fill(tmp_path / "disk", left_bytes),
            Compiler(store) as compiler,
            pytest.raises(StoreError, match="no space is left in"),
        ):
            compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_90")
        assert list((tmp_path / "cubins").rglob("*.json")) == []
        with Compiler(store) as compiler:
            assert compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_90").status == "ok"


def test_a_moved_line_keeps_the_cubin_and_changed_arithmetic_does_not(tmp_path: Path, store: str) -> None:
    source = (LIBRARY / "gemm.py").read_text()
    libraries = {
        "plain": source,
        "moved": source.replace("\n@ct.kernel", "\n# a comment\n\n@ct.kernel"),
        "changed": source.replace("ct.full((tile_m, tile_n), 0.0", "ct.full((tile_m, tile_n), 1.0"),
    }
    outcomes = {}
    with Compiler(store) as compiler:
        for name, text in libraries.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "gemm.py").write_text(text)
            outcomes[name] = compiler.compile(tmp_path / name, "gemm_fp8", PROBLEM, config(), "sm_100")
    assert outcomes["moved"].reused
    assert outcomes["moved"].code_sha256 == outcomes["plain"].code_sha256
    assert not outcomes["changed"].reused
    assert outcomes["changed"].code_sha256 != outcomes["plain"].code_sha256


def test_a_helper_that_moved_keeps_the_name_and_the_machine_code(tmp_path: Path) -> None:
    """Each side is compiled for itself: the name would bring the other's cubin."""
    helper = "def doubled(tile):\n    return tile * 2.0\n\n\n"
    plain = "tile=ct.load(x, index=(i,), shape=(width,)) * FACTOR"
    assert plain in tiny_repository.SOURCE
    body = tiny_repository.SOURCE.replace(plain, "tile=doubled(ct.load(x, index=(i,), shape=(width,)))")
    body = body.replace("FACTOR", "2.0")
    outcomes = []
    for name, above in (("plain", ""), ("moved", "# a comment\n" * 300)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "double.py").write_text(body.replace("@ct.kernel", f"{above}{helper}@ct.kernel"))
        with Compiler(folder(tmp_path / name / "cubins")) as compiler:
            outcomes.append(compiler.compile(tmp_path / name, "double", "1024", {"width": 64}, "sm_90"))
    assert [each.reused for each in outcomes] == [False, False], outcomes
    assert len({each.content_key for each in outcomes}) == 1
    assert len({each.code_sha256 for each in outcomes}) == 1


def test_the_fp8_story_s_space_is_stated_as_data() -> None:
    sizes = {
        arch: len(catalog.read(LIBRARY, arch=arch, kernel="gemm_fp8")[0].trials)
        for arch in ("sm_90", "sm_100", "sm_120")
    }
    assert sizes == {"sm_90": 500, "sm_100": 500, "sm_120": 1500}


def test_problems_of_a_kernel_share_their_code_keys() -> None:
    plans = catalog.read(LIBRARY, arch="sm_100", kernel="gemm_fp8")
    assert len(plans) == 3
    assert len({trial.code_key for plan in plans for trial in plan.trials}) == 500


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        ("0x32576x7168", "M=0 must be between 1 and 1048576"),
        ("-5x32576x7168", "M=-5 must be between"),
        ("320x99999999x7168", "N=99999999 must be between"),
        ("320x32576x7169", "K=7169 must be a multiple of 16"),
        ("1048576x1048576x1048576", "would not fit any GPU"),
        ("hello", "write MxNxK"),
    ],
)
def test_a_bad_problem_is_a_sentence(problem: str, sentence: str) -> None:
    with pytest.raises(BadProblem, match=sentence):
        catalog.read(LIBRARY, arch="sm_90", kernel="gemm_fp8", problem=problem)


def test_an_unknown_kernel_names_the_nearest() -> None:
    with pytest.raises(catalog.UnknownKernel, match=r"'gem_fp8'.*nearest: gemm_fp8"):
        catalog.read(LIBRARY, arch="sm_90", kernel="gem_fp8")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import nowhere_to_be_found", "broken.py does not load: ModuleNotFoundError"),
        ("KERNELS = 3", "must define KERNELS"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_broken_library_is_a_sentence(tmp_path: Path, source: str, sentence: str) -> None:
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(LibraryError, match=sentence):
        catalog.read(tmp_path, arch="sm_90")


def test_a_kernel_without_configs_for_an_architecture_is_left_out(tmp_path: Path) -> None:
    """Block-scaled products need Blackwell: an axis without values says that there is nothing to try elsewhere."""
    source = (LIBRARY / "gemm.py").read_text()
    assert '("num_ctas", (1, 2, 4, 8)),' in source
    limited = source.replace('("num_ctas", (1, 2, 4, 8)),', '("num_ctas", () if arch == "sm_90" else (1,)),')
    (tmp_path / "gemm.py").write_text(limited)
    offered = {arch: {plan.kernel for plan in catalog.read(tmp_path, arch=arch)} for arch in ("sm_90", "sm_100")}
    assert offered["sm_100"] - offered["sm_90"] == {"gemm_fp8"}
    with pytest.raises(LibraryError, match="gemm_fp8 has no config for sm_90"):
        catalog.read(tmp_path, arch="sm_90", kernel="gemm_fp8")


def test_an_empty_library_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="holds no watch file"):
        catalog.read(tmp_path, arch="sm_90")


def test_a_child_that_hangs_is_killed_at_its_deadline(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    child = ChildProcess("catalog", library=tmp_path)
    with pytest.raises(ChildHung):
        child.ask({"library": str(tmp_path), "arch": "sm_90", "kernel": None, "problem": None}, deadline_s=0.5)
    assert not child.alive
    child.close()


def test_a_library_that_prints_cannot_garble_an_answer(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("print('{\"plans\": 7}')\nKERNELS = ()")
    assert catalog.read(tmp_path, arch="sm_90") == ()


def test_a_child_sees_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.SWITCH, "off")  # it could not write what it saw
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", "postgresql://tilewatch:secret@127.0.0.1/tilewatch")
    seen = tmp_path / "seen.json"
    (tmp_path / "spy.py").write_text(
        f"import json, os, pathlib\npathlib.Path({str(seen)!r}).write_text(json.dumps(dict(os.environ)))\nKERNELS = ()"
    )
    catalog.read(tmp_path, arch="sm_90")
    assert not [name for name, value in json.loads(seen.read_text()).items() if "secret" in value]


def test_a_dead_child_says_its_last_words() -> None:
    child = ChildProcess("no-such-role")
    with pytest.raises(ChildDied, match="no such role"):
        child.ask({}, deadline_s=60)
    child.close()


def test_the_tile_compiler_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    """A 512x512x512 tile compiles for ever: killing a worker must not leave that behind."""
    asks = f"""
import pathlib
from tilewatch.kernels.compiling.compiler import Compiler
Compiler({folder(tmp_path)!r}, limit_s=600).compile(
    pathlib.Path({str(LIBRARY)!r}), "gemm_fp8", {PROBLEM!r}, {config(512, 512, 512)!r}, "sm_90")
"""
    worker = subprocess.Popen([sys.executable, "-c", asks], cwd=LIBRARY.parents[1])
    mine: list[psutil.Process] = []
    while not any("sm_90" in _command(process) for process in mine):  # not the short probes that come before
        time.sleep(0.05)
        assert worker.poll() is None
        mine = psutil.Process(worker.pid).children(recursive=True)
    worker.kill()
    worker.wait()
    gone, alive = psutil.wait_procs(mine, timeout=120)
    assert len(gone) == len(mine)
    assert not alive


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def test_a_compiler_process_that_cannot_start_is_no_config_s_fault(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChildProcess, "program", ("-c", "raise SystemExit('no cuda-tile here')"))
    with (
        Compiler(store) as compiler,
        pytest.raises(BuildError, match="the compiler process does not start: exit code 1: no cuda-tile here"),
    ):
        compiler.compile(LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_90")


def test_one_compiler_serves_commits_in_any_order(tmp_path: Path, store: str) -> None:
    """Files of all commits have the same canonical names; a kernel is still compiled from its own commit's source."""
    source = (LIBRARY / "gemm.py").read_text()
    old, new = tmp_path / "old", tmp_path / "new"
    for commit, text in ((old, source), (new, "# a line\n" * 7 + source)):
        commit.mkdir()
        (commit / "gemm.py").write_text(text)
    hinted = {**config(), "num_worker_warps": 4, "latency_a": 0, "latency_b": 3, "allow_tma": 1, "fast_acc": 0}
    with Compiler(folder(tmp_path / "alone")) as compiler:
        alone = compiler.compile(old, "gemm_fp8_hinted", PROBLEM, hinted, "sm_100")
    with Compiler(store) as compiler:
        for commit in (old, new):
            compiler.compile(commit, "gemm_fp8", PROBLEM, config(), "sm_100")
        among_others = compiler.compile(old, "gemm_fp8_hinted", PROBLEM, hinted, "sm_100")
    assert among_others.status == "ok", among_others.failure
    assert among_others.code_sha256 == alone.code_sha256


ARGUMENTS = (LIBRARY, "gemm_fp8", PROBLEM, config(), "sm_90")
TRACED = {"compiler": compiler_version(), "launches": []}


@pytest.mark.parametrize(
    ("process", "error", "limits", "outcome"),
    [
        ("_ask_tracer", ChildHung(), {}, ("timeout", "the library did not answer within 150 s", 150.0)),
        ("_ask_tracer", ChildDied("SIGKILL"), {}, ("error", "the library's process died: SIGKILL", 0.0)),
        ("_ask_compiler", ChildHung(), {}, ("timeout", "the compiler did not stop within 150 s", 150.0)),
        ("_ask_compiler", ChildHung(), {"limit_s": 1.0}, ("timeout", "the compiler did not stop within 38 s", 38.0)),
        (
            "_ask_compiler",
            ChildHung(),
            {"limit_s": 1.0, "wall_limit_s": 2.0},
            ("timeout", "the compiler did not stop within 32 s", 32.0),
        ),
        ("_ask_compiler", ChildDied("SIGKILL"), {}, ("error", "the compiler process died: SIGKILL", 0.0)),
    ],
)
def test_a_process_that_hangs_or_dies_is_a_failure_of_no_cpu_time(
    store: str,
    monkeypatch: pytest.MonkeyPatch,
    process: str,
    error: Exception,
    limits: dict[str, float],
    outcome: tuple[str, str, float],
) -> None:
    """A compiler may take 8 times its CPU time by the clock, and 30 s more."""

    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Compiler, "_ask_tracer", lambda *_: TRACED)
    monkeypatch.setattr(Compiler, process, fail)
    with Compiler(store, **limits) as compiler:  # type: ignore[arg-type]
        compiled = compiler.compile(*ARGUMENTS)
        identity = compiler.identify(*ARGUMENTS)
        assert compiled.compiler == compiler.version
    assert (compiled.status, compiled.failure, compiled.compile_s) == outcome
    assert (compiled.cpu_s, compiled.reused, compiled.arch) == (0.0, False, "sm_90")
    whose = "the library's" if process == "_ask_tracer" else "the compiler"
    assert identity == CodeIdentity(failure=f"{whose} process died: {error}")


def test_code_that_cannot_be_traced_for_others_is_an_error_of_this_machine(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> NoReturn:
        raise ChildDied("SIGKILL")

    monkeypatch.setattr(Compiler, "_ask_tracer", die)
    with (
        Compiler(store) as compiler,
        pytest.raises(BuildError, match=r"^gemm_fp8 on 320x.* cannot be traced: SIGKILL$"),
    ):
        compiler.trace(*ARGUMENTS, code_key="key")


class MadeChild:
    """Gives one answer, to whatever it is asked."""

    def __init__(self, **answer: object) -> None:
        self.answer, self.asked, self.is_closed = answer, dict[str, object](), False

    def ask(self, request: dict[str, object], *, deadline_s: float) -> dict[str, object]:
        self.asked = {**request, "deadline_s": deadline_s}
        return self.answer

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("tracer", "compiled", "error", "sentence"),
    [
        ({"package_missing": "no torch"}, {}, PackageMissing, "no torch"),
        ({"error": "no kernel"}, {}, BuildError, "no kernel"),
        ({"traced": TRACED}, {"error": "no tileiras"}, BuildError, "no tileiras"),
        ({"traced": TRACED}, {"store_error": "no space"}, StoreError, "no space"),
    ],
)
def test_an_error_that_a_process_answers_is_no_config_s_fault(
    store: str,
    monkeypatch: pytest.MonkeyPatch,
    tracer: dict[str, object],
    compiled: dict[str, object],
    error: type[Exception],
    sentence: str,
) -> None:
    tracing, compiling = MadeChild(**tracer), MadeChild(**compiled)
    monkeypatch.setattr(CompileChildren, "find_tracer", lambda *_: tracing)
    monkeypatch.setattr(CompileChildren, "find_compiler", lambda *_: compiling)
    with Compiler(store) as compiler, pytest.raises(error, match=f"^{sentence}$"):
        compiler.compile(*ARGUMENTS)
    assert (tracing.asked["ask"], tracing.asked["deadline_s"], tracing.is_closed) == ("read", 150.0, False)
    if compiled:
        assert (compiling.asked["ask"], compiling.asked["traced"]) == ("compile", TRACED)
        limits = {"limit_s": 15.0, "wall_limit_s": 120.0, "memory_bytes": 5 << 28, "deadline_s": 150.0}
        assert {name: compiling.asked[name] for name in limits} == limits


def test_a_tracer_that_answers_in_another_form_is_closed(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    child = MadeChild(traced=7)
    monkeypatch.setattr(CompileChildren, "find_tracer", lambda *_: child)
    with Compiler(store) as compiler:
        outcome = compiler.compile(*ARGUMENTS)
    assert outcome.failure == "the library's process died: its answer is not what was asked for"
    assert child.is_closed


@pytest.mark.parametrize(
    ("key", "stored", "reused"),
    [
        ("aa1", {"status": "error", "failure": "no such instruction", "compile_s": 2.0, "cpu_s": 1.0}, True),
        ("aa1", {"status": "timeout", "failure": "stopped", "compile_s": 120.0, "cpu_s": 14.9}, False),
        ("aa1", {"status": "timeout", "failure": "not compiled", "compile_s": 16.0, "cpu_s": 15.0}, True),
        ("bb2", {"status": "error", "failure": "of another config"}, False),
        (None, {}, False),
    ],
)
def test_an_outcome_in_an_object_store_is_not_made_again_if_it_is_final(
    monkeypatch: pytest.MonkeyPatch, key: str | None, stored: dict[str, object], reused: bool
) -> None:
    """The process that compiles has no credentials for the store."""
    url = f"memory://{key}{stored.get('cpu_s')}"
    CubinStore(url).put("aa1", {**stored, "content_key": "aa1"}, None)

    def ask(_: Compiler, what: str, request: Mapping[str, object]) -> dict[str, object]:
        assert request["traced"] == TRACED
        if what == "identify":
            return {"content_key": key, "failure": None}
        raise ChildDied("SIGKILL")

    monkeypatch.setattr(Compiler, "_ask_tracer", lambda *_: TRACED)
    monkeypatch.setattr(Compiler, "_ask_compiler", ask)
    with Compiler(url) as compiler:
        outcome = compiler.compile(*ARGUMENTS)
    assert outcome.reused is reused
    if reused:
        assert (outcome.compile_s, outcome.cpu_s) == (stored["compile_s"], stored["cpu_s"])
    assert outcome.failure == (stored["failure"] if reused else "the compiler process died: SIGKILL")


@pytest.mark.parametrize(
    ("code_key", "compiler", "found"),
    [("key", None, True), ("other", None, False), (None, None, False), ("key", "cuda-tile 9", False)],
)
def test_code_that_another_machine_traced_is_compiled_where_a_package_is_missing(
    store: str, monkeypatch: pytest.MonkeyPatch, code_key: str | None, compiler: str | None, found: bool
) -> None:
    missing, tracing = MadeChild(package_missing="no torch"), MadeChild(traced=TRACED)
    compiling = MadeChild(error="the code was found")
    monkeypatch.setattr(CompileChildren, "find_compiler", lambda *_: compiling)
    with Compiler(store) as opened:
        monkeypatch.setattr(CompileChildren, "find_tracer", lambda *_: tracing)
        assert opened.trace(*ARGUMENTS, code_key="key") == TRACED
        assert tracing.asked["ask"] == "trace"
        named = {"library": str(LIBRARY), "kernel": "gemm_fp8", "problem": PROBLEM, "config": config(), "arch": "sm_90"}
        assert {name: tracing.asked[name] for name in named} == named
        monkeypatch.setattr(CompileChildren, "find_tracer", lambda *_: missing)
        if compiler is not None:
            monkeypatch.setattr(Compiler, "_read_toolchain_version", lambda _: compiler)
        with pytest.raises(BuildError if found else PackageMissing) as raised:
            opened.compile(*ARGUMENTS, code_key=code_key)
    assert {name: missing.asked[name] for name in named} == named
    if isinstance(raised.value, PackageMissing):
        assert raised.value.compiler == (None if code_key is None else compiler or compiler_version())
    else:
        assert compiling.asked["traced"] == TRACED


def test_a_config_is_identified_by_its_code_and_its_launches(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tracing, naming = MadeChild(traced=TRACED), MadeChild(content_key="code", launch_sha256="launches", failure="no")
    monkeypatch.setattr(CompileChildren, "find_tracer", lambda _, library: tracing if library == str(LIBRARY) else None)
    monkeypatch.setattr(CompileChildren, "find_compiler", lambda *_: naming)
    with Compiler(store) as compiler:
        assert compiler.identify(*ARGUMENTS) == CodeIdentity("code", "launches", "no")
    assert (tracing.asked["ask"], tracing.asked["kernel"], tracing.asked["problem"]) == (
        "identify",
        "gemm_fp8",
        PROBLEM,
    )
    assert (naming.asked["ask"], naming.asked["traced"]) == ("identify", TRACED)


@pytest.mark.parametrize("wanted", [None, compiler_version(), "cuda-tile 9"])
@pytest.mark.parametrize("traced", [compiler_version(), "cuda-tile 9"])
def test_code_is_traced_for_the_compiler_that_asks(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str | None, traced: str
) -> None:
    """Whoever asked would not find another compiler's code, and would ask again."""
    child = MadeChild(traced={**TRACED, "compiler": traced})
    monkeypatch.setattr(CompileChildren, "find_tracer", lambda *_: child)
    right = traced == (wanted or compiler_version())
    with Compiler(store) as compiler, contextlib.nullcontext() if right else pytest.raises(BuildError, match="traced"):
        compiler.trace(*ARGUMENTS, code_key="key", compiler=wanted)
    assert len(list(tmp_path.rglob("*.recorded"))) == right


def test_a_process_that_dies_while_the_disk_is_full_is_no_config_s_fault(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> NoReturn:
        raise StoreError("no space is left")

    monkeypatch.setattr(compiler_module, "require_room", refuse)
    monkeypatch.setattr(CompileChildren, "find_tracer", lambda *_: MadeChild(traced=7))
    with Compiler(store) as compiler, pytest.raises(StoreError, match="no space is left"):
        compiler.compile(*ARGUMENTS)


def test_an_outcome_has_the_times_and_facts_that_the_process_answers(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[LocalCubins] = []
    facts = {name: number for number, name in enumerate(StaticFacts.__dataclass_fields__)} | {"remarks": [{"line": 7}]}
    answer: dict[str, object] = {"status": "ok", "compile_s": 2.5, "cpu_s": 1.5, "content_key": "aa1"}
    more = {"code_sha256": "hash", "symbol": "gemm", "facts": facts}
    monkeypatch.setattr(LocalCubins, "send", lambda own: sent.append(own))
    monkeypatch.setattr(Compiler, "_ask_tracer", lambda *_: TRACED)
    monkeypatch.setattr(Compiler, "_ask_compiler", lambda *_: answer)
    with Compiler(store) as compiler:
        plain = compiler.compile(*ARGUMENTS)
        answer |= {**more, "reused": True}
        whole = compiler.compile(*ARGUMENTS)
        of_both = ("ok", compiler.version, "sm_90", 2.5, 1.5)
    assert len(sent) == 2
    assert plain == Compiled(*of_both, False, content_key="aa1")  # type: ignore[arg-type]
    assert whole.facts is not None
    assert (whole.facts.registers, whole.facts.remarks) == (0, ({"line": 7},))
    assert replace(whole, facts=None) == Compiled(*of_both, True, None, "aa1", "hash", "gemm")  # type: ignore[arg-type]


def test_a_compiler_that_closes_ends_its_processes_and_their_folders(store: str) -> None:
    done: list[str] = []
    compiler: Any = Compiler(store)
    compiler._children = SimpleNamespace(close=lambda: done.append("close"), kill=lambda: done.append("kill"))
    compiler._cubins = SimpleNamespace(close=lambda: done.append("folders"))
    compiler.kill()
    with compiler:
        assert done == ["kill"]
    assert done == ["kill", "close", "folders"]


def test_a_compiler_is_named_with_its_limits(store: str) -> None:
    """What exceeds a limit is stored, so another limit is another compiler."""
    assert Compiler(store).version == f"{compiler_version()} limit 15s 1.25GiB"
    other = Compiler(store, limit_s=7.5, memory_bytes=3 << 29, wall_limit_s=1.0)
    assert other.version == f"{compiler_version()} limit 7.5s 1.5GiB"


def test_a_constant_is_part_of_the_code_and_not_of_the_launch(store: str, tmp_path: Path) -> None:
    """A commit of TileGym's took an unused constant away: its machine code and its launch are equal."""
    with Compiler(store) as compiler:
        before, after = (
            compiler.identify(each, "transposed", "8x64:f16", {}, "sm_90")
            for each in (FOREIGN / "watch", _add_unused_constant(tmp_path / "foreign") / "watch")
        )
    assert before.failure is after.failure is None
    assert before.content_key != after.content_key
    assert before.launch_sha256 == after.launch_sha256


def _add_unused_constant(folder: Path) -> Path:
    shutil.copytree(FOREIGN, folder)
    for file, old, new in (
        ("kernels.py", "total, rows, TILE", "total, rows, UNUSED: ct.Constant[int], TILE"),
        ("host.py", "(x, total, x.shape[0], tile)", "(x, total, x.shape[0], 5, tile)"),
    ):
        source = (folder / "src/tiny_ops" / file).read_text()
        assert source.count(old) == 1
        (folder / "src/tiny_ops" / file).write_text(source.replace(old, new))
    return folder
