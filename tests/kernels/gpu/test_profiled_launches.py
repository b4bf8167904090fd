"""The process that a profiler watches launches each cubin as it was timed, between start and stop."""

from tests.kernels.fixtures.fake_gpu import Rig
from tests.kernels.fixtures.fake_gpu.device import SM_COUNT, FakeGpu
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.gpu.described_launch import TIMES, read_launch


def test_each_launch_is_profiled_with_the_grid_and_arrays_of_its_library(gpu: FakeGpu, rig: Rig) -> None:
    from tilewatch.kernels.gpu import profiled_launches

    child, _ = rig.start()
    cubins = [rig.cubin(4), rig.cubin(8)]
    described = [child.ask({"ask": "describe", **rig.request_of(each)}, deadline_s=1)["launch"] for each in cubins]
    before = len(gpu.launches)
    profiled_launches.launch_each([read_launch(each) for each in described], CubinStore(rig.store_url))
    assert [(each.name, each.grid) for each in gpu.profiled] == [
        *[(rig.kernel, (16, 1, SM_COUNT))] * TIMES,
        *[(rig.kernel, (8, 1, SM_COUNT))] * TIMES,
    ]
    assert gpu.profiled == [each for each in gpu.launches[before:] if each.name == rig.kernel]
