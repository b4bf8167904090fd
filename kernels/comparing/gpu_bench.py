"""Defines how a comparison uses a GPU, and opens this machine's GPU for it (kernels/measuring/pair_bench.py)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from tilewatch.kernels import device
from tilewatch.kernels.comparing.baseline_bench import BaselineWork
from tilewatch.kernels.measuring.pair_bench import LaunchResult, PairBench, PairWork
from tilewatch.kernels.results import Cubin, Params

Work = TypeVar("Work", bound=PairWork | BaselineWork)


class LaunchBench(Protocol[Work]):
    """A GPU that times pairs of cubins, or baselines."""

    def launch_each(self, works: Sequence[Work]) -> Iterator[tuple[Work, LaunchResult]]:
        """Times each pair once and yields it with its result. Stops timing if the caller stops iterating."""


class GpuBench(LaunchBench[PairWork], Protocol):
    """A GPU that can also find the fastest configs of one side."""

    def race(
        self, library: Path, kernel: str, problem: str, store_url: str, cubins: Sequence[Cubin]
    ) -> tuple[Params, ...]:
        """Checks and times configs of one side. Returns the fastest config, then the configs that tie with it. Returns
        an empty tuple if no config gives right results. Raises MeasureFailed if the GPU process fails."""


def open_bench(gpu: device.Gpu, store_url: str, *, may_use_events: bool = False) -> PairBench:
    """Returns a bench on a GPU that `find_gpu` returned. The bench's `close` ends the bench's processes."""
    assert gpu.model is not None
    return PairBench(gpu.index, gpu.model.arch, store_url, may_use_events=may_use_events)
