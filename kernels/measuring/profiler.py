"""Runs Nsight Compute on a child process, which waits for a description of the launches to profile."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self

from tilewatch import processes
from tilewatch.kernels.children.child_process import PASSED_ON, ROOT
from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.compiling.store import StoreError
from tilewatch.kernels.gpu.described_launch import DescribedLaunch
from tilewatch.kernels.gpu.host_code.described_run import Described, DescribedRun

LIMIT_S = 60.0
LIMIT_EACH_S = 20.0
"""The seconds allowed for the start of Nsight Compute and the process (LIMIT_S), and for each launch (LIMIT_EACH_S)."""

LOOK_EVERY_S = 0.2
"""Seconds between two looks at whether a series waits for the GPU."""

FORBIDDEN = "ERR_NVGPUCTRPERM"
ERROR = re.compile(r"==ERROR== (.*)")


class NoCounters(Exception):
    """Raised if hardware counters cannot be read. The message is shown after "no counters: "."""


class GpuWanted(Exception):
    """Raised if profiling stopped because another process waits for the GPU."""


@dataclass(frozen=True)
class _Started:
    process: subprocess.Popen[bytes]
    folder: tempfile.TemporaryDirectory[str]
    errors: IO[bytes]

    @property
    def file(self) -> Path:
        """Returns the path of the file that lists the launches, for which the profiled process waits."""
        return Path(self.folder.name) / "launches.json"


class Profiler:
    """A started Nsight Compute, which can profile one GPU once."""

    def __init__(self, gpu_uuid: str, metrics: Sequence[str], is_wanted: Callable[[], bool] = lambda: False) -> None:
        program = shutil.which("ncu")
        self._is_wanted = is_wanted
        self._started = None if program is None else _start(program, gpu_uuid, metrics)

    def profile(self, described: Described, store_url: str) -> str:
        """Profiles launches and returns Nsight Compute's output. Raises NoCounters or GpuWanted."""
        if self._started is None:
            raise NoCounters("Nsight Compute (ncu) is not installed on this machine")
        cubins = LocalCubins(store_url)
        try:
            for each in described:
                cubins.fetch(each.content_key)
            return _launch(self._started, described, cubins.url, self._is_wanted)
        except StoreError as error:
            raise NoCounters(str(error)) from None
        except GpuWanted:
            self.close()  # before the series gets the GPU
            raise
        finally:
            cubins.close()

    def close(self) -> None:
        if self._started is None:
            return
        process = self._started.process
        processes.kill_descendants(process.pid)
        processes.kill([process])
        process.stdout.close() if process.stdout else None
        self._started.errors.close()
        self._started.folder.cleanup()
        self._started = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def count_launches(described: DescribedLaunch | DescribedRun) -> int:
    return len(described.launches) if isinstance(described, DescribedRun) else 1


def find_reason(output: str) -> str | None:
    """Returns why Nsight Compute profiled no launch, or None if its output does not say why."""
    if FORBIDDEN in output:
        return f"this user may not read the GPU's performance counters ({FORBIDDEN}): see docs/use/why.md"
    errors = ERROR.findall(output)
    return f"Nsight Compute: {errors[0].strip()}" if errors else None


def _start(program: str, gpu_uuid: str, metrics: Sequence[str]) -> _Started:
    # No clock control: it would lock the clocks of a GPU that is timed a moment later.
    profiler = [program, "--metrics", ",".join(metrics), "--profile-from-start", "off", "--clock-control", "none"]
    profiler += ["--csv", "--print-units", "base", "--target-processes", "all"]
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"PYTHONPATH": processes.python_path(ROOT), "CUDA_VISIBLE_DEVICES": gpu_uuid}
    folder = tempfile.TemporaryDirectory(prefix="tilewatch-profile-")
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does
    target = [sys.executable, "-P", "-m", "tilewatch.kernels.gpu.profiled_launches", f"{folder.name}/launches.json"]
    process = processes.start([*profiler, *target], environment=environment, log=errors, stdout=subprocess.PIPE)
    return _Started(process, folder, errors)


def _launch(started: _Started, described: Described, store_url: str, is_wanted: Callable[[], bool]) -> str:
    process, launches = started.process, sum(map(count_launches, described))
    written = started.file.with_suffix(".new")
    written.write_text(json.dumps({"store": store_url, "described": list(map(asdict, described))}))
    written.rename(started.file)
    output = _wait(process, time.monotonic() + LIMIT_S + LIMIT_EACH_S * launches, is_wanted)
    printed = output.decode(errors="replace")
    if process.returncode != 0 and find_reason(printed) is None:
        words = processes.last_words(process, started.errors)
        raise NoCounters(f"Nsight Compute ended with {process.returncode}: {words}")
    return printed


def _wait(process: subprocess.Popen[bytes], deadline: float, is_wanted: Callable[[], bool]) -> bytes:
    while time.monotonic() < deadline:
        try:
            output, _ = process.communicate(timeout=LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if is_wanted():
                raise GpuWanted from None
        else:
            return output
    raise NoCounters("Nsight Compute did not end in time")
