"""Fixtures of the tests of kernels."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.fixtures import fake_gpu
from tests.kernels.fixtures.fake_gpu import Rig
from tests.kernels.fixtures.fake_gpu.device import FakeGpu


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """The fake GPU, as new; `tilewatch.kernels.gpu` can be imported and works on it."""
    yield fake_gpu.install(monkeypatch)
    fake_gpu.end_process()


@pytest.fixture
def rig(gpu: FakeGpu, tmp_path: Path) -> Rig:  # noqa: ARG001 - the GPU comes first
    return Rig(tmp_path)
