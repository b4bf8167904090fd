"""Arrays of types without a NumPy name: exact decoding, nearest rounding, poison that is NaN."""

from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels.contract import Array

FLOATS = ["float8_e4m3fn", "bfloat16", "float16", "float32"]


@pytest.fixture
def arrays(gpu: FakeGpu) -> Any:  # noqa: ARG001 - the fake GPU's CuPy is imported
    from tilewatch.kernels.gpu import arrays

    return arrays


def device(values: Any) -> Any:
    import cupy

    return cupy.asarray(values)


@pytest.mark.parametrize("dtype", FLOATS)
def test_poison_is_nan_in_every_float_type(arrays: Any, dtype: str) -> None:
    out = arrays.make_poisoned(Array("y", (3, 5), dtype, output=True))
    assert np.isnan(np.asarray(arrays.decode(out, dtype))).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_values_survive_encoding_and_are_rounded_to_nearest(arrays: Any, dtype: str) -> None:
    exact = np.array([1.0, -1.0, 0.5, 1.75, -240.0], np.float32)
    assert np.asarray(arrays.decode(arrays.encode(device(exact), dtype), dtype)).tolist() == exact.tolist()
    step = {"float8_e4m3fn": 2.0**-3, "bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}[dtype]
    near = np.array([1 + 0.4 * step, 1 + 0.6 * step], np.float32)
    found = np.asarray(arrays.decode(arrays.encode(device(near), dtype), dtype)).tolist()
    assert found == ([1.0, 1.0 + step] if dtype != "float32" else near.tolist())


def test_e4m3_is_the_specification_s(arrays: Any) -> None:
    values = arrays.e4m3_values()
    assert (values[0x7E], values[0x01], values[0x38], values[0xB8]) == (448.0, 2.0**-9, 1.0, -1.0)
    assert np.isnan(values[[0x7F, 0xFF]]).all()
    assert np.isfinite(np.delete(values, [0x7F, 0xFF])).all()


def test_scales_are_powers_of_two_by_their_exponent(arrays: Any) -> None:
    raw = arrays.encode(device(np.array([0.5, 1.0, 2.0, 2.9], np.float32)), "float8_e8m0fnu")
    assert raw.tolist() == [126, 127, 128, 129]
    assert np.asarray(arrays.decode(raw, "float8_e8m0fnu")).tolist() == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e8m0fnu"])
def test_random_inputs_hold_no_zeros(arrays: Any, dtype: str) -> None:
    """A zero hides an element that was never read."""
    import cupy

    fill = "scale" if dtype == "float8_e8m0fnu" else "normal"
    raw = arrays.random(Array("x", (256, 257), dtype, fill=fill), cupy.random.default_rng(1))
    values = np.asarray(arrays.decode(raw, dtype))
    assert raw.shape == (256, 257)
    assert (values != 0).all()
    assert np.isfinite(values).all()
    if fill == "normal":
        assert (abs(values.mean()), abs(values.std() - 1)) < (0.02, 0.02)


def test_float32_scales_are_positive_and_near_one(arrays: Any) -> None:
    import cupy

    scales = np.asarray(arrays.random(Array("s", (4096,), "float32", fill="scale"), cupy.random.default_rng(1)))
    assert scales.min() > 0.3
    assert scales.max() < 3
    assert scales.std() > 0.1


def test_an_array_larger_than_a_chunk_is_filled_whole(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    monkeypatch.setattr(arrays, "CHUNK", 100)
    values = np.asarray(arrays.random(Array("x", (7, 50), "float32"), cupy.random.default_rng(1)))
    assert len(set(values.ravel().tolist())) == 350


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int32", np.array([2**31])),
        ("int32", np.array([0.5])),
        ("int32", np.array([np.nan])),
        ("uint8", np.array([-1], np.int8)),
        ("float8_e4m3fn", np.array([256], np.int32)),
    ],
)
def test_a_given_value_that_a_whole_number_does_not_hold_is_a_sentence(
    arrays: Any, dtype: str, values: np.ndarray
) -> None:
    with pytest.raises(arrays.BadValues, match=r"array x holds u?int\d+, and one of its values does not fit into it"):
        arrays.fit(Array("x", (1,), dtype, fill="given"), values)


@pytest.mark.parametrize(
    ("dtype", "values", "fitted"),
    [
        ("int32", np.array([True, False]), [1, 0]),
        ("int32", np.array([3, -4]), [3, -4]),
        ("bfloat16", np.array([0x3F80, 0xFF80], np.uint16), [0x3F80, 0xFF80]),
        ("float16", np.array([0.1, 2.0]), [0.0999755859375, 2.0]),
        ("float32", np.array([1, 2], np.int8), [1.0, 2.0]),
    ],
)
def test_given_values_have_the_type_of_their_array(
    arrays: Any, dtype: str, values: np.ndarray, fitted: list[float]
) -> None:
    made = arrays.fit(Array("x", (2,), dtype, fill="given"), values)
    assert (made.dtype, made.tolist()) == (arrays.RAW[dtype], fitted)


def test_an_unknown_type_is_named(arrays: Any) -> None:
    with pytest.raises(arrays.UnknownType, match="array x: type float4 is not one of float8_e4m3fn"):
        arrays.raw_dtype(Array("x", (1,), "float4"))
