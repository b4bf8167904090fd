"""Times two versions of a baseline in alternation on this machine's GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tilewatch.kernels import device
from tilewatch.kernels.measuring.baseline_process import BaselineProcess
from tilewatch.kernels.measuring.pair_bench import COMPARED, Launched, LaunchFailed, LaunchResult
from tilewatch.kernels.measuring.sweep import NO_ROOM, GpuSetup

BLOCKS = 5
"""Number of blocks of rounds that each side's process times in a launch. The first block warms clocks and caches."""


@dataclass(frozen=True)
class BaselineWork:
    """A baseline to time in two versions. `base` and `head` are folders of packages; None means the installed ones."""

    kernel: str
    problem: str
    baseline: str
    base: Path | None
    head: Path | None
    launches: int = 0
    label: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kernel, self.problem, self.label


@dataclass(frozen=True)
class BaselineBench:
    """Times two versions of baselines beside each other on one GPU."""

    library: Path
    gpu: device.Gpu
    store_url: str

    def launch_each(self, works: Sequence[BaselineWork]) -> Iterator[tuple[BaselineWork, LaunchResult]]:
        """Times both versions of each baseline once, in new processes."""
        for work in works:
            yield work, self._launch(work)

    def _launch(self, work: BaselineWork) -> LaunchResult:
        environment = {"CUDA_VISIBLE_DEVICES": self.gpu.uuid}
        setup = GpuSetup(self.library, work.kernel, work.problem, self.store_url, environment=environment)
        named = {work.baseline: work.baseline}
        sides = [BaselineProcess(replace(setup, packages=each), named, {}) for each in (work.base, work.head)]
        samples: tuple[list[float], list[float]] = ([], [])
        try:
            for block in range(BLOCKS):
                for side in (0, 1) if block % 2 else (1, 0):
                    timed, _ = sides[side].time_block(COMPARED.least, work.launches)
                    samples[side].extend(timed.get(work.baseline, ()) if block else ())
            for process, name in zip(sides, ("base", "head"), strict=True):
                if (missing := process.details[work.baseline].get("missing")) is not None:
                    failure = f"{work.baseline} of the {name} does not run: {missing}"
                    return LaunchFailed(failure, name == "head", is_final=NO_ROOM not in missing.lower())
        finally:
            for process in sides:
                process.close()
        return Launched(median(samples[0]), median(samples[1]))
