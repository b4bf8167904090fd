"""Declares what the GPU child needs of a prepared problem."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tilewatch.kernels.baselines.baseline import BaselineLaunch
from tilewatch.kernels.gpu import timing
from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.gpu.host_code.described_run import DescribedRun
from tilewatch.kernels.gpu.result_error import ResultError
from tilewatch.kernels.gpu.rounds import Entry
from tilewatch.kernels.gpu.telemetry import Telemetry


class Prepared(Protocol):
    """One problem on this GPU: of a library file's kernel (PreparedProblem), of a described watched operator
    (PreparedLaunches), or of a watched operator that this process runs (PreparedOperator)."""

    timer: timing.Timer
    telemetry: Telemetry
    sm_count: int
    loaded: dict[int, Any]
    baselines: dict[str, tuple[BaselineLaunch, tuple[str, ...]]]

    @property
    def tolerance(self) -> float | None:
        """The tolerance that the library states. None if each result has the tolerance of its type."""

    @property
    def element_bytes(self) -> int: ...
    @property
    def work(self) -> Mapping[str, Any]:
        """Returns the problem's operations, the bytes that must move, and its input types: flops, bytes, dtypes."""

    @property
    def input_sets(self) -> int: ...
    @property
    def checked_sets(self) -> Sequence[int]:
        """The numbers of the input sets that have a reference."""

    def find_misfit(self, request: Mapping[str, Any]) -> str | None:
        """Returns why a side of a replay cannot be compared with the prepared library, None if it can."""

    def load(self, request: Mapping[str, Any]) -> Any:
        """Loads the machine code of a config."""

    def verify(self, config: Any, turn: int) -> tuple[float, ResultError]:
        """Launches a config once on an input set, and returns its microseconds and its error."""

    def keep(self, identity: int, config: Any) -> None:
        """Keeps a checked config for rounds."""

    def entry(self, identity: int) -> Entry: ...

    def describe(self, request: Mapping[str, Any]) -> DescribedLaunch | DescribedRun | str:
        """Describes the launches of a config for the process under a profiler, or returns why there are no counters."""

    def reset_outputs(self, turn: int) -> None:
        """Restores the content that outputs have before each launch on an input set."""

    def restore_inputs(self) -> str | None:
        """Restores the inputs, and returns the name of one that a launch changed. None if none was changed."""

    def restore_guards(self) -> str | None:
        """Restores the guards around the memory of launches. Returns where launches wrote into them, None if nowhere or
        if there are no guards."""

    def time_parts(self, identity: int, rounds: int) -> dict[str, float]:
        """Returns the median microseconds of each launch of a config, by its place and its kernel's name. Empty if a
        config is one launch."""

    def build_baseline(self, name: str, turn: int = 0) -> BaselineLaunch:
        """Returns the launch of a baseline. Raises BaselineMissing."""

    def verify_baseline(self, baseline: BaselineLaunch, turn: int, slack: float) -> ResultError:
        """Launches a baseline on an input set, and returns its error; `slack` multiplies the tolerance."""
