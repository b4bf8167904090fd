"""Says what the GPU child asks of one problem on its GPU, whatever prepared it."""

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
    """One problem on this GPU: of a library file's kernel (PreparedProblem), of a watched operator as it is described
    (PreparedLaunches), or of one that this process runs (PreparedOperator)."""

    timer: timing.Timer
    telemetry: Telemetry
    sm_count: int
    loaded: dict[int, Any]
    baselines: dict[str, tuple[BaselineLaunch, tuple[str, ...]]]

    @property
    def tolerance(self) -> float | None:
        """The accepted error that the library states; None where each result has that of its type."""

    @property
    def element_bytes(self) -> int: ...
    @property
    def work(self) -> Mapping[str, Any]:
        """Returns the problem's operations, the bytes that must move, and its inputs' types: flops, bytes, dtypes."""

    @property
    def input_sets(self) -> int: ...
    @property
    def checked_sets(self) -> Sequence[int]:
        """The numbers of the input sets that have a reference."""

    def find_misfit(self, request: Mapping[str, Any]) -> str | None:
        """Says why a side of a replay is not comparable with the prepared library; None when it is."""

    def load(self, request: Mapping[str, Any]) -> Any:
        """Loads the machine code of a config."""

    def verify(self, config: Any, turn: int) -> tuple[float, ResultError]:
        """Launches a config once on an input set, and returns its microseconds and its error."""

    def keep(self, identity: int, config: Any) -> None:
        """Keeps a checked config for rounds."""

    def entry(self, identity: int) -> Entry: ...

    def describe(self, request: Mapping[str, Any]) -> DescribedLaunch | DescribedRun | str:
        """Describes the launches of a config for a profiler's process, or says why there are no counters."""

    def reset_outputs(self, turn: int) -> None:
        """Makes the outputs as they are before each launch on an input set."""

    def restore_inputs(self) -> str | None:
        """Makes the inputs as they were, and returns the name of one that a launch changed; None where it changed
        none."""

    def restore_guards(self) -> str | None:
        """Restores what lies around the memory that launches are given, and says what they wrote there, as Guards does;
        None where nothing, and where the memory has no guards."""

    def time_parts(self, identity: int, rounds: int) -> dict[str, float]:
        """Returns the median microseconds of each launch of a config, by its place and its kernel's name.

        Empty where a config is one launch.
        """

    def build_baseline(self, name: str, turn: int = 0) -> BaselineLaunch:
        """Returns the launch of a baseline. Raises BaselineMissing."""

    def verify_baseline(self, baseline: BaselineLaunch, turn: int, slack: float) -> ResultError:
        """Launches a baseline of an input set, and returns its error; `slack` multiplies the tolerance."""
