"""DeepGEMM is told by an index per row what our kernels are told by ends."""

from tests.kernels.fixtures.fake_gpu.device import FakeGpu


def test_each_row_before_an_end_gets_its_group_and_padding_none(gpu: FakeGpu) -> None:  # noqa: ARG001 - a fake CuPy
    from tilewatch.kernels.baselines.groups import find_groups

    found = find_groups([100, 128, 300], 512).tolist()
    assert found == [0] * 100 + [-1] * 28 + [2] * 172 + [-1] * 212
