"""Submits the first nightlies of `tilewatch up` in another process. Submitting runs the code of libraries, and the
environment of `tilewatch up` contains secrets."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tilewatch import errors, processes

LOOK_EVERY_S = 0.2


def submit_apart(environment: Mapping[str, str], log_file: Path, meanwhile: Callable[[], None]) -> list[str]:
    """Submits the nightlies in another process, with this environment. Returns a sentence for each watched repository,
    or one sentence on why nothing was submitted. Fetching repositories may take long, so `meanwhile` is called every
    LOOK_EVERY_S seconds until the process ends."""
    with processes.open_log(log_file) as log:
        process = processes.start(
            (sys.executable, "-m", "tilewatch.worker.local.first_nightlies"),
            environment=environment,
            log=log,
            stdout=subprocess.PIPE,
        )
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                printed, _ = process.communicate(timeout=LOOK_EVERY_S)
                break
            meanwhile()
    if process.returncode:
        return [f"tilewatch: no nightly was submitted; the log is {log_file}"]
    return printed.decode().splitlines()


def main() -> None:
    from tilewatch.worker.settings import Settings
    from tilewatch.worker.submitting import schedule

    processes.forbid_inspection()
    try:
        sentences = schedule.submit(Settings.load())
    except Exception as error:
        sentence = errors.sentence(error)
        if sentence is None:
            raise
        sentences = [f"tilewatch: no nightly was submitted: {sentence}"]
    print(*(sentences or ["no repository is watched yet: `tilewatch watch add URL` (or a folder) adds one"]), sep="\n")


if __name__ == "__main__":
    main()
