"""Guards around arrays on a fake GPU: what was written into one is found, named, restored, and blamed on who did it."""

from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu import InProcessChild, Rig
from tests.kernels.fixtures.fake_gpu.device import FakeGpu


@pytest.fixture
def module(gpu: FakeGpu) -> Any:  # noqa: ARG001 - the fake GPU's CuPy is imported
    from tilewatch.kernels.gpu import guards

    return guards


def around(array: Any) -> tuple[Any, int]:
    """Returns the allocation as bytes, and where in it the array begins."""
    owner = array
    while owner.base is not None:
        owner = owner.base
    return owner, array.data.ptr - owner.__array_interface__["data"][0]


@pytest.mark.parametrize("length", [1, 5, 4096, 3 << 19])
def test_the_bytes_next_to_an_array_are_guarded_and_its_own_are_not(module: Any, length: int) -> None:
    guards = module.Guards()
    arrays = [guards.make_empty(f"'{name}'", (length,), np.uint16) for name in "xy"]
    for each in arrays:
        each[...] = 7
    guards.restore()
    assert guards.restore() is None, "they are as they must be"
    for array, name in zip(arrays, "xy", strict=True):
        assert (array == 7).all()
        array[...] = 9
        assert guards.restore() is None, "an array may be written"
        array[...] = 7
        memory, start = around(array)
        end = start + array.nbytes
        for at, sentence in (
            (start - 1, f"1 byte in front of '{name}', the first one 1 before its start"),
            (start - module.LEAST_GUARD, f"1 byte in front of '{name}', the first one 512 before its start"),
            (end, f"1 byte behind '{name}', the first one 0 after its end"),
            (end + module.LEAST_GUARD - 8, f"1 byte behind '{name}', the first one 504 after its end"),
        ):
            memory[at] ^= 0xFF
            assert guards.restore() == sentence
            assert guards.restore() is None, "restored"
    memory, start = around(arrays[0])
    memory[start - 400 : start - 200] ^= 0xFF
    memory[start - 1] ^= 0xFF
    around(arrays[1])[0][around(arrays[1])[1] - 1] ^= 0xFF
    assert guards.restore() == "201 bytes in front of 'x', the first one 400 before its start", "where most are"


def test_arrays_lie_at_the_same_multiples_as_without_guards_and_guards_take_little_memory(module: Any) -> None:
    guards = module.Guards()
    for nbytes in (1, 700, 4096, 1 << 20, (1 << 20) + 2, 5 << 20):
        array = guards.make_empty("'x'", (nbytes,), np.uint8)
        memory, _ = around(array)
        is_large = nbytes > 1 << 20
        assert array.data.ptr % (2 << 20 if is_large else 512) == 0
        page = 2 << 20 if is_large else 512
        assert memory.size - nbytes - page <= max(2 * 512, min(nbytes // 4 + 1024, 128 << 10))


def test_each_run_has_other_guards(module: Any) -> None:
    assert len({module.Guards()._seed for _ in range(3)}) == 3


def test_what_a_config_wrote_before_it_failed_is_not_blamed_on_those_that_come(rig: Rig) -> None:
    child, _ = rig.start()
    assert rig.trial(child, rig.cubin(), 0)["status"] == "timed"
    failed = rig.cubin(2, fault="no record", writes="behind")
    assert rig.trial(child, failed, 1)["status"] == "launch_error"
    answer = child.ask({"ask": "time", "ids": [0], "samples": 5}, deadline_s=1)
    assert answer == {"samples_us": [[100.0] * 5], "seen": answer["seen"]}


def test_an_input_that_a_config_changed_while_its_output_went_wrong_is_restored(rig: Rig) -> None:
    from tilewatch.kernels.gpu import gpu_child

    child, _ = rig.start()
    prepared = gpu_child._prepared
    assert prepared is not None
    before = prepared.inputs[0]["x"].tobytes()
    cheat = rig.cubin(fault="marks its input", fault_after=1, writes="behind", writes_after=1)
    assert rig.trial(child, cheat, samples=1)["failure"].startswith("when it was timed, it wrote outside of its arrays")
    assert prepared.inputs[0]["x"].tobytes() == before


def test_of_configs_that_are_timed_together_each_is_asked_whether_it_wrote_outside(rig: Rig) -> None:
    """Both were checked by another process before."""
    child, _ = rig.start()
    for identity, fields in enumerate(({}, {"writes": "in front"})):
        cubin = rig.cubin(1, 100.0 + identity, **fields)
        child.ask({"ask": "load", "id": identity, **rig.request_of(cubin)}, deadline_s=1)
    together = child.ask({"ask": "rounds", "ids": [0, 1], "names": [], "rounds": 20, "seed": 1}, deadline_s=1)
    assert together["wrong"].startswith("when it was timed, it wrote outside of its arrays: 4 bytes in front of 'x'")
    alone = [child.ask({"ask": "time", "ids": [each], "samples": 5}, deadline_s=1) for each in (0, 1)]
    assert ["wrong" in each for each in alone] == [False, True]


def test_guards_are_compared_once_after_the_last_round(gpu: FakeGpu, rig: Rig) -> None:
    child, _ = rig.start()
    for identity in (0, 1):
        rig.trial(child, rig.cubin(1, 100.0 + identity), identity)
    gpu.guards_restored_at.clear()
    began = len(gpu.launches)
    child.ask({"ask": "rounds", "ids": [0, 1], "names": [], "rounds": 20, "seed": 1}, deadline_s=1)
    assert [each - began for each in gpu.guards_restored_at] == [40]


def test_a_baseline_that_writes_outside_of_the_arrays_is_missing(
    gpu: FakeGpu, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def add(x: Any, y: Any, out: Any) -> None:
        gpu.run("torch_add", 120.0, [x.array, y.array])
        out.array[...] = x.array + y.array
        memory, start = around(out.array)
        memory[start + out.array.nbytes] ^= 0xFF

    child: InProcessChild
    child, _ = rig.start()
    monkeypatch.setattr(torch, "add", add)
    answer = child.ask({"ask": "baselines", "names": ["torch_residual_add"]}, deadline_s=1)["baselines"]
    assert answer["torch_residual_add"]["missing"] == (
        "it writes outside of its arrays: 1 byte behind 'y', the first one 0 after its end"
    )
    assert rig.trial(child, rig.cubin())["status"] == "timed"
