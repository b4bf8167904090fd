"""A launch that may begin early is launched as one, and its errors are those of any launch."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels.gpu.host_code.described_operator import Number, OneLaunch, View, read_one_launch

ROWS = View(0, 0, (4, 8), (8, 1), "float32")
FUNCTION = SimpleNamespace(kernel=SimpleNamespace(ptr=0x5000))


class Driver:
    """Answers `status` to each launch, and keeps what it was given."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.functions = status, list[int]()

    def cuLaunchKernelEx(self, config: Any, function: ctypes.c_void_p, values: Any, extra: None) -> int:
        assert config
        assert values[0]
        assert extra is None
        self.functions.append(function.value or 0)
        return self.status


def make(gpu: FakeGpu, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Any:
    assert gpu
    import cupy

    from tilewatch.kernels.gpu.host_code import dependent_launch

    monkeypatch.setattr(dependent_launch, "cupy", cupy)
    monkeypatch.setattr(dependent_launch, "_load_driver", lambda: driver)
    return dependent_launch.make_launch(FUNCTION, (4, 1, 1), (np.float32(1.5),))


def test_each_call_launches_once(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    launch = make(gpu, driver, monkeypatch)
    launch()
    launch()
    assert driver.functions == [0x5000, 0x5000]


def test_what_the_driver_refuses_is_an_error_of_cupy(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = make(gpu, Driver(status=1), monkeypatch)
    import cupy

    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="1"):
        launch()


@pytest.mark.parametrize("is_dependent", [False, True])
def test_a_described_launch_is_launched_as_host_code_launches_it(
    gpu: FakeGpu, is_dependent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu
    from tilewatch.kernels.gpu.host_code import dependent_launch, prepared_launches

    early: list[Any] = []
    monkeypatch.setattr(dependent_launch, "make_launch", lambda *given: early.append(given))
    monkeypatch.setattr(prepared_launches.launched_arrays, "list_values", lambda *_: ("values",))
    launch = OneLaunch("a" * 64, "add_rows", (4, 1, 1), (ROWS, Number(2, "int32")), is_dependent)
    plainly: list[Any] = []
    made = prepared_launches._make_launch(lambda *given: plainly.append(given), launch, [])
    if made is not None:
        made()
    assert ([each[1:] for each in early], plainly) == (
        ([((4, 1, 1), ("values",))], []) if is_dependent else ([], [((4, 1, 1), (1,), ("values",))])
    )


@pytest.mark.parametrize("is_dependent", [False, True])
def test_the_description_of_a_launch_says_how_it_is_launched(is_dependent: bool) -> None:
    described = {"key": "a", "symbol": "s", "grid": [1, 1, 1], "arguments": []}
    found = read_one_launch({**described, "programmatic_dependent_launch": is_dependent})
    assert found.programmatic_dependent_launch == is_dependent
