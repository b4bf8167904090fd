"""Source that makes an array of the host as a recorded call got it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewatch.kernels.proposing.call_text import CallText, NotWritable


def make(value: np.ndarray) -> Any:
    """Runs the source that is written for an array, with the sizes of its problem, and returns what it makes."""
    text = CallText()
    name = text.write(value, "x")
    names: dict[str, Any] = {"p": SimpleNamespace(seed=0, **{each: size for size, each in text.sizes.items()})}
    exec("import numpy\n" + "\n".join(text.lines), names)  # noqa: S102 - our own source
    return names[name]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint16", "bool"])
def test_an_array_has_the_shape_and_the_type_of_the_recorded_one(dtype: str) -> None:
    value = (np.arange(600).reshape(20, 30) % 7).astype(dtype)
    made = make(value)
    assert (made.shape, made.dtype) == (value.shape, value.dtype)
    assert "float" in dtype or (made.min(), made.max()) == (value.min(), value.max())


def test_few_whole_numbers_are_those_of_the_recorded_call() -> None:
    assert make(np.array([[3, 1], [4, 1]], np.int32)).tolist() == [[3, 1], [4, 1]]


def test_an_array_of_objects_has_no_source() -> None:
    with pytest.raises(NotWritable, match=r"it takes an array of object in shape \(1,\)"):
        make(np.array([None]))
