"""Describes a sweep for the GPU that measures it, and chooses the configs to measure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewatch.db.worker_reads.steps import CompiledConfig, LastSweep, SweepFacts
from tilewatch.kernels import HARNESS
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.measuring.known_counters import Counted
from tilewatch.kernels.results import Params
from tilewatch.kernels.toolchains.versions import MEASURING, versions


@dataclass(frozen=True)
class SweepToMeasure:
    """A sweep with its configs, library and baselines, and with earlier results that need not be measured again."""

    job_key: str
    facts: SweepFacts
    configs: Sequence[CompiledConfig]  # those whose cubins are in the store
    library: str  # the library's folder in the watched repository
    baselines: tuple[str, ...]
    ships: Params | None = None  # the config that the library's host code launches, if it is known
    times_ill: int = 0  # how often this GPU was in quarantine before
    counted: Mapping[str, Counted] = field(default_factory=dict)  # counters that earlier runs read, by launch
    together: Sequence[tuple[str, str, Sequence[str]]] = ()  # kernel, problem and baselines of the submission's sweeps
    last_sweep: LastSweep | None = None

    def choose_configs(self, gpu: Gpu) -> Sequence[CompiledConfig]:
        """Returns the configs to measure: a few if code and software are as in the last sweep, else all."""
        last = self.last_sweep
        here = {each.config_id: each.content_key for each in self.configs if not each.drawn}
        now = {**versions(MEASURING), "harness": HARNESS, "driver": gpu.driver.split(".")[0]}
        if last is None or last.tried != here or not last.timed_again:
            return self.configs
        then = {**last.toolchain, "driver": last.toolchain.get("driver", "").split(".")[0]}
        if any(then.get(name) != now.get(name) for name in (*MEASURING, "harness", "driver")):
            return self.configs
        return [each for each in self.configs if each.drawn or each.config_id in last.timed_again]
