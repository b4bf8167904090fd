"""Times baselines that need their own GPU process: other versions of installed libraries, and a watch file's own.

The process prepares the same problem from the same seed, so it has the same inputs. If it fails, the run loses these
baselines only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewatch.kernels import tile_table
from tilewatch.kernels.baselines.names import COPY, find_library, find_versioned_name
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.measuring.sweep import GpuChild, GpuSetup, SweepFailed
from tilewatch.kernels.toolchains.toolchain import Toolchain

ROUNDS_DEADLINE_S = 120.0
BASELINES_DEADLINE_S = 600.0
"""Long, because DeepGEMM compiles its kernel with nvcc when it first meets a shape."""


class BaselineProcess:
    """Times some baselines in one process. `details` maps the name under which each one's times are stored to its
    detail, or to why it is missing; `names` are those that run."""

    def __init__(self, setup: GpuSetup, stored: Mapping[str, str], about: Mapping[str, Any]) -> None:
        """Prepares the baselines that are the keys of `stored`; its values are the names under which their times are
        stored. Starts no process if there are none. `about` is added to each detail."""
        self._stored = stored
        self.details: dict[str, dict[str, Any]] = {}
        self._child: GpuChild | None = None
        if not self._stored:
            return
        try:
            self._child = GpuChild(setup)
            asked = {"ask": "baselines", "names": list(self._stored)}
            answer = self._child.ask(asked, BASELINES_DEADLINE_S)["baselines"]
        except (SweepFailed, ChildDied, ChildHung) as error:
            self._fail(str(error))
            return
        self.details = {
            versioned: {**answer[name], **about, **describe_other_library(name, answer[name], about)}
            for name, versioned in self._stored.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, detail in self.details.items() if "missing" not in detail)

    def time_block(self, rounds: int, seed: int) -> tuple[dict[str, list[float]], list[Mapping[str, Any]]]:
        """Returns the samples of each baseline by its name, and readings of the GPU. Both are empty if none runs or if
        the process ends; `details` then says how it ended."""
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


def describe_other_library(baseline: str, detail: Mapping[str, Any], about: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns a detail that says why a baseline is missing if its process loaded another version of its library than
    the environment has. Empty if the versions agree or one is unknown."""
    package = find_library(baseline)
    named, loaded = about.get("packages", {}).get(package), detail.get("library")
    if named is None or loaded is None or named == loaded or named.startswith(f"{loaded}."):
        return {}
    return {"missing": f"its process loaded {package} {loaded} in place of {named}"}


def start_environment(
    environment: Toolchain, setup: GpuSetup, baselines: Sequence[str], taken: Collection[str]
) -> BaselineProcess:
    """Prepares the baselines whose library an environment has. Names in `taken` are left out: another environment has
    the same version, and one version is timed once."""
    packages = {package: version for package, version, _ in environment.packages}
    stored = {name: find_versioned_name(name, packages) for name in baselines}
    found = {name: versioned for name, versioned in stored.items() if versioned is not None and versioned not in taken}
    about = {"environment": environment.name, "packages": packages}
    return BaselineProcess(replace(setup, packages=environment.folder), found, about)


def start_watch_file(setup: GpuSetup, baselines: Sequence[str]) -> BaselineProcess:
    """Prepares the baselines that a watch file defines, in a process that runs its library. The measuring process
    itself prepares the copy baseline."""
    own = {name: name for name in baselines if name not in (tile_table.BASELINE, COPY)}
    return BaselineProcess(
        replace(setup, by_library="it times the watch file's own baselines"),
        own,
        {"timed_by": "a process of the library's"},
    )
