"""Defines how a comparison uses a GPU."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from tilewatch.kernels import device
from tilewatch.kernels.comparing.baseline_bench import BaselineWork
from tilewatch.kernels.measuring.pair_bench import LaunchResult, PairBench, PairWork
from tilewatch.kernels.results import Cubin, Params

Work = TypeVar("Work", bound=PairWork | BaselineWork)


class LaunchBench(Protocol[Work]):
    """A GPU that times pairs of cubins, or of baselines."""

    def launch_each(self, works: Sequence[Work]) -> Iterator[tuple[Work, LaunchResult]]:
        """Times each pair once and yields the pair with its result."""


class GpuBench(LaunchBench[PairWork], Protocol):
    """A GPU that can also find the fastest configs of one version."""

    def race(
        self, library: Path, kernel: str, problem: str, store_url: str, cubins: Sequence[Cubin]
    ) -> tuple[Params, ...]:
        """Returns the fastest config and all ties, or () if no config gives right results. May raise MeasureFailed."""


def open_bench(gpu: device.Gpu, store_url: str, *, may_use_events: bool = False) -> PairBench:
    """Returns a bench on a GPU. Call its `close` at the end."""
    assert gpu.model is not None
    return PairBench(gpu.index, gpu.model.arch, store_url, may_use_events=may_use_events)
