"""The script that times two cubins: what it says of the times of its processes, and the values that it makes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY
from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels.catalog import loading
from tilewatch.kernels.catalog.description import describe
from tilewatch.kernels.comparing.toolchains import time_pair
from tilewatch.kernels.comparing.toolchains.time_pair import PROCESSES, REST_EVERY_S, REST_S, ROUNDS, WARM_UP_ROUNDS


def test_the_difference_is_the_median_of_the_processes_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([(100.0, 104.0, 0.0), (200.0, 220.0, 0.001), (100.0, 90.0, 0.0)])

    def answer(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(stdout=json.dumps(next(times)))

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(sys, "argv", ["time_pair.py", "3"])
    time_pair.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  2: base 200.00 us, head 220.00 us, head / base 1.1000, outputs 0.001 apart"
    assert lines[3] == "head takes +4.00 % (0.9000 to 1.1000)"


def test_the_script_starts_its_processes_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []

    def answer(command: list[str], **options: object) -> SimpleNamespace:
        assert options == {"capture_output": True, "text": True, "check": True}
        commands.append(command)
        return SimpleNamespace(stdout="[100.0, 100.0, 0.0]")

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(sys, "argv", ["time_pair.py"])
    time_pair.main()
    assert commands == [[sys.executable, time_pair.__file__, "--one"]] * PROCESSES
    assert len(capsys.readouterr().out.splitlines()) == PROCESSES + 1


Case = Callable[..., list[float]]


@pytest.fixture
def time_case(
    tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Case:
    """Times two cubins of a kernel on the fake GPU as one process of the script does. Each of their launches changes
    `total` in place."""
    monkeypatch.setattr(loading, "_libraries", {})  # a library with files of the same names may have been loaded since
    loaded = loading.load(LIBRARY)["accumulate"]
    assert isinstance(loaded, loading.LibraryKernel)
    launch = describe(loaded, loaded.kernel.problems[0], {"tile_rows": 1}, "sm_90")["launch"]
    dtypes = {each["name"]: each["dtype"] for each in launch["arguments"]}
    symbols = {"base": "of_base", "head": "of_head"}
    (tmp_path / "case.json").write_text(json.dumps({**launch, "dtypes": dtypes, "symbols": symbols}))
    monkeypatch.setattr(time_pair, "HERE", tmp_path)
    monkeypatch.setattr(time_pair, "time", SimpleNamespace(sleep=gpu.sleep))
    monkeypatch.setattr(sys, "argv", ["time_pair.py", "--one"])

    def time_one(base_us: float, head_us: float, **of_head: Any) -> list[float]:
        monkeypatch.setattr(sys.modules["cupy"].RawModule, "_by_path", {})  # as in a fresh process
        for side, time_us, faults in (("base", base_us, {}), ("head", head_us, of_head)):
            cubin = {"symbol": symbols[side], "computes": "accumulate", "tile_rows": 1, "time_us": time_us, **faults}
            (tmp_path / f"{side}.cubin").write_text(json.dumps(cubin))
        time_pair.main()
        found: list[float] = json.loads(capsys.readouterr().out)
        return found

    return time_one


def test_each_side_is_timed_without_its_arrays_in_l2_in_either_order(time_case: Case, gpu: FakeGpu) -> None:
    base_us, head_us, difference = time_case(100.0, 110.0)
    assert (base_us, head_us, difference) == (pytest.approx(100, abs=3), pytest.approx(110, abs=3), 0.0)
    launched = [each.name for each in gpu.launches if each.name.startswith("of_")]
    assert launched[:2] == ["of_base", "of_head"], "compared before they are timed"
    timed = launched[2:]
    assert len(timed) == 2 * (WARM_UP_ROUNDS + ROUNDS)
    assert timed == ["of_head", "of_base", "of_base", "of_head"] * (len(timed) // 4)


def test_the_first_rounds_are_not_timed(time_case: Case, gpu: FakeGpu) -> None:
    """A GPU that was at rest has low clocks at first. Here it has them for half of the rounds that count too."""
    slow = 2 * (1 + WARM_UP_ROUNDS + ROUNDS // 2)
    gpu.drift = lambda number: 3.0 if number < slow else 1.0
    base_us, head_us, _ = time_case(100.0, 100.0)
    assert (base_us, head_us) == (pytest.approx(200, abs=3), pytest.approx(200, abs=3))


def test_a_gpu_rests_before_its_power_cap_lowers_clocks(time_case: Case, gpu: FakeGpu) -> None:
    gpu.power_cap = True
    base_us, head_us, _ = time_case(1000.0, 1000.0)
    assert (base_us, head_us) == (pytest.approx(1000, rel=0.01), pytest.approx(1000, rel=0.01))
    worked_s = 2 * (WARM_UP_ROUNDS + ROUNDS) * 0.001
    assert set(gpu.slept_s) == {REST_S}
    assert worked_s / (REST_EVERY_S + 0.003) <= len(gpu.slept_s) <= worked_s / REST_EVERY_S


def test_an_output_that_differs_is_seen_though_the_kernel_changes_it_in_place(time_case: Case) -> None:
    assert time_case(100.0, 100.0)[2] == 0.0
    assert time_case(100.0, 100.0, fault="off", off_by=1000.0)[2] > 10


class NumpyAsCupy:
    """The functions of CuPy that make and compare values, by NumPy's functions of the same names."""

    def __init__(self) -> None:
        chance = np.random.default_rng(1)
        self.random = SimpleNamespace(
            standard_normal=lambda shape, dtype: chance.standard_normal(shape).astype(dtype),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def read_fp8(codes: Any) -> Any:
    """The values of float8_e4m3fn: a sign, 4 bits of exponent biased by 7, 3 bits of fraction."""
    exponent, fraction = ((codes >> 3) & 15).astype(float), (codes & 7) / 8
    return np.where(codes & 0x80, -1.0, 1.0) * 2.0 ** (exponent - 7) * (1 + fraction)


READERS = {
    "float8_e4m3fn": (read_fp8, 1 / 8),
    "float8_e8m0fnu": (lambda codes: 2.0 ** (codes.astype(float) - 127), 2**0.5 - 1),
    "bfloat16": (lambda codes: time_pair._as_float(codes, "bfloat16"), 1 / 128),
    "float16": (lambda values: time_pair._as_float(values, "float16"), 1 / 1024),
}


@pytest.mark.parametrize("dtype", READERS)
def test_values_of_a_narrow_type_are_normal_ones_rounded_to_it(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    argument = {"shape": [64, 64], "dtype": dtype, "values": None, "output": False}
    fill = "scale" if dtype == "float8_e8m0fnu" else "normal"
    monkeypatch.setitem(sys.modules, "cupy", NumpyAsCupy())
    read, off = READERS[dtype]
    found = np.asarray(read(time_pair._make_array({**argument, "fill": fill})))
    monkeypatch.setitem(sys.modules, "cupy", NumpyAsCupy())
    wanted = time_pair._make_array({**argument, "dtype": "float32", "fill": "normal"})
    wanted = np.exp2(wanted) if fill == "scale" else wanted
    normal = np.abs(wanted) >= 2.0**-6  # the least of float8_e4m3fn that is not subnormal
    assert np.abs(found / wanted - 1)[normal].max() <= off * 1.001
    assert normal.mean() > 0.9


@pytest.mark.parametrize(("dtype", "spread"), [("float32", 0.25), ("float16", 0.25), ("float8_e8m0fnu", 1.0)])
def test_scales_are_powers_of_two_that_vary_less_unless_their_type_has_no_others(
    monkeypatch: pytest.MonkeyPatch, dtype: str, spread: float
) -> None:
    argument = {"shape": [64, 64], "dtype": dtype, "values": None, "output": False, "fill": "scale"}
    monkeypatch.setitem(sys.modules, "cupy", NumpyAsCupy())
    made = time_pair._make_array(argument)
    logs = made.astype(float) - 127 if dtype == "float8_e8m0fnu" else np.log2(made.astype(float))
    assert logs.mean() == pytest.approx(0.0, abs=0.1)
    assert logs.std() == pytest.approx(spread, rel=0.1)


def test_an_output_is_zero_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", NumpyAsCupy())
    for dtype in ("float32", "bfloat16", "float8_e4m3fn", "int32"):
        argument = {"shape": [2, 3], "dtype": dtype, "values": None, "output": True, "fill": "normal"}
        made = time_pair._make_array(argument)
        assert (made.shape, made.dtype, made.any()) == ((2, 3), time_pair.RAW.get(dtype, dtype), False)


def test_an_argument_is_its_pointer_its_shape_and_its_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", NumpyAsCupy())
    array = {"name": "a", "shape": [2, 3, 5], "dtype": "float32"}
    assert time_pair._list_values(array, {"a": "pointer"}) == ["pointer", 2, 3, 5, 15, 5, 1]
    assert time_pair._list_values({"dtype": "int32", "value": 7}, {}) == [7]


def test_outputs_differ_by_a_share_of_the_largest_of_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", NumpyAsCupy())
    base, head = np.array([1.0, -4.0, np.nan]), np.array([1.5, -4.25, np.nan])
    assert time_pair._compare([{"c": base}, {"c": head}], "c") == 0.125
    assert time_pair._compare([{"c": head}, {"c": base}], "c") == pytest.approx(0.5 / 4.25)
    assert time_pair._compare([{"c": np.zeros(2)}, {"c": np.zeros(2)}], "c") == 0.0


def test_numbers_that_only_one_output_has_are_no_equality(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN of the head alone was passed over, and a miscompiled pair was "0 apart"."""
    monkeypatch.setitem(sys.modules, "cupy", NumpyAsCupy())
    for value in (np.nan, np.inf):
        alone, both = np.array([1.0, value]), np.array([1.25, value])
        with np.errstate(invalid="ignore"):
            assert time_pair._compare([{"c": np.array([1.0, 2.0])}, {"c": alone}], "c") == np.inf
            assert time_pair._compare([{"c": alone}, {"c": np.array([1.0, 2.0])}], "c") == np.inf
            assert time_pair._compare([{"c": alone}, {"c": both}], "c") == 0.25
