"""A measure job's sweep, as a GPU needs it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewatch.db.worker_reads.steps import CompiledConfig, SweepFacts
from tilewatch.kernels.measuring.known_counters import Counted
from tilewatch.kernels.results import Params


@dataclass(frozen=True)
class SweepToMeasure:
    """A sweep with what measuring it needs. `configs` are those whose cubins are in the store; `library` is the folder
    of the watched repository. `ships` is the config that the library ships, if it is known, and `times_ill` how often
    this GPU was in quarantine before. `counted` are counters that earlier runs read, by their launches. `together` are
    kernel, problem and baselines of all sweeps of the submission."""

    job_key: str
    facts: SweepFacts
    configs: Sequence[CompiledConfig]
    library: str
    baselines: tuple[str, ...]
    ships: Params | None = None
    times_ill: int = 0
    counted: Mapping[str, Counted] = field(default_factory=dict)
    together: Sequence[tuple[str, str, Sequence[str]]] = ()
