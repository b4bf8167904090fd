"""The names that a library file may give are those that a GPU process can make."""

from tests.kernels.fixtures.fake_gpu.device import FakeGpu
from tilewatch.kernels import tile_table
from tilewatch.kernels.baseline_names import NAMES


def test_each_name_has_a_maker_and_each_maker_a_name(gpu: FakeGpu) -> None:  # noqa: ARG001 - it brings CuPy
    from tilewatch.kernels import baselines

    assert (*baselines.MAKERS, tile_table.BASELINE) == NAMES
