"""Provides a GPU of this machine for comparisons: races by kernels/measuring/sweep.py, launches by replay.py."""

from collections.abc import Iterator, Sequence

from tilewatch.errors import ExpectedError
from tilewatch.kernels import device
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.comparing.targets import Library, Target
from tilewatch.kernels.measuring.measure import GpuMissing, MeasureFailed, usable_gpu
from tilewatch.kernels.measuring.replay import Launch, ProcessesAhead, ReplayRequest, ReplaySide, find_others, launches
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed, sweep
from tilewatch.kernels.results import Cubin, Params

NO_CUPTI = (
    "CUPTI does not record kernel times here, and CUDA events add 2 to 3 us to each: install the packages of the extra "
    "'gpu' and see that the driver lets everybody profile, or pass --events to compare by events"
)


class NoCupti(ExpectedError):
    """Kernel times are not reliable on this machine; the message says what to do."""


class RealBench:
    """Races and launches on a GPU of this machine, in one process after the other."""

    def __init__(self, gpu_index: int, store_url: str, *, may_use_events: bool = False) -> None:
        self._index, self._store_url, self._may_use_events = gpu_index, store_url, may_use_events
        self._gpu: device.Gpu | None = None
        self._processes: ProcessesAhead | None = None
        self._not_apart: dict[Target, str] = {}
        self._launches: dict[tuple[Target, str, str], Iterator[Launch]] = {}
        self.gpu_s = 0.0

    def race(self, target: Target, library: Library, cubins: Sequence[Cubin]) -> tuple[Params, ...]:
        gpu = self.usable(target.arch)
        setup = GpuSetup(
            library.folder, target.kernel, target.problem, self._store_url, {"CUDA_VISIBLE_DEVICES": gpu.uuid}
        )
        try:
            child = GpuChild(setup)
        except SweepFailed as error:
            raise MeasureFailed(str(error)) from None
        try:
            return sweep(child, cubins, on_trial=lambda _: None).tie
        except (SweepFailed, ChildDied, ChildHung) as error:
            raise MeasureFailed(f"racing {target.kernel} on {target.problem} stopped: {error}") from None
        finally:
            child.close()
            self.gpu_s += child.gpu_s

    def launch(self, target: Target, base: ReplaySide, head: ReplaySide) -> tuple[float, float]:
        key = (target, base.cubin.content_key, head.cubin.content_key)
        if key not in self._launches:
            gpu = self.usable(target.arch)
            request = ReplayRequest(
                kernel=target.kernel,
                problem=target.problem,
                arch=target.arch,
                store_url=self._store_url,
                base=base,
                head=head,
                launches=0,
                gpu_index=self._index,
            )
            if self._processes is None:
                self._processes = ProcessesAhead(request.head.library, gpu, others=find_others(request))
            self._launches[key] = launches(request, gpu, self._processes)
        launch = next(self._launches[key])
        self._not_apart[target] = launch.not_apart
        self.gpu_s += launch.gpu_s
        if launch.timer != "cupti" and not self._may_use_events:
            raise NoCupti(NO_CUPTI)
        return launch.base_us, launch.head_us

    def find_not_apart(self, target: Target) -> str:
        return self._not_apart.get(target, "")

    def close(self) -> None:
        """Ends the processes that were started for the next launches."""
        if self._processes is not None:
            self._processes.close()

    def usable(self, arch: str) -> device.Gpu:
        """Returns the GPU if no other process uses it. Checked only the first time, because our own processes use it
        later. Raises GpuMissing or GpuBusy."""
        if self._gpu is None:
            self._gpu = usable_gpu(self._index, arch)
        return self._gpu


def find_gpu(gpu_index: int) -> device.Gpu:
    """Returns this machine's GPU of that index. Raises GpuMissing, also for a model that cuTile cannot compile for."""
    here = device.gpus()
    if not 0 <= gpu_index < len(here):
        raise GpuMissing(
            f"there is no GPU {gpu_index} on this machine: it has {len(here)} NVIDIA GPUs; "
            "`tilewatch compare --static`, and `tilewatch toolchain compare` without --gpu, need none"
        )
    if here[gpu_index].model is None:
        raise GpuMissing(f"GPU {gpu_index} is an {here[gpu_index].name}, and cuTile compiles for sm_80 and later")
    return here[gpu_index]
