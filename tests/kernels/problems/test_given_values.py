"""What a file gives for its inputs: it comes through JSON as it was, of some types alone, and not too much of it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from tests.kernels.fixtures import fake_gpu
from tilewatch.kernels.catalog.loading import LibraryKernel, load
from tilewatch.kernels.contract import Kernel
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.problems import given_values
from tilewatch.kernels.problems.given_values import GivenType, decode_values, encode_given

NUMBERS = np.array([[0, 1, 2], [100, 127, 3]])


@pytest.fixture
def kernel() -> Kernel:
    loaded = load(Path(fake_gpu.LIBRARY))["softmax"]
    assert isinstance(loaded, LibraryKernel)
    return loaded.kernel


def encode(kernel: Kernel, **given: np.ndarray) -> dict[str, Any]:
    return encode_given(replace(kernel, given=lambda _: given), kernel.problems[0])


@pytest.mark.parametrize(
    "values",
    [
        *(NUMBERS.astype(dtype) for dtype in get_args(GivenType)),
        np.array([np.nan, -0.0, np.inf, 1e-45], "float32"),
        np.array([2**64 - 1, 0], "uint64"),
        np.array([-(2**63), 2**63 - 1], "int64"),
        np.asfortranarray(NUMBERS),
        NUMBERS[:, ::2],
        np.broadcast_to(np.array([True, False]), (3, 2)),
        NUMBERS.astype(">i4"),
    ],
    ids=[*get_args(GivenType), "no numbers", "large", "small", "by columns", "with gaps", "repeated", "big-endian"],
)
def test_values_are_the_same_bit_by_bit_when_they_are_read(kernel: Kernel, values: np.ndarray) -> None:
    read = decode_values("ends", json.loads(json.dumps(encode(kernel, ends=values)))["ends"])
    native = values.astype(values.dtype.newbyteorder("="))
    assert (read.dtype, read.shape, read.tobytes()) == (native.dtype, native.shape, native.tobytes())


def test_a_kernel_that_gives_nothing_has_no_values(kernel: Kernel) -> None:
    assert encode_given(kernel, kernel.problems[0]) == {}


def test_what_counts_is_the_bytes_of_all_values(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_values, "MOST_BYTES", 2 << 20)
    rows, ends = np.zeros(1 << 20, "bool"), np.zeros(1 << 18, "int32")
    assert list(encode(kernel, rows=rows, ends=ends)) == ["rows", "ends"]
    sentence = "too many numbers: 'rows' 1,048,576, 'ends' 262,145, 3 MiB of at most 2 MiB; give fewer"
    with pytest.raises(LibraryError, match=re.escape(sentence)):
        encode(kernel, rows=rows, ends=np.zeros((1 << 18) + 1, "int32"))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("complex64", "complex64"), ("object", "object"), ("M8[s]", "datetime64[s]"), ("longdouble", "float128")],
)
def test_another_type_is_named_with_its_array(kernel: Kernel, dtype: str, name: str) -> None:
    sentence = f"kernel softmax: `given` gives 'ends' as {name}, which is none of bool, int8, "
    with pytest.raises(LibraryError, match=re.escape(sentence)):
        encode(kernel, rows=np.zeros(4, "int32"), ends=np.zeros(4, dtype))
