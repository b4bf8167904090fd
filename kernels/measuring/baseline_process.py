"""Times baselines that need a GPU process of their own, such as other versions of a library."""

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
"""Deadline for preparing baselines. DeepGEMM compiles a kernel with nvcc for each new shape."""


class BaselineProcess:
    """Times some baselines in one process. `details` says why a baseline cannot be timed."""

    def __init__(self, setup: GpuSetup, stored: Mapping[str, str], about: Mapping[str, Any]) -> None:
        """Prepares baselines. `stored` maps each baseline's name to the name under which times are stored."""
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
        """Returns samples in microseconds by baseline, and GPU telemetry. Both are empty after a failure."""
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
    """Returns {"missing": message} if a process did not load the wanted library version, else {}."""
    package = find_library(baseline)
    named, loaded = about.get("packages", {}).get(package), detail.get("library")
    if named is None or loaded is None or named == loaded or named.startswith(f"{loaded}."):
        return {}
    return {"missing": f"its process loaded {package} {loaded} in place of {named}"}


def start_environment(
    environment: Toolchain, setup: GpuSetup, baselines: Sequence[str], taken: Collection[str]
) -> BaselineProcess:
    """Starts a process that times baselines with an environment's packages, without the baselines in `taken`."""
    packages = {package: version for package, version, _ in environment.packages}
    stored = {name: find_versioned_name(name, packages) for name in baselines}
    found = {name: versioned for name, versioned in stored.items() if versioned is not None and versioned not in taken}
    # Another environment may have the same version, and each version is timed once.
    about = {"environment": environment.name, "packages": packages}
    return BaselineProcess(replace(setup, packages=environment.folder), found, about)


def start_watch_file(setup: GpuSetup, baselines: Sequence[str]) -> BaselineProcess:
    """Starts a process for the baselines that a watch file defines."""
    # The measuring process itself times the baseline that copies bytes.
    own = {name: name for name in baselines if name not in (tile_table.BASELINE, COPY)}
    return BaselineProcess(
        replace(setup, by_library="it times the watch file's own baselines"),
        own,
        {"timed_by": "a process of the library's"},
    )
