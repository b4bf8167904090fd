"""Defines the sweep of a measure job, as a GPU backend needs it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewatch.db.worker_reads.steps import CompiledConfig, SweepFacts
from tilewatch.kernels.measuring.known_counters import Counted
from tilewatch.kernels.results import Params


@dataclass(frozen=True)
class SweepToMeasure:
    """A sweep with everything that its measurement needs."""

    job_key: str
    facts: SweepFacts
    configs: Sequence[CompiledConfig]  # those whose cubins are in the store
    library: str  # the library's folder in the watched repository
    baselines: tuple[str, ...]
    ships: Params | None = None  # the config that the library's host code launches, if it is known
    times_ill: int = 0  # how often this GPU was in quarantine before
    counted: Mapping[str, Counted] = field(default_factory=dict)  # counters that earlier runs read, by launch
    together: Sequence[tuple[str, str, Sequence[str]]] = ()  # kernel, problem and baselines of the submission's sweeps
