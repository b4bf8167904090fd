"""Times rival libraries of other versions than those installed: each environment in a GPU process of its own.

Its process prepares the same problem with the same seed, so it has the same inputs. An environment that fails costs its
own baselines, never the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewatch.kernels.baseline_names import find_versioned_name
from tilewatch.kernels.child_process import ChildDied, ChildHung
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed
from tilewatch.kernels.toolchains.toolchain import Toolchain

ROUNDS_DEADLINE_S = 120.0
BASELINES_DEADLINE_S = 600.0
"""DeepGEMM compiles its kernel with nvcc when it first meets a shape."""


class RivalProcess:
    """The baselines of one environment. `details` has them by the name that they are stored under, and says why one is
    missing; `names` are those that run."""

    def __init__(self, environment: Toolchain, setup: GpuSetup, baselines: Sequence[str]) -> None:
        """Prepares those of `baselines` whose library the environment has; no process is started where it has none."""
        packages = {package: version for package, version, _ in environment.packages}
        stored = {name: find_versioned_name(name, packages) for name in baselines}
        self._stored = {name: versioned for name, versioned in stored.items() if versioned is not None}
        self.details: dict[str, dict[str, Any]] = {}
        self._child: GpuChild | None = None
        if not self._stored:
            return
        try:
            self._child = GpuChild(replace(setup, packages=environment.folder))
            asked = {"ask": "baselines", "names": list(self._stored)}
            answer = self._child.ask(asked, BASELINES_DEADLINE_S)["baselines"]
        except (SweepFailed, ChildDied, ChildHung) as error:
            self._fail(str(error))
            return
        about = {"environment": environment.name, "packages": packages}
        self.details = {versioned: {**answer[name], **about} for name, versioned in self._stored.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, detail in self.details.items() if "missing" not in detail)

    def time_block(self, rounds: int, seed: int) -> tuple[dict[str, list[float]], list[Mapping[str, Any]]]:
        """Returns the samples of each baseline by its name, and readings of the GPU. Both are empty where none runs, or
        where the process ends; `details` then says how it ended."""
        running = [name for name, versioned in self._stored.items() if versioned in self.names]
        if self._child is None or not running:
            return {}, []
        asked = {"ask": "rounds", "ids": [], "names": running, "rounds": rounds, "seed": seed}
        try:
            answer = self._child.ask(asked, ROUNDS_DEADLINE_S)
        except (SweepFailed, ChildDied, ChildHung) as error:
            self._fail(str(error))
            return {}, []
        samples = {self._stored[name]: each for name, each in zip(running, answer["samples_us"], strict=True)}
        return samples, answer["telemetry"]

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _fail(self, reason: str) -> None:
        self.details = {name: {"missing": reason} for name in self._stored.values()}
        self.close()
