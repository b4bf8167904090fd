"""The real GPU child on a fake GPU: right before timed, poisoned before checked, a status for each failure."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu import GIVEN, LIBRARY, UUID, InProcessChild, Rig, write_giving_library
from tests.kernels.fixtures.fake_gpu.device import L2_BYTES, MEMORY_BYTES, NAME, SM_COUNT, FakeGpu
from tilewatch.kernels.catalog import loading
from tilewatch.kernels.library_errors import LibraryError


def launches(gpu: FakeGpu, rig: Rig) -> int:
    return len(gpu.of(rig.kernel))


def test_a_prepared_child_introduces_its_gpu(rig: Rig) -> None:
    _, introduction = rig.start()
    telemetry = introduction.pop("telemetry")
    assert telemetry["when"] == "prepared"
    assert introduction == {
        "gpu_name": NAME,
        "gpu_uuid": UUID,
        "timer": "cupti",
        "cuda_driver": "13.2",
        "sm_count": SM_COUNT,
        "element_bytes": 4,
        "sizes": {"rows": 64, "columns": 64},
        "work": {"flops": 64 * 64, "bytes": 12 * 64 * 64, "dtypes": ["float32"]},
        "unchecked": "",
    }


@pytest.mark.usefixtures("rig")
@pytest.mark.parametrize(
    ("uuid", "visible"),
    [
        ("GPU-a8004ebd-03fd-2310-b4d2-14e50ce7b75c", "GPU-a8004ebd-03fd-2310-b4d2-14e50ce7b75c"),
        ("GPU-a8114ebd-03fd-2310-b4d2-14e50ce7b700", "0"),
    ],
)
def test_a_gpu_with_a_zero_in_its_uuid_has_its_whole_uuid(
    monkeypatch: pytest.MonkeyPatch, uuid: str, visible: str
) -> None:
    """CuPy's properties end at the zero."""
    from tilewatch.kernels.gpu import gpu_child

    known = bytes.fromhex(uuid.removeprefix("GPU-").replace("-", "")).partition(b"\0")[0]
    monkeypatch.setattr(gpu_child.cupy.cuda.runtime, "getDeviceProperties", lambda _: {"name": b"", "uuid": known})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_child._read_uuid() == uuid


def test_a_process_that_waits_for_its_job_reads_its_library_and_touches_no_gpu(gpu: FakeGpu) -> None:
    child = InProcessChild("library", environment={"CUDA_VISIBLE_DEVICES": UUID})
    loading._libraries.pop((LIBRARY, None), None)
    child.ask({"ask": "import", "library": str(LIBRARY)}, deadline_s=1)
    assert (LIBRARY, None) in loading._libraries
    assert gpu.launches == []


def test_a_right_config_is_checked_once_and_then_timed(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    answer = rig.trial(child, rig.cubin(4, 80.0))
    assert (answer["status"], answer["samples_us"]) == ("timed", [80.0] * 5)
    assert answer["error"] < 1e-6
    assert launches(gpu, rig) == 1 + 5, "the checked launch is the warm-up and no sample"


def test_the_grid_is_the_library_s_for_this_config_and_gpu(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    rig.trial(child, rig.cubin(4))
    assert {launch.grid for launch in gpu.of(rig.kernel)} == {(16, 1, SM_COUNT)}


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("off", "the output 'y' is off by 0."),
        ("last row unwritten", "the output 'y' left elements unwritten"),
        ("stale", "the output 'y' left elements unwritten"),
    ],
)
def test_a_wrong_config_is_never_timed(gpu: FakeGpu, rig: Rig, fault: str, failure: str) -> None:
    """After a right one, whose outputs still lie there: without poison they would pass for the stale one's."""
    child, _ = rig.start()
    rig.trial(child, rig.cubin(), samples=1)
    before = launches(gpu, rig)
    answer = rig.trial(child, rig.cubin(fault=fault), 1)
    assert answer["status"] == "wrong"
    assert answer["failure"].startswith(failure)
    assert answer["failure"].endswith("at most 1e-05 and 5e-05 are accepted")
    assert answer["error"] is None or answer["error"] > 1e-5
    assert "samples_us" not in answer
    assert launches(gpu, rig) == before + 1, "the check alone"


def test_an_error_within_the_tolerance_passes_and_one_just_over_it_does_not(rig: Rig) -> None:
    """The error is a share of the reference's largest magnitude."""
    from tilewatch.kernels.gpu import gpu_child

    child, _ = rig.start()
    scales = [each["y"].scale for each in prepared(gpu_child).expected]
    right = rig.trial(child, rig.cubin(fault="off", off_by=0.9e-5 * min(scales)))
    assert (right["status"], right.get("failure")) == ("timed", None)
    assert 0.8e-5 < right["error"] < 1e-5
    wrong = rig.trial(child, rig.cubin(fault="off", off_by=1.1e-5 * max(scales)))
    assert wrong["failure"].startswith("the output 'y' is off by 1.")


def prepared(gpu_child: Any) -> Any:
    assert gpu_child._prepared is not None
    return gpu_child._prepared


def test_every_output_element_is_compared(rig: Rig) -> None:
    """Wherever the reference is no NaN. The last element of this kernel's is: any value does there."""
    from tilewatch.kernels.gpu import gpu_child

    child, _ = rig.start()
    rig.trial(child, rig.cubin())
    here = prepared(gpu_child)
    here.verify(here.loaded[0], 1)
    good = here.error(1)
    assert good.failure is None
    here.outputs["y"][-1, -1] = 1e6
    assert here.error(1) == good
    here.outputs["y"][-1, 0] += 1.0
    assert here.error(1).largest > 0.1


def test_a_hopeless_config_gets_no_further_samples(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    slow = rig.trial(child, rig.cubin(1, 1000.0), best_us=199.0)
    assert (slow["status"], slow["samples_us"]) == ("timed", [1000.0])
    assert launches(gpu, rig) == 1
    assert len(rig.trial(child, rig.cubin(1, 1000.0), 1, best_us=201.0)["samples_us"]) == 5


def test_a_trial_takes_no_rests(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    rig.trial(child, rig.cubin(1, 900.0), samples=40)
    assert not gpu.slept_s


@pytest.mark.parametrize(
    ("fault", "status", "failure"),
    [
        ("launch_error", "launch_error", "CUDADriverError: CUDA_ERROR_INVALID_VALUE"),
        ("fault", "crashed", "CUDARuntimeError: cudaErrorIllegalAddress"),
        ("no record", "launch_error", "TimingError: 0 kernel records for 1 kernels launched"),
    ],
)
def test_each_failure_of_a_config_has_a_status_and_a_line(rig: Rig, fault: str, status: str, failure: str) -> None:
    child, _ = rig.start()
    answer = rig.trial(child, rig.cubin(fault=fault))
    assert answer["status"] == status
    assert answer["failure"].startswith(failure)
    assert "\n" not in answer["failure"]


def test_a_config_that_faults_while_it_is_timed_has_crashed(rig: Rig) -> None:
    child, _ = rig.start()
    assert rig.trial(child, rig.cubin(fault="fault", fault_after=3))["status"] == "crashed"


def test_a_failed_config_cannot_be_named_in_rounds(rig: Rig) -> None:
    child, _ = rig.start()
    rig.trial(child, rig.cubin(fault="off"), 7)
    with pytest.raises(KeyError):
        child.ask({"ask": "rounds", "ids": [7], "names": [], "rounds": 1, "seed": 1}, deadline_s=1)


def test_each_config_is_its_own_cubin(rig: Rig) -> None:
    """CuPy remembers a module by its path."""
    child, _ = rig.start()
    times = [
        rig.trial(child, rig.cubin(2, time_us), identity)["samples_us"][0]
        for identity, time_us in enumerate((50.0, 70.0))
    ]
    assert times == [50.0, 70.0]


def test_inputs_rotate_over_several_times_l2(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    rig.trial(child, rig.cubin(), samples=60)
    sets = {launch.addresses[:2] for launch in gpu.of(rig.kernel)}
    set_bytes = 2 * 4 * 64 * 64
    assert len(sets) * set_bytes >= 4 * L2_BYTES
    assert len(sets) * set_bytes <= 0.25 * MEMORY_BYTES
    assert len({launch.addresses[2] for launch in gpu.of(rig.kernel)}) == 1, "outputs stay"


def test_every_set_has_the_given_values_which_are_read_once(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's process computes the reference of what it gave, and this one launches what came through JSON."""
    from tilewatch.kernels.gpu import gpu_child, prepared_problem

    read = []
    decode = prepared_problem.decode_values
    monkeypatch.setattr(prepared_problem, "decode_values", lambda *of: (read.append(of[0]), decode(*of))[1])
    child, _ = rig.start(write_giving_library(tmp_path / "library"))
    assert isinstance(gpu_child._prepared, prepared_problem.PreparedProblem)
    inputs = gpu_child._prepared.inputs
    assert len(inputs) > 2
    assert all(np.array_equal(each["x"], GIVEN) for each in inputs)
    assert len({each["x"].ctypes.data for each in inputs}) == len(inputs), "each has memory of its own"
    assert read == ["x"]
    assert rig.trial(child, rig.cubin())["status"] == "timed"


def test_large_inputs_take_at_most_a_quarter_of_the_memory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewatch.kernels.gpu.rounds.INPUT_L2S", 10_000)
    rig.start()
    from tilewatch.kernels.gpu import gpu_child

    prepared = gpu_child._prepared
    assert prepared is not None
    set_bytes = 2 * 4 * 64 * 64
    assert len(prepared.inputs) == MEMORY_BYTES // 4 // set_bytes


def test_another_seed_gives_other_inputs(rig: Rig) -> None:
    from tilewatch.kernels.gpu import gpu_child

    values = []
    for seed in (1, 1, 2):
        rig.start(seed=seed)
        assert gpu_child._prepared is not None
        values.append(gpu_child._prepared.inputs[0]["x"].tobytes())
        assert gpu_child._prepared.inputs[0]["x"].tobytes() != gpu_child._prepared.inputs[1]["x"].tobytes()
    assert values[0] == values[1] != values[2]


def rounds(child: InProcessChild, ids: list[int], names: list[str], count: int = 20, seed: int = 1) -> Any:
    request = {"ask": "rounds", "ids": ids, "names": names, "rounds": count, "seed": seed}
    return child.ask(request, deadline_s=1)


def test_rounds_time_configs_and_baselines_in_the_order_of_the_request(rig: Rig) -> None:
    child, _ = rig.start()
    for identity, time_us in enumerate((100.0, 80.0)):
        rig.trial(child, rig.cubin(1, time_us), identity)
    child.ask({"ask": "baselines", "names": ["copy", "torch_residual_add"]}, deadline_s=1)
    answer = rounds(child, [1, 0], ["torch_residual_add"])
    assert answer["samples_us"] == [[80.0] * 20, [100.0] * 20, [120.0] * 20]
    assert [reading["when"] for reading in answer["telemetry"]] == ["before rounds", "after rounds"]


def test_a_config_that_writes_into_an_input_in_rounds_has_no_times(rig: Rig) -> None:
    """Results show it only if a later launch computes with the input; here the last launch writes."""
    child, _ = rig.start()
    assert rig.trial(child, rig.cubin(fault="marks its input", fault_after=3), samples=1)["status"] == "timed"
    assert "samples_us" in rounds(child, [0], [], count=1)
    answer = rounds(child, [0], [], count=1)
    assert answer["wrong"] == "when it was timed, it wrote into 'x', which is an input"


def test_the_seed_of_rounds_orders_them(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    for identity in (0, 1):
        rig.trial(child, rig.cubin(1, 100.0 + identity), identity)
    orders = []
    for seed in (1, 2):
        start = len(gpu.launches)
        rounds(child, [0, 1], [], seed=seed)
        orders.append([launch.time_us for launch in gpu.launches[start:]])
    assert orders[0] != orders[1]


def test_more_samples_of_checked_configs_are_interleaved(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    for identity in (0, 1):
        child.ask({"ask": "load", "id": identity, **rig.request_of(rig.cubin(1, 100.0 + identity))}, deadline_s=1)
    assert not gpu.of(rig.kernel), "loading launches nothing"
    answer = child.ask({"ask": "time", "ids": [0, 1], "samples": 30}, deadline_s=1)
    assert answer["samples_us"] == [[100.0] * 30, [101.0] * 30]
    times = [launch.time_us for launch in gpu.of(rig.kernel)]
    assert sum(x != y for x, y in itertools.pairwise(times)) > 20


@pytest.mark.parametrize(
    ("kernel", "baseline", "kernels"),
    [
        ("residual_add", "torch_residual_add", ["torch_add"]),
        ("residual_add", "copy", ["copy_16_bytes"]),
        ("softmax", "torch_softmax", ["torch_softmax"]),
        ("silu_and_multiply", "torch_silu_and_multiply", ["torch_silu", "torch_mul"]),
    ],
)
def test_a_baseline_is_checked_and_says_what_it_ran(rig: Rig, kernel: str, baseline: str, kernels: list[str]) -> None:
    rig.kernel = kernel
    child, _ = rig.start()
    answer = child.ask({"ask": "baselines", "names": [baseline]}, deadline_s=1)["baselines"][baseline]
    assert "missing" not in answer
    assert answer["kernels"] == kernels
    assert answer["error"] < 1e-5
    assert answer["chose"] == (["add: chose 4 elements a thread"] if baseline == "torch_residual_add" else [])


def test_a_baseline_of_two_kernels_is_timed_as_their_sum(rig: Rig) -> None:
    rig.kernel = "silu_and_multiply"
    child, _ = rig.start()
    child.ask({"ask": "baselines", "names": ["torch_silu_and_multiply"]}, deadline_s=1)
    assert set(rounds(child, [], ["torch_silu_and_multiply"])["samples_us"][0]) == {100.0}


@pytest.mark.parametrize(("stated", "is_timed"), [(None, True), (2, True), (1, False)])
def test_a_baseline_whose_launch_runs_more_kernels_than_it_says_is_not_timed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, stated: int | None, is_timed: bool
) -> None:
    """Scales that are "laid out beforehand" and are laid out in each launch all the same would be timed with it."""
    from tilewatch.kernels.baselines import makers

    rig.kernel = name = "silu_and_multiply"
    plain = makers.MAKERS[f"torch_{name}"]
    makes = {**makers.MAKERS, f"torch_{name}": lambda call: replace(plain(call), kernels=stated)}
    monkeypatch.setattr(makers, "MAKERS", makes)
    child, _ = rig.start()
    answer = child.ask({"ask": "baselines", "names": [f"torch_{name}"]}, deadline_s=1)["baselines"][f"torch_{name}"]
    assert answer["kernels"] == ["torch_silu", "torch_mul"], "they are kept either way"
    sentence = "its launch runs 2 kernels, where it should run 1"
    assert answer.get("missing") == (None if is_timed else sentence)


def test_a_baseline_that_only_copies_costs_the_run_no_more_than_this_baseline(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's `clone` runs no kernel, and no time can be given of it."""
    from tilewatch.kernels.baselines import makers

    name = f"torch_{rig.kernel}"
    plain = makers.MAKERS[name]
    copies = {name: lambda call: replace(plain(call), launch=lambda: None, solves=False)}
    monkeypatch.setattr(makers, "MAKERS", {**makers.MAKERS, **copies})
    child, _ = rig.start()
    answer = child.ask({"ask": "baselines", "names": [name]}, deadline_s=1)["baselines"][name]
    assert answer["missing"] == "its launch runs 0 kernels, where it should run some"


def test_a_copy_moves_as_many_bytes_as_the_problem(rig: Rig) -> None:
    child, _ = rig.start()
    answer = child.ask({"ask": "baselines", "names": ["copy"]}, deadline_s=1)["baselines"]["copy"]
    assert answer["bytes"] == 12 * 64 * 64


@pytest.mark.parametrize(
    ("factor", "accepted"), [(1.0, True), (1 + 3.9e-5, True), (1 + 4.1e-5, False), (float("nan"), False), (0.0, False)]
)
def test_a_baseline_that_is_wrong_is_missing(
    gpu: FakeGpu, rig: Rig, monkeypatch: pytest.MonkeyPatch, factor: float, accepted: bool
) -> None:
    """A baseline may be off by four times the tolerance. The first config's output does not pass for its."""
    import torch

    def add(x: Any, y: Any, out: Any) -> None:
        gpu.run("torch_add", 120.0, [x.array, y.array])
        if factor:
            out.array[...] = (x.array + y.array) * factor

    child, _ = rig.start()
    rig.trial(child, rig.cubin(), samples=1)  # its outputs stay, and are those of the inputs that the check uses
    monkeypatch.setattr(torch, "add", add)
    answer = child.ask({"ask": "baselines", "names": ["torch_residual_add"]}, deadline_s=1)["baselines"]
    assert ("missing" not in answer["torch_residual_add"]) == accepted
    if not accepted:
        with pytest.raises(KeyError):
            rounds(child, [], ["torch_residual_add"])


def test_a_baseline_that_fails_does_not_cost_the_others(rig: Rig) -> None:
    child, _ = rig.start()
    names = ["deepgemm", "nonsense", "torch_rms_norm", "torch_residual_add"]
    answer = child.ask({"ask": "baselines", "names": names}, deadline_s=1)["baselines"]
    assert list(answer) == names
    assert answer["deepgemm"]["missing"].startswith("DeepGEMM is not installed (pip install tilewatch[deepgemm])")
    assert answer["nonsense"]["missing"].startswith("there is no baseline 'nonsense'; there are deepgemm,")
    assert "weight" in answer["torch_rms_norm"]["missing"] or answer["torch_rms_norm"]["missing"]
    assert "missing" not in answer["torch_residual_add"]


def test_a_library_that_cannot_say_its_version_costs_its_own_baseline(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewatch.kernels.gpu import gpu_child

    def read(package: str) -> tuple[str, ...]:
        raise OSError(f"libcudnn.so.9 of '{package}': cannot open shared object file")

    child, _ = rig.start()
    monkeypatch.setattr(gpu_child, "read_loaded_versions", read)
    answer = child.ask({"ask": "baselines", "names": ["torch_residual_add"]}, deadline_s=1)["baselines"]
    assert answer["torch_residual_add"]["missing"] == "libcudnn.so.9 of '': cannot open shared object file"


def test_a_side_of_a_replay_that_is_other_work_is_wrong(rig: Rig, tmp_path: Any) -> None:
    """The library of another commit lays the arrays out differently, or has no such kernel."""
    source = (LIBRARY / "rows.py").read_text()
    sides = {
        "gone": (source.replace('kernel("residual_add"', 'kernel("renamed"'), "has no kernel residual_add"),
        "other": (
            source.replace('"float32", output=True', '"float16", output=True'),
            "lays the arrays out differently",
        ),
        "small": (source.replace("(1, 2, 4, 8, 16)", "(2, 4)"), 'has no config {"tile_rows": 1} in its search space'),
    }
    for name, (changed, _) in sides.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.py").write_text(changed)
    child, _ = rig.start(others=(LIBRARY, *(tmp_path / name for name in sides)))
    for name, (_, failure) in sides.items():
        answer = rig.trial(child, rig.cubin(), library=str(tmp_path / name))
        assert answer["status"] == "wrong"
        assert failure in answer["failure"]
    assert rig.trial(child, rig.cubin(), library=str(LIBRARY))["status"] == "timed"


def test_a_side_of_a_replay_is_launched_on_its_own_commit_s_grid(gpu: FakeGpu, rig: Rig, tmp_path: Any) -> None:
    source = (LIBRARY / "rows.py").read_text()
    (tmp_path / "rows.py").write_text(source.replace("1, sm_count)", "2, sm_count)"))
    child, _ = rig.start(others=(tmp_path,))
    rig.trial(child, rig.cubin(4), library=str(tmp_path))
    assert {launch.grid for launch in gpu.of(rig.kernel)} == {(16, 2, SM_COUNT)}


def test_a_profiler_may_keep_cupti_for_itself(rig: Rig) -> None:
    child, introduction = rig.start(timer="events")
    assert introduction["timer"] == "events"
    answer = rig.trial(child, rig.cubin(1, 100.0))
    assert answer["samples_us"] == pytest.approx([101.0] * 5, abs=2), "events count the host's calls too"
    answer = child.ask({"ask": "baselines", "names": ["copy"]}, deadline_s=1)["baselines"]["copy"]
    assert "kernels" not in answer, "events see a launch and not its kernels"


def test_a_canary_reads_two_fixed_kernels(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    reading = child.ask({"ask": "canary", "when": "canary before"}, deadline_s=1)["telemetry"]
    assert reading == {"when": "canary before", "canary_compute_us": 222.0, "canary_memory_us": 135.0}
    assert [len(gpu.of(name)) for name in ("canary_compute", "canary_memory")] == [1 + 10, 1 + 10]
    gpu.drift = lambda number: 3.0 if number % 5 == 0 else 1.0
    again = child.ask({"ask": "canary", "when": "canary after"}, deadline_s=1)["telemetry"]
    assert again["canary_compute_us"] == 222.0, "the median: a few slow launches are no drift"


def test_a_kernel_of_two_outputs_one_in_place_is_checked_timed_and_compared(gpu: FakeGpu, rig: Rig) -> None:
    """Launched twice on the same array it would be off: each check starts from the same values."""
    rig.kernel = "accumulate"
    child, _ = rig.start()
    for identity in (0, 1):
        answer = rig.trial(child, rig.cubin(1, 80.0 + identity), identity)
        assert (answer["status"], answer["samples_us"]) == ("timed", [80.0 + identity] * 5)
    assert {len(launch.addresses) for launch in gpu.of("accumulate")} == {3}
    details = child.ask({"ask": "baselines", "names": ["copy", "torch_residual_add"]}, deadline_s=1)["baselines"]
    assert "missing" not in details["copy"]
    assert details["torch_residual_add"]["missing"] == (
        "it needs an array called 'residual'; accumulate has x, total, y"
    )
    assert rounds(child, [0, 1], ["copy"])["samples_us"][:2] == [[80.0] * 20, [81.0] * 20]


@pytest.mark.parametrize("fault", ["off", "stale", "last row unwritten"])
def test_each_of_two_outputs_is_checked(rig: Rig, fault: str) -> None:
    """One whose array is changed in place and whose other output is right is wrong too."""
    rig.kernel = "accumulate"
    child, _ = rig.start()
    assert rig.trial(child, rig.cubin(fault=fault))["status"] == "wrong"


def test_an_array_in_place_that_was_left_as_it_was_is_wrong(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.kernels.fixtures.fake_gpu import device

    rig.kernel = "accumulate"
    monkeypatch.setitem(device.COMPUTES, "accumulate", lambda x, total, scale: (total, x * scale))
    child, _ = rig.start()
    assert rig.trial(child, rig.cubin())["status"] == "wrong"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ('"z": inputs["x"] / 2}', "kernel accumulate: its reference gives total, z, but it writes total, y"),
        (
            '"y": inputs["x"][0] / 2}',
            r"its reference gives 'y' in shape \(64,\), expected \(64, 64\)",
        ),
    ],
)
def test_a_reference_of_other_outputs_is_found_before_the_sweep(
    rig: Rig, tmp_path: Any, changed: str, sentence: str
) -> None:
    rig.kernel = "accumulate"
    source = (LIBRARY / "rows.py").read_text()
    (tmp_path / "rows.py").write_text(source.replace('"y": inputs["x"] / 2}', changed))
    with pytest.raises(LibraryError, match=sentence):
        rig.start(tmp_path)


def test_a_reference_is_computed_without_cub(rig: Rig, tmp_path: Path) -> None:
    """CuPy would compile each of its reductions for 4 s (kernels/gpu/arrays.py)."""
    rig.kernel = "accumulate"
    source = (LIBRARY / "rows.py").read_text()
    looks = '"y": inputs["x"] / 2 + 1000 * sum(xp._core.get_reduction_accelerators())}'
    assert '"y": inputs["x"] / 2}' in source
    (tmp_path / "rows.py").write_text(source.replace('"y": inputs["x"] / 2}', looks))
    child, _ = rig.start(tmp_path)
    assert rig.trial(child, rig.cubin())["status"] == "timed"
