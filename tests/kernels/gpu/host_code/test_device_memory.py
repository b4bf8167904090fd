"""Memory is compared as words of eight bytes and what is left over, and a difference in either is found."""

from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu

SIZES = [1, 8, 13, 4096 * 8 + 3]
"""No word, one word and nothing more, a word and five bytes, more words than a row of the comparison has."""


@pytest.fixture
def device_memory(gpu: FakeGpu) -> Any:  # noqa: ARG001 - the fake GPU's CuPy is imported
    from tilewatch.kernels.gpu.host_code import device_memory

    return device_memory


@pytest.mark.parametrize("size", SIZES)
def test_one_other_byte_is_found_wherever_it_is(device_memory: Any, size: int) -> None:
    same = np.full(size, 0xA5, np.uint8)
    assert device_memory.is_filled(same, 0xA5)
    assert device_memory.find_fill(same) == 0xA5
    assert device_memory.is_equal(same, same.copy())
    assert not device_memory.is_equal(same, np.append(same, same[:1]))
    for place in {0, size // 2, size - 1}:
        other = same.copy()
        other[place] = 0x25
        assert not device_memory.is_filled(other, 0xA5)
        assert not device_memory.is_equal(same, other)
        assert size == 1 or device_memory.find_fill(other) is None
