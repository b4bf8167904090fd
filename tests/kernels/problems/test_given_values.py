"""What a file gives for its inputs, and how much of it is too much."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.fixtures import fake_gpu
from tilewatch.kernels.contract import Kernel
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.loading import LibraryKernel, load
from tilewatch.kernels.problems import given_values
from tilewatch.kernels.problems.given_values import list_given


@pytest.fixture
def kernel() -> Kernel:
    loaded = load(Path(fake_gpu.LIBRARY))["softmax"]
    assert isinstance(loaded, LibraryKernel)
    return loaded.kernel


def test_what_counts_is_the_length_of_the_text(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers with many digits are longer than their count says. "[0, 0, 0, 0]" has 12 bytes."""
    monkeypatch.setattr(given_values, "MOST_TEXT_BYTES", 12)
    short = replace(kernel, given=lambda _: {"ends": np.zeros(4, "int32")})
    assert list_given(short, kernel.problems[0]) == {"ends": [0, 0, 0, 0]}
    long = replace(kernel, given=lambda _: {"ends": np.full(4, 1000, "int32")})
    with pytest.raises(LibraryError, match=re.escape("too many numbers: 'ends' 4, 0 MiB as text of at most 0 MiB")):
        list_given(long, kernel.problems[0])
