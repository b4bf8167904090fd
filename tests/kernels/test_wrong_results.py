"""A wrong result is never timed: of a kernel that is right on one set of inputs, of one that wrongs few elements late,
of a baseline. Nothing that an honest kernel does is refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, UUID, InProcessChild, Rig, measure_in_this_process
from tests.kernels.fixtures.fake_gpu.device import COMPUTES, L2_BYTES, FakeGpu
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, sweep

ON_ONE_SET = {
    "it is wrong on every other set": ({"fault": "off on other sets"}, "is off by"),
    "it computes for one set alone": ({"fault": "rests on other sets"}, "left elements unwritten"),
}


@pytest.mark.parametrize("turn", range(20))
@pytest.mark.parametrize("case", ON_ONE_SET)
def test_a_kernel_that_is_right_on_one_set_of_inputs_is_wrong(rig: Rig, case: str, turn: int) -> None:
    """Whichever set it is checked on: that one is drawn, and a timed launch on the other one is compared."""
    fault, sentence = ON_ONE_SET[case]
    child, _ = rig.start(seed=turn)
    answer = rig.trial(child, rig.cubin(**fault), samples=1)
    assert (answer["status"], answer["is_final"]) == ("wrong", True)
    assert answer["failure"].startswith(f"when it was timed, the output 'y' {sentence}")


@pytest.mark.parametrize("kernel", ["residual_add", "softmax", "silu_and_multiply", "accumulate"])
def test_honest_kernels_are_right_on_every_set(rig: Rig, kernel: str) -> None:
    """Also one that changes an array in place, whose first values are those of the set."""
    rig.kernel = kernel
    for seed in range(8):
        child, _ = rig.start(seed=seed)
        assert rig.trial(child, rig.cubin(2, 80.0)).get("failure") is None


def test_a_kernel_that_computes_for_one_set_alone_never_wins(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 1 us in place of 100."""
    measure_in_this_process(monkeypatch)
    child = GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}))
    cubins = [rig.cubin(1), rig.cubin(2, 90.0, fault="rests on other sets")]
    result = sweep(child, cubins, on_trial=lambda _: None)
    child.close()
    assert (result.winner, result.trials[1].status) == ({"tile_rows": 1}, "wrong")


@pytest.mark.parametrize("fault_after", range(4, 60, 8))
def test_a_kernel_that_stops_computing_anywhere_in_the_race_loses_to_what_is_right(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fault_after: int
) -> None:
    """What it had sent out of the race races again."""
    measure_in_this_process(monkeypatch)
    child = GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}))
    cubins = [rig.cubin(1), rig.cubin(2, 80.0, fault="rests later", fault_after=fault_after)]
    told: dict[str, str] = {}
    result = sweep(child, cubins, on_trial=lambda trial: told.update({str(trial.config): trial.status}))
    child.close()
    assert result.winner == {"tile_rows": 1}
    assert result.trials[1].status == "wrong"
    assert told[str({"tile_rows": 2})] == "wrong", "whoever keeps a journal hears of it"


def test_no_library_is_told_the_seed_before_it_has_described_its_problem(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_in_this_process(monkeypatch)
    asked: list[Any] = []

    class Listening(InProcessChild):
        def ask(self, request: Any, *, deadline_s: float) -> Any:
            if self._role == "library" and request["ask"] != "import":
                asked.append(request)
            return super().ask(request, deadline_s=deadline_s)

    monkeypatch.setattr("tilewatch.kernels.measuring.gpu_processes.ChildProcess", Listening)
    setups = [
        GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID})
        for _ in range(2)
    ]
    for setup in setups:
        GpuChild(setup).close()
    assert [(each["ask"], "seed" in each) for each in asked] == 2 * [("describe problem", False), ("reference", True)]
    assert setups[0].seed != setups[1].seed, "it is drawn"


def test_a_process_that_replaces_another_has_other_inputs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's process that ended knew the seed, and may have written it down."""
    measure_in_this_process(monkeypatch)
    child = GpuChild(GpuSetup(LIBRARY, rig.kernel, PROBLEM, rig.store_url, environment={"CUDA_VISIBLE_DEVICES": UUID}))
    before = child.seed
    child.forget(0)
    child.ask({"ask": "look"})
    assert child.seed != before
    child.close()


def test_which_memory_holds_the_sets_that_are_compared_is_drawn(rig: Rig) -> None:
    """A kernel may look at its addresses."""
    from tilewatch.kernels.gpu import gpu_child

    places = set()
    for _ in range(20):
        rig.start()
        assert gpu_child._prepared is not None
        addresses = [each["x"].ctypes.data for each in gpu_child._prepared.inputs]
        places.add(sorted(addresses).index(addresses[0]))
    assert len(places) > 3


def test_a_reference_for_too_few_sets_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewatch.kernels.gpu import library_child

    monkeypatch.setattr(library_child, "CHECKED_SETS", 1)
    with pytest.raises(LibraryError, match="its reference is there for 1 sets of inputs, expected 2"):
        rig.start()


def test_one_set_that_fills_the_memory_is_compared_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewatch.kernels.gpu import gpu_child

    monkeypatch.setattr("tilewatch.kernels.gpu.prepared_problem.INPUT_BUDGET", 1e-9)
    child, _ = rig.start()
    assert gpu_child._prepared is not None
    assert list(gpu_child._prepared.checked_sets) == [0]
    assert rig.trial(child, rig.cubin())["status"] == "timed"


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_baseline_that_is_wrong_on_one_set_is_missing(
    gpu: FakeGpu, rig: Rig, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    import torch

    from tilewatch.kernels.gpu import gpu_child

    child, _ = rig.start()
    assert gpu_child._prepared is not None
    places = [each["x"].ctypes.data for each in gpu_child._prepared.inputs]

    def add(x: Any, y: Any, out: Any) -> None:
        gpu.run("torch_add", 120.0, [x.array, y.array])
        out.array[...] = x.array + y.array
        out.array[3, 3] += x.array.ctypes.data == places[wrong]

    monkeypatch.setattr(torch, "add", add)
    detail = child.ask({"ask": "baselines", "names": ["torch_residual_add"]}, deadline_s=1)["baselines"]
    missing = detail["torch_residual_add"]["missing"]
    assert missing.startswith("the output 'y' is off by")
    assert "element [3, 3] is" in missing
    assert "at most 4e-05 and 0.0002 are accepted" in missing


COMPUTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the last tile of rows is zeros": lambda y: np.where(np.arange(64)[:, None] < 48, y, 0),
    "rows are moved by one": lambda y: np.roll(y, 1, axis=0),
    "two columns are swapped": lambda y: y[:, [1, 0, *range(2, 64)]],
    "the sign is wrong": lambda y: -y,
    "it is transposed": lambda y: y.T.copy(),
    "half of the sum": lambda y: y / 2,
    "one element is infinite": lambda y: _with(y, (5, 5), math.inf),
    "one element is NaN": lambda y: _with(y, (0, 0), math.nan),
    "one element is off by a thousandth": lambda y: _with(y, (63, 0), y[63, 0] + 0.004),
    "it is rounded to FP8": lambda y: np.round(y * 8) / 8,
}


def _with(y: np.ndarray, place: tuple[int, int], value: float) -> np.ndarray:
    spoilt = y.copy()
    spoilt[place] = value
    return spoilt


@pytest.mark.parametrize("case", COMPUTED)
def test_a_wrong_result_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setitem(COMPUTES, "residual_add", lambda x, residual: COMPUTED[case](x + residual))
    child, _ = rig.start()
    answer = rig.trial(child, rig.cubin())
    assert (answer["status"], "samples_us" in answer) == ("wrong", False)
    assert "the output 'y'" in answer["failure"]
    assert "in place of" in answer["failure"]


IDS = """
@ct.kernel
def routing(x, ids, weights, tile_rows: ct.Constant[int]): ...

ROUTE = dataclasses.replace(
    kernel("route", None, ("x",), ("copy",)),
    entry=routing,
    arrays=lambda problem: (
        Array("x", shape(problem), "float32"),
        Array("ids", (64,), "int32", output=True, aligned=False),
        Array("weights", (64,), "float32", output=True, aligned=False),
    ),
    reference=lambda inputs, xp: {
        "ids": np.asarray(inputs["x"]).argmax(1).view(type(inputs["x"])) * 1000,
        "weights": np.asarray(inputs["x"]).max(1).view(type(inputs["x"])),
    },
    tolerance=lambda problem: 0.02,
)
KERNELS = (*KERNELS, ROUTE)
"""


@pytest.mark.parametrize(("off_by", "status"), [(0, "timed"), (1, "wrong"), (5, "wrong"), (-1, "wrong")])
def test_ids_beside_weights_are_compared_exactly(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_by: int, status: str
) -> None:
    """A router's, of which the largest is 63,000: its tolerance is the weights'."""
    (tmp_path / "rows.py").write_text((LIBRARY / "rows.py").read_text() + IDS)

    def route(x: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids = 1000 * x.argmax(1)
        ids[7] += off_by
        return ids, x.max(1) * np.float32(1.001)

    monkeypatch.setitem(COMPUTES, "route", route)
    rig.kernel = "route"
    child, _ = rig.start(tmp_path)
    answer = rig.trial(child, rig.cubin())
    assert answer["status"] == status
    if off_by:
        assert answer["failure"].startswith("the output 'ids' differs in 1 elements; element [7] is ")
        assert answer["failure"].endswith("whole numbers are compared exactly")


@pytest.mark.parametrize("known", [True, False])
def test_lines_that_persist_in_l2_make_nothing_faster(
    gpu: FakeGpu, rig: Rig, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """No flush removes them. A GPU that has none of them is timed as before."""
    if not known:
        monkeypatch.setenv("FAKE_GPU_HAS_NO_PERSISTING_L2", "1")
    gpu.persisting_limit = L2_BYTES if known else 0
    child, _ = rig.start()
    assert rig.trial(child, rig.cubin(persists=True))["samples_us"] == [100.0] * 5


def test_lines_that_persist_already_are_reset_before_rounds(gpu: FakeGpu, rig: Rig) -> None:
    from tilewatch.kernels.gpu import gpu_child

    child, _ = rig.start()
    assert gpu_child._prepared is not None
    gpu.persisting_limit = L2_BYTES  # as host code in the same process may do
    for inputs in gpu_child._prepared.inputs:
        for each in inputs.values():
            gpu.persist(each)
    gpu.persist(gpu_child._prepared.outputs["y"])
    assert rig.trial(child, rig.cubin())["samples_us"] == [100.0] * 5
    assert gpu.persisting_limit == 0
