"""The measuring path in real GPU child processes on a fake GPU: a crash or a hang costs one trial."""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, MODULES, NAME, PROBLEM, ROOT, UUID, Rig, install_for_children
from tests.kernels.fixtures.ncu import NCU_OUTPUT, make_ncu
from tests.kernels.fixtures.s3_server import s3_server
from tilewatch.configs import config_key
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess
from tilewatch.kernels.compiling.store import CubinStore, StoreError
from tilewatch.kernels.gpu.health.watcher import Watcher, canary
from tilewatch.kernels.measuring import gpu_processes
from tilewatch.kernels.measuring import sweep as module
from tilewatch.kernels.measuring.baseline_process import describe_other_library
from tilewatch.kernels.measuring.description_schema import BadDescription
from tilewatch.kernels.measuring.gpu_processes import GpuProcesses, describe_side
from tilewatch.kernels.measuring.gpu_turn import GpuTurn
from tilewatch.kernels.measuring.measure import MeasureRequest, measure
from tilewatch.kernels.measuring.other_processes import GpuBusy
from tilewatch.kernels.measuring.pair_bench import ReplaySide
from tilewatch.kernels.measuring.preparation import OperatorAnswer, Preparation
from tilewatch.kernels.measuring.replay import ReplayRequest, replay
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed, sweep
from tilewatch.kernels.results import Cubin, TrialResult
from tilewatch.kernels.toolchains.toolchain import Package, Toolchain


@pytest.fixture(autouse=True)
def fake_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(MODULES), str(ROOT))))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name that answers for one H200; writing to the file next to it puts processes on it."""
    return install_for_children(monkeypatch)


def run_sweep(
    rig: Rig, cubins: list[Cubin], drawn: Sequence[Cubin] = ()
) -> tuple[module.SweepResult, list[TrialResult], GpuChild]:
    trials: list[TrialResult] = []
    child = GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}))
    keys = [config_key(each.config) for each in drawn]
    try:
        return sweep(child, [*cubins, *drawn], on_trial=trials.append, drawn=keys), trials, child
    finally:
        child.close()


def test_a_crash_a_hang_and_a_fault_cost_one_trial_each(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIAL_DEADLINE_S", 5.0)  # for a hang; a trial here takes milliseconds
    result, trials, _ = run_sweep(
        rig,
        [
            rig.cubin(1),
            rig.cubin(2, fault="abort"),
            rig.cubin(4, fault="hang"),
            rig.cubin(8, fault="fault"),
            rig.cubin(16, 90.0),
        ],
    )
    assert [trial.status for trial in result.trials] == ["timed", "crashed", "hung", "crashed", "timed"]
    assert [trial.failure for trial in result.trials[1:4]] == [
        "the GPU process died: SIGABRT",
        "no answer within 5 s",
        "CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered",
    ]
    assert result.winner == {"tile_rows": 16}
    assert len(trials) >= 5


@pytest.mark.parametrize("fault", ["hang", "abort"])
def test_the_first_drawn_config_that_kills_its_process_ends_the_share(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Each costs other series seconds of the GPU. Those of the short list are all tried."""
    if fault == "hang":
        monkeypatch.setattr(module, "NEXT_DEADLINE_S", 1.0)
    listed = [rig.cubin(1, fault="abort"), rig.cubin(2)]
    result, _, _ = run_sweep(rig, listed, [rig.cubin(4, fault=fault), rig.cubin(8, 50.0)])
    assert [trial.status for trial in result.trials] == [
        "crashed",
        "timed",
        {"hang": "hung", "abort": "crashed"}[fault],
    ]
    assert result.winner == {"tile_rows": 2}


def test_children_measure_the_cubins_of_an_object_store(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the child that comes after one that died. What is not in the store is no trial's fault."""
    url = "s3://cubins/fleet"
    cubins = [rig.cubin(1), rig.cubin(2, fault="abort"), rig.cubin(4, 90.0)]
    with s3_server(monkeypatch):
        for each in cubins:
            CubinStore(url).put(each.content_key, {}, CubinStore(rig.store_url).cubin(each.content_key))
        child = GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, url, environment={"CUDA_VISIBLE_DEVICES": UUID}))
        try:
            result = sweep(child, cubins, on_trial=lambda _: None)
            with pytest.raises(StoreError, match="cannot be read"):
                child.trial(3, rig.cubin(8), 1)
        finally:
            child.close()
    assert [trial.status for trial in result.trials] == ["timed", "crashed", "timed"]
    assert result.winner == {"tile_rows": 4}


def test_a_problem_is_described_before_the_gpu_is_taken(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another series has the GPU, this one gets as far as it can without it."""
    asked: list[str] = []
    ask, prepare, take = ChildProcess.ask, GpuTurn.prepare, GpuTurn.take

    @contextlib.contextmanager
    def prepare_beside_others(self: GpuTurn) -> Iterator[float]:
        asked.append("others may prepare")
        with prepare(self) as waited_s:
            yield waited_s
        asked.append("prepared")

    def take_alone(self: GpuTurn) -> float:
        asked.append("alone")
        return take(self)

    def record(self: ChildProcess, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        asked.append(str(request["ask"]))
        return ask(self, request, deadline_s=deadline_s)

    monkeypatch.setattr(GpuTurn, "prepare", prepare_beside_others)
    monkeypatch.setattr(GpuTurn, "take", take_alone)
    monkeypatch.setattr(ChildProcess, "ask", record)
    _, _, child = run_sweep(rig, [rig.cubin(1)])
    wanted = ["describe problem", "others may prepare", "expect", "prepared", "alone", "look"]
    assert asked[: len(wanted)] == wanted
    assert child.spent_s["import"] > 0


def test_a_config_that_aborts_only_later_is_a_late_crash(rig: Rig) -> None:
    result, _, _ = run_sweep(rig, [rig.cubin(1), rig.cubin(2, 99.0, fault="abort", fault_after=6)])
    assert [trial.status for trial in result.trials] == ["timed", "crashed"]
    assert (result.trials[1].failure or "").startswith("after its first samples: SIGABRT")
    assert result.winner == {"tile_rows": 1}


def test_a_whole_measurement_through_nvidia_smi_and_a_child_process(rig: Rig, nvidia_smi: Path) -> None:
    request = MeasureRequest(
        LIBRARY, rig.kernel, PROBLEM, "sm_90", rig.store_url, [rig.cubin(1), rig.cubin(2, 80.0)], 0,
        ("torch_residual_add", "copy"),
    )  # fmt: skip
    result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    assert (result.gpu_uuid, result.gpu_name, result.gpu_model, result.timer) == (UUID, NAME, "h200", "cupti")
    assert result.toolchain["driver"] == "580.159.04"
    assert result.winner == {"tile_rows": 2}
    assert [set(each.samples_us) for each in result.measurements] == [{80.0}, {120.0}, {49.152}]
    nvidia_smi.write_text(f"GPU-other, 1, python\n{UUID}, 4711, train.py\n")
    with pytest.raises(GpuBusy, match=r"in use by 4711 train\.py:"):
        measure(request, on_trial=lambda _: None, on_step=lambda *_: None)


def make_environment(folder: Path, name: str, version: str, time_us: float) -> Toolchain:
    """An environment with a PyTorch of its own, whose addition takes that long."""
    torch = (MODULES / "torch.py").read_text().replace("2.11.0+fake", version).replace("120.0", str(time_us))
    (folder / name).mkdir(parents=True)
    (folder / name / "torch.py").write_text(torch)
    return Toolchain(name, folder / name, (Package("torch", version, None),))


def test_a_baseline_of_another_version_is_timed_beside_the_installed_one(
    rig: Rig, nvidia_smi: Path, tmp_path: Path
) -> None:
    """It has the same inputs and the same number of rounds. What its package does not bring is not timed twice."""
    assert nvidia_smi.exists()
    environment = make_environment(tmp_path / "rivals", "next", "2.12.0", 110.0)
    baselines = ("torch_residual_add", "copy")
    request = MeasureRequest(LIBRARY, rig.kernel, PROBLEM, "sm_90", rig.store_url, [rig.cubin(1)], 0, baselines)
    result = measure(replace(request, environments=(environment,)), on_trial=lambda _: None, on_step=lambda *_: None)
    times = {each.implementation: set(each.samples_us) for each in result.measurements}
    assert times == {
        "residual_add": {100.0},
        "torch_residual_add": {120.0},
        "copy": {49.152},
        "torch_residual_add torch 2.12.0": {110.0},
    }
    assert len({len(each.samples_us) for each in result.measurements}) == 1
    detail = result.measurements[-1].detail
    assert (detail["environment"], detail["version"], detail["error"]) == ("next", "2.12.0", 0.0)
    assert "torch" not in result.toolchain or result.toolchain["torch"] != "2.12.0", "it is no part of our toolchain"


def test_an_environment_is_imported_before_cupy_and_by_the_process_that_measures_alone(
    rig: Rig, nvidia_smi: Path, tmp_path: Path
) -> None:
    """CuPy loads the cuBLAS that is installed beside it: another PyTorch then meets two, and says
    CUBLAS_STATUS_NOT_INITIALIZED. A reference that is computed with a mixture of both ended with SIGSEGV."""
    assert nvidia_smi.exists()
    environment = make_environment(tmp_path / "rivals", "next", "2.12.0", 110.0)
    assert environment.folder is not None
    file, imported = environment.folder / "torch.py", tmp_path / "imported"
    first = f"""import sys
with open({str(imported)!r}, "a") as file:
    file.write("after" if "cupy" in sys.modules else "before")
"""
    file.write_text(first + file.read_text())
    request = MeasureRequest(
        LIBRARY, rig.kernel, PROBLEM, "sm_90", rig.store_url, [rig.cubin(1)], 0, ("torch_residual_add",)
    )
    result = measure(replace(request, environments=(environment,)), on_trial=lambda _: None, on_step=lambda *_: None)
    assert set(result.measurements[-1].samples_us) == {110.0}
    assert imported.read_text() == "before"


def test_pytorch_is_imported_once_for_all_runs_and_after_cupy(
    rig: Rig, nvidia_smi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which cuBLAS a process has depends on the order. Importing it took each run more than a second."""
    assert nvidia_smi.exists()
    imported = tmp_path / "imported"
    says = f"import sys\nprint('cupy' in sys.modules, file=open({str(imported)!r}, 'a'))\n"
    (tmp_path / "torch.py").write_text(says + (MODULES / "torch.py").read_text())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(MODULES), str(ROOT))))
    request = MeasureRequest(
        LIBRARY, rig.kernel, PROBLEM, "sm_90", rig.store_url, [rig.cubin(1)], 0, ("torch_residual_add",)
    )
    for _ in range(2):
        result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
        assert set(result.measurements[-1].samples_us) == {120.0}
    assert imported.read_text() == "True\n"


def test_what_two_environments_have_in_one_version_is_timed_once(rig: Rig, nvidia_smi: Path, tmp_path: Path) -> None:
    """Two rows of one name made a recording that nothing could read."""
    assert nvidia_smi.exists()
    both = [make_environment(tmp_path / "rivals", name, "2.12.0", 110.0) for name in ("cublas-13.0", "cudnn-9.14")]
    request = MeasureRequest(
        LIBRARY,
        rig.kernel,
        PROBLEM,
        "sm_90",
        rig.store_url,
        [rig.cubin(1)],
        0,
        ("torch_residual_add",),
        environments=both,
    )
    result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    names = [each.implementation for each in result.measurements]
    assert names == ["residual_add", "torch_residual_add", "torch_residual_add torch 2.12.0"]
    assert result.measurements[-1].detail["environment"] == "cublas-13.0"


LOADED = "its process loaded nvidia-cublas"


@pytest.mark.parametrize(
    ("baseline", "loaded", "missing"),
    [
        ("cublaslt", "13.1.0", {"missing": f"{LOADED} 13.1.0 in place of 13.0.0.19"}),
        ("cublaslt", "13.0.0 and 13.1.0", {"missing": f"{LOADED} 13.0.0 and 13.1.0 in place of 13.0.0.19"}),
        ("cublaslt", "13.0.0", {}),
        ("cublaslt", "13.0.00", {"missing": f"{LOADED} 13.0.00 in place of 13.0.0.19"}),
        ("cublaslt", None, {}),
        ("attention_cudnn", "9.19.0", {}),
        ("attention_flash", "13.1.0", {}),
    ],
)  # fmt: skip
def test_times_of_a_library_that_is_not_the_environments_are_not_stored_under_its_name(
    baseline: str, loaded: str | None, missing: dict[str, str]
) -> None:
    detail = {} if loaded is None else {"library": loaded}
    about = {"environment": "next", "packages": {"torch": "2.11.0", "nvidia-cublas": "13.0.0.19"}}
    assert describe_other_library(baseline, detail, about) == missing


def test_an_environment_that_fails_costs_its_own_baselines_alone(rig: Rig, nvidia_smi: Path, tmp_path: Path) -> None:
    assert nvidia_smi.exists()
    broken = make_environment(tmp_path / "rivals", "broken", "2.13.0", 110.0)
    dying = make_environment(tmp_path / "rivals", "dying", "2.14.0", 110.0)
    assert broken.folder is not None
    assert dying.folder is not None
    (broken.folder / "torch.py").write_text("raise OSError('undefined symbol: c10') from OSError('libc10.so')")
    torch = (dying.folder / "torch.py").read_text()
    (dying.folder / "torch.py").write_text(torch.replace("gpu.run(", "len(gpu.launches) < 60 or os._exit(3); gpu.run("))
    baselines = ("torch_residual_add", "copy")
    request = MeasureRequest(LIBRARY, rig.kernel, PROBLEM, "sm_90", rig.store_url, [rig.cubin(1)], 0, baselines)
    result = measure(replace(request, environments=(broken, dying)), on_trial=lambda _: None, on_step=lambda *_: None)
    assert [len(each.samples_us) for each in result.measurements] == [40, 40, 40, 0, 0]
    missing = {each.implementation: each.detail["missing"] for each in result.measurements[3:]}
    assert missing == {
        "torch_residual_add torch 2.13.0": "OSError: undefined symbol: c10 (libc10.so)",
        "torch_residual_add torch 2.14.0": "exit code 3: add: chose 4 elements a thread",
    }


def test_a_replay_compares_two_cubins_in_fresh_processes(rig: Rig, nvidia_smi: Path) -> None:
    assert nvidia_smi.exists()
    good, bad = ReplaySide(LIBRARY, rig.cubin(1, 100.0)), ReplaySide(LIBRARY, rig.cubin(1, 103.0))
    request = ReplayRequest(rig.kernel, PROBLEM, "sm_90", rig.store_url, good, bad, 2, 0)
    launches: list[int] = []
    result = replay(request, on_launch=launches.append)
    assert (result.base_us, result.head_us, launches) == ((100.0, 100.0), (103.0, 103.0), [1, 2])
    assert result.counters == {"missing": "Nsight Compute (ncu) is not installed on this machine"}


@pytest.mark.parametrize(("bad_us", "profiled"), [(103.0, True), (100.2, False)])
def test_a_replay_profiles_both_cubins_once_where_they_differ(
    rig: Rig, nvidia_smi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad_us: float, profiled: bool
) -> None:
    assert nvidia_smi.exists()
    ncu = make_ncu(tmp_path / "ncu", NCU_OUTPUT)
    monkeypatch.setenv("PATH", f"{ncu}{os.pathsep}{os.environ['PATH']}")
    good, bad = (ReplaySide(LIBRARY, rig.cubin(1, each)) for each in (100.0, bad_us))
    request = ReplayRequest(rig.kernel, PROBLEM, "sm_90", rig.store_url, good, bad, 2, 0)
    counters = replay(request, on_launch=lambda _: None).counters
    assert (ncu / "launches").exists() == profiled
    if not profiled:
        assert counters is None
        return
    assert counters is not None
    assert [counters[side]["instructions"] for side in ("good", "bad")] == [1_234_567, 2_000_000]
    launched = [each["content_key"] for each in json.loads((ncu / "launches").read_text())["described"]]
    assert launched == [good.cubin.content_key, bad.cubin.content_key]


def test_a_commit_does_not_describe_what_the_other_side_of_a_replay_launches(
    rig: Rig, nvidia_smi: Path, tmp_path: Path
) -> None:
    """The other side's library is loaded in a process of its own, so that nothing in this one is its word."""
    assert nvidia_smi.exists()
    cheat = (
        "from tilewatch.kernels.catalog import loading\n"
        "from tilewatch.kernels.gpu import library_child\n"
        "honest = loading.load\n"
        "def load(library, *more):\n"
        "    if library.name != 'bad': raise SystemExit('the other side was loaded here')\n"
        "    return honest(library, *more)\n"
        "library_child.load = loading.load = load\n"
    )
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rows.py").write_text(cheat + (LIBRARY / "rows.py").read_text())
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")  # its files may import what they like
    good, bad = ReplaySide(LIBRARY, rig.cubin(1, 100.0)), ReplaySide(tmp_path / "bad", rig.cubin(1, 103.0))
    request = ReplayRequest(rig.kernel, PROBLEM, "sm_90", rig.store_url, good, bad, 1, 0)
    result = replay(request, on_launch=lambda _: None)
    assert (result.base_us, result.head_us) == ((100.0,), (103.0,))


def test_a_gpu_that_cannot_be_prepared_says_why(rig: Rig) -> None:
    with pytest.raises(SweepFailed, match=r"could not prepare 64x64: exit code 1: .*no CUDA-capable device"):
        GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, environment={"FAKE_GPU_MISSING": "1"}))


GIVES_TOO_MUCH = """
MANY = {"rows": np.zeros(10_000_000, "int32"), "ends": np.zeros(8_000_000)}
KERNELS = tuple(dataclasses.replace(each, given=lambda problem: MANY) for each in KERNELS)
"""


def test_given_values_that_are_too_many_are_named_with_their_limit(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text((LIBRARY / "rows.py").read_text() + GIVES_TOO_MUCH)
    with pytest.raises(SweepFailed) as refused:
        GpuChild(GpuSetup(tmp_path, rig.kernel, PROBLEM, rig.store_url))
    assert str(refused.value) == (
        "the GPU process could not prepare 64x64: exit code 1: kernel residual_add: `given` gives too many numbers: "
        "'rows' 10,000,000, 'ends' 8,000,000, 100 MiB of at most 32 MiB; give fewer, or let inputs be "
        'random (fill="normal" or fill="scale")'
    )


def test_a_canary_of_an_idle_gpu_comes_from_a_child_of_its_own() -> None:
    readings = canary(UUID)
    assert [each["when"] for each in readings] == ["before the canary", "canary", "after the canary"]
    assert readings[1]["canary_compute_us"] == 222.0


def test_a_watcher_reads_the_gpu_in_a_child_of_its_own() -> None:
    watcher = Watcher(UUID)
    try:
        assert watcher.look()["xids"] == []
        assert watcher.look()["sm_clock_mhz"] == 1980
    finally:
        watcher.close()


class Script:
    """Plays all processes of a problem and the GPU's turn. `answers` maps a question to what is answered, one after
    the other, and the last one again and again; an exception is raised and ends the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.answers = {name: list(each) if isinstance(each, list) else [each] for name, each in answers.items()}
        self.events: list[tuple[str, str]] = []
        self.asked: list[Mapping[str, Any]] = []
        self.started: list[ScriptedChild] = []
        monkeypatch.setattr(gpu_processes, "ChildProcess", partial(ScriptedChild, self))
        monkeypatch.setattr(gpu_processes, "find_turn", lambda _: self)
        monkeypatch.setattr(gpu_processes, "describe_operator", self.describe_operator)

    def answer(self, name: str, request: Mapping[str, Any]) -> Any:
        self.events.append((name, request["ask"]))
        self.asked.append(request)
        answers = self.answers.get(request["ask"], [{}])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def describe_operator(self, library: Any, _: Preparation, folder: Path, deadline: float) -> OperatorAnswer:
        assert deadline > time.monotonic()
        found: OperatorAnswer = self.answer(library.name, {"ask": f"describe {folder.name}"})
        return found

    def list_asked(self, word: str) -> list[str]:
        return [name for name, each in self.events if each == word]

    @contextlib.contextmanager
    def prepare(self) -> Iterator[float]:
        self.events.append(("turn", "prepare"))
        yield 3.0

    def take(self) -> float:
        self.events.append(("turn", "take"))
        return 4.0

    def release(self) -> None:
        self.events.append(("turn", "release"))


class ScriptedChild:
    """One of the processes that a script plays. Its name is its role and the number of its start."""

    def __init__(self, script: Script, role: str, **fields: Any) -> None:
        assert fields["environment"] == {"CUDA_VISIBLE_DEVICES": UUID}
        self.script, self.alive, self._answer = script, True, list[Any]()
        script.started.append(self)
        self.name = f"{role} {len(script.started)}"

    @property
    def is_idle(self) -> bool:
        return not self._answer

    def begin(self, request: Mapping[str, Any]) -> None:
        if not self.alive:
            raise ChildDied(f"{self.name} has ended")
        self._answer = [self.script.answer(self.name, request)]

    def finish(self, *, deadline_s: float) -> Any:
        assert 0 < deadline_s <= 300
        answer = self._answer.pop()
        if isinstance(answer, ChildDied | ChildHung):
            self.alive = False
            raise answer
        return answer

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> Any:
        self.begin(request)
        return self.finish(deadline_s=deadline_s)

    def close(self) -> None:
        if self.alive:
            self.script.events.append((self.name, "end"))
        self.alive = False


PROBLEM_OF_K: dict[str, Any] = {
    "problem": {
        "kernel": "k",
        "sizes": {},
        "arrays": [
            {
                "name": "x", "shape": [1], "dtype": "float32", "output": False, "fill": "normal", "aligned": True,
                "inout": False,
            }
        ],
        "given": {}, "tolerance": 0.01, "flops": 0, "bytes": 0, "launches": {},
    }
}  # fmt: skip
OF_KERNEL: dict[str, Any] = {
    "describe problem": PROBLEM_OF_K, "reference": {"outputs": {}}, "expect": {"timer": "cupti"},
    "take reference": {"refused": None, "has_room": True}, "look": {"seen": {"running": [], "active": []}},
}  # fmt: skip
DESCRIBED = OperatorAnswer({"kernel": "k"}, "", "")
STAYS = OperatorAnswer(None, "it adds with PyTorch", "")
OF_OPERATOR: dict[str, Any] = {**OF_KERNEL, "describe problem": {"problem": None}, "describe library": DESCRIBED}
WRONG = {"status": "wrong", "failure": "y is off"}
TIMED = {"status": "timed", "samples_us": [1.0]}
TRIAL = {"ask": "trial", "id": 7}


def prepare_in(script: Script, *preparations: Preparation, others: Sequence[Path] = ()) -> GpuProcesses:
    found = GpuProcesses(Path("/library"), environment={"CUDA_VISIBLE_DEVICES": UUID}, others=others)
    found.plan(preparations[1:] and preparations)
    assert script.list_asked("prepare") == [], "nothing takes a turn"
    return found


def make_preparation(problem: str = "1x1", **fields: Any) -> Preparation:
    return Preparation(Path("/library"), "k", problem, "file:///store", **fields)


def test_a_timer_is_started_once_and_the_gpu_is_taken_once_and_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, **OF_KERNEL)
    processes = prepare_in(script)
    first = processes.prepare(make_preparation(), deadline_s=100)
    assert (first["waited_s"], first["timer"], first["library_runs_apart"]) == (3.0 + 4.0, "cupti", True)
    assert processes.prepare(make_preparation("2x2"), deadline_s=100)["waited_s"] == 3.0
    assert script.list_asked("start timer") == ["gpu 1"]
    assert [name for name, word in script.events if word == "reference"] == ["library 2", "library 3"]
    assert script.events[-1] == ("library 3", "end"), "it ends before anything is timed"
    processes.close()
    assert [word for name, word in script.events if name == "turn"] == ["prepare", "take", "prepare", "release"]
    assert not any(each.alive for each in script.started)


def test_references_are_taken_until_there_is_no_room_and_each_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = [{"refused": None, "has_room": each} for each in (True, False, True)]
    script = Script(monkeypatch, **{**OF_KERNEL, "take reference": rooms})
    planned = [make_preparation(problem) for problem in ("1x1", "2x2", "3x3")]
    processes = prepare_in(script, *planned)
    for each in planned:
        assert processes.prepare(each, deadline_s=100)["library_runs_apart"]
    assert script.list_asked("reference") == ["library 2", "library 2", "library 3"]
    places = [each["place"] for each in script.asked if each["ask"] in ("take reference", "expect")]
    assert places == [0, 1, 0, 1, 2, 2]
    assert [each["problem"] for each in script.asked if each["ask"] == "prepare"] == ["1x1", "2x2", "3x3"]


def test_a_planned_problem_that_is_prepared_again_is_described_again(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, **OF_KERNEL)
    planned = [make_preparation(problem) for problem in ("1x1", "2x2")]
    processes = prepare_in(script, *planned)
    for each in (*planned, planned[1]):
        processes.prepare(each, deadline_s=100)
    assert script.list_asked("describe problem") == ["library 2", "library 2", "library 3"]
    assert [each.get("place") for each in script.asked if each["ask"] == "expect"] == [0, 1, None]


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_process_that_may_use_the_gpu_ends_before_others_get_it(
    monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    script = Script(monkeypatch, **OF_KERNEL)
    processes = prepare_in(script, others=[Path("/older")])
    processes.prepare(make_preparation(), deadline_s=100)
    processes.start_sides()
    script.started[-1].finish(deadline_s=1)
    if is_busy:
        script.started[0].begin(TRIAL)
    processes.close()
    ended = script.events.index(("gpu 1", "end"))
    assert (ended < script.events.index(("turn", "release"))) == is_busy


@pytest.mark.parametrize("failed", ["describe problem", "reference"])
@pytest.mark.parametrize("error", [ChildDied("SIGSEGV"), ChildHung("no answer")])
def test_a_planned_problem_that_fails_costs_no_other_one(
    monkeypatch: pytest.MonkeyPatch, failed: str, error: Exception
) -> None:
    script = Script(monkeypatch, **{**OF_KERNEL, failed: [OF_KERNEL[failed], error, OF_KERNEL[failed]]})
    planned = [make_preparation(problem) for problem in ("1x1", "2x2", "3x3")]
    processes = prepare_in(script, *planned)
    processes.prepare(planned[0], deadline_s=100)
    with pytest.raises(type(error), match=str(error)):
        processes.prepare(planned[1], deadline_s=100)
    processes.prepare(planned[2], deadline_s=100)
    assert script.list_asked("take reference") == ["gpu 1"] * 2


def test_a_measuring_process_that_dies_takes_no_more_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it took is lost, and the bench starts another one."""
    taken = [OF_KERNEL["take reference"], ChildDied("SIGSEGV")]
    script = Script(monkeypatch, **{**OF_KERNEL, "take reference": taken})
    planned = [make_preparation(problem) for problem in ("1x1", "2x2", "3x3")]
    processes = prepare_in(script, *planned)
    with pytest.raises(ChildDied, match="gpu 1 has ended"):
        processes.prepare(planned[0], deadline_s=100)
    assert script.list_asked("reference") == ["library 2"] * 2
    assert not processes.alive


def test_a_reference_that_is_refused_is_an_error_of_its_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, **{**OF_KERNEL, "take reference": [{"refused": "y has no values", "has_room": True}]})
    planned = [make_preparation(problem) for problem in ("1x1", "2x2")]
    processes = prepare_in(script, *planned)
    for each in planned:
        with pytest.raises(BadDescription, match="y has no values"):
            processes.prepare(each, deadline_s=100)


@pytest.mark.parametrize(
    ("apart", "stated", "by_library", "refused"),
    [
        ("", "", "", "no process measures the code that it runs unless its watch file says why"),
        ("", "it adds", "", None),
        ("", "", "it was decided", None),
        ("0", "", "", None),
        ("1", "it adds", "", "TILEWATCH_REQUIRE_APART is set: no process measures the code that it runs"),
        ("1", "it adds", "it was decided", "TILEWATCH_REQUIRE_APART is set"),
    ],
)
def test_host_code_measures_itself_only_if_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, apart: str, stated: str, by_library: str, refused: str | None
) -> None:
    monkeypatch.setenv(sandbox.REQUIRE_APART, apart)
    answer = OperatorAnswer(None, "it adds with PyTorch", stated)
    script = Script(monkeypatch, **{**OF_OPERATOR, "describe library": answer})
    processes = prepare_in(script)
    preparation = make_preparation(by_library=by_library)
    why = by_library or "it adds with PyTorch"
    if refused is not None:
        with pytest.raises(BadDescription, match=f"^{why}, and {refused}"):
            processes.prepare(preparation, deadline_s=100)
        assert script.list_asked("take") == [], "nothing is timed"
        return
    introduction = processes.prepare(preparation, deadline_s=100)
    assert not introduction["library_runs_apart"]
    assert (introduction["not_apart"], introduction["stated"]) == (why, "" if by_library else stated)
    assert script.list_asked("prepare")[-1] == "library 3"
    assert [each.name for each in script.started if each.alive] == ["library 3"], "one process does both"
    script.answers["trial"] = [TIMED]
    assert processes.ask(TRIAL, deadline_s=20) == TIMED


@pytest.mark.parametrize(
    ("head", "base", "stated"),
    [
        (replace(STAYS, stated="of the head"), DESCRIBED, "of the head"),
        (replace(DESCRIBED, stated="of the head"), replace(STAYS, stated="of the base"), "of the base"),
    ],
)
def test_the_stated_reason_is_that_of_the_side_whose_launches_cannot_be_repeated(
    monkeypatch: pytest.MonkeyPatch, head: OperatorAnswer, base: OperatorAnswer, stated: str
) -> None:
    script = Script(monkeypatch, **{**OF_OPERATOR, "describe library": head, "describe older": base})
    processes = prepare_in(script, others=[Path("/older")])
    introduction = processes.prepare(make_preparation(), deadline_s=100)
    assert (introduction["stated"], introduction["not_apart"]) == (stated, "it adds with PyTorch")


def test_an_operator_whose_launches_are_repeated_states_its_own_reason_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    head, base = replace(DESCRIBED, stated="of the head"), replace(DESCRIBED, stated="of the base")
    script = Script(monkeypatch, **{**OF_OPERATOR, "describe library": head, "describe older": base})
    processes = prepare_in(script, others=[Path("/older")])
    assert processes.prepare(make_preparation(), deadline_s=100)["is_operator"]
    (asked,) = (each for each in script.asked if each["ask"] == "prepare")
    assert asked["operators"] == {"/library": DESCRIBED.operator, "/older": DESCRIBED.operator}
    script.answers["trial"] = [WRONG, TIMED]
    answer = processes.ask(TRIAL, deadline_s=20)
    assert answer["introduction"]["stated"] == "of the head"


def start_operator(script: Script) -> GpuProcesses:
    """Returns the processes of an operator that is timed by what its host code said."""
    processes = prepare_in(script)
    introduction = processes.prepare(make_preparation(), deadline_s=100)
    assert (introduction["library_runs_apart"], introduction["is_operator"]) == (True, True)
    return processes


@pytest.mark.parametrize("status", ["wrong", "launch_error"])
def test_three_failed_configs_of_an_operator_are_tried_by_its_host_code_and_no_more(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    monkeypatch.setenv(sandbox.REQUIRE_APART, "0")
    failed = {**WRONG, "status": status}
    script = Script(monkeypatch, **OF_OPERATOR, trial=failed)
    processes = start_operator(script)
    for _ in range(5):
        assert processes.ask(TRIAL, deadline_s=20) == failed
    trials = script.list_asked("trial")
    assert [name for name in trials if name.startswith("library")] == [f"library {number}" for number in (3, 4, 5)]
    assert trials.count("gpu 1") == 5
    assert gpu_processes.MOST_CONFIRMATIONS == 3
    assert [each.name for each in script.started if each.alive] == ["gpu 1"]


@pytest.mark.parametrize(
    "answers", [[TIMED, WRONG], [{**WRONG, "is_final": True}], [{**WRONG, "status": "crashed"}]], ids=str
)
def test_host_code_does_not_try_again_what_is_known(
    monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, Any]]
) -> None:
    """After a right config its launches are those of the operator. What is final is wrong whoever launches it."""
    monkeypatch.setenv(sandbox.REQUIRE_APART, "0")
    script = Script(monkeypatch, **OF_OPERATOR, trial=answers)
    processes = start_operator(script)
    assert [processes.ask(TRIAL, deadline_s=20) for _ in answers] == answers
    assert script.list_asked("trial") == ["gpu 1"] * len(answers)


def test_host_code_that_is_right_where_its_launches_were_not_measures_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(sandbox.REQUIRE_APART, "0")
    script = Script(monkeypatch, **OF_OPERATOR, trial=[WRONG, TIMED, WRONG])
    processes = start_operator(script)
    answer = processes.ask(TRIAL, deadline_s=20)
    why = "launching again what its host code launched does not give its result: y is off"
    boundary = {"library_runs_apart": False, "not_apart": why, "stated": ""}
    assert answer == {**TIMED, "introduction": boundary}
    assert processes.ask(TRIAL, deadline_s=20) == WRONG
    assert script.list_asked("trial") == ["gpu 1", "library 3", "library 3"]
    assert [each.name for each in script.started if each.alive] == ["library 3"]


@pytest.mark.parametrize(("apart", "names"), [("1", True), ("", True), ("0", False)])
def test_host_code_that_may_not_measure_itself_is_not_asked_about_a_failed_config(
    monkeypatch: pytest.MonkeyPatch, apart: str, names: bool
) -> None:
    monkeypatch.setenv(sandbox.REQUIRE_APART, apart)
    script = Script(monkeypatch, **OF_OPERATOR, trial=WRONG)
    answer = start_operator(script).ask(TRIAL, deadline_s=20)
    assert answer["status"] == "wrong"
    said = f"launched by what its host code said ({sandbox.REQUIRE_APART}), y is off"
    assert answer["failure"] == (said if names else "y is off")
    assert script.list_asked("trial") == ["gpu 1"] if names else ["gpu 1", "library 3"]


@pytest.mark.parametrize(("is_watched", "problem"), [(True, None), (False, None), (False, PROBLEM_OF_K["problem"])])
def test_a_side_describes_its_own_problem_or_none_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, is_watched: bool, problem: Mapping[str, Any] | None
) -> None:
    script = Script(monkeypatch, **{"describe side": {"is_watched": is_watched, "problem": problem}})
    found = describe_side(make_preparation(), {"CUDA_VISIBLE_DEVICES": UUID}, deadline_s=100)
    assert found == (gpu_processes.WATCHED if is_watched else problem)
    assert script.events == [("library 1", "describe side"), ("library 1", "end")]
    assert "seed" not in script.asked[0]
