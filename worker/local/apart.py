"""Runs a module of this package in another process and yields its printed lines. `tilewatch up` runs slow work in this
way, because it must meanwhile notice programs that end. It also runs the code of libraries in this way, because its own
environment contains secrets."""

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tilewatch import processes

LOOK_EVERY_S = 1.0


def run_apart(
    module: str, *arguments: str, environment: Mapping[str, str], logs: Path, meanwhile: Callable[[], None], failed: str
) -> Iterator[str]:
    """Yields each line that a module of this folder prints, as soon as it is printed. Calls `meanwhile` at least every
    LOOK_EVERY_S seconds. If the module ends with an error, the last line is `failed` with the name of its log."""
    log_file = logs / f"{module}.log"
    command = (sys.executable, "-m", f"{__package__}.{module}", *arguments)
    with processes.open_log(log_file) as log:
        process = processes.start(command, environment=environment, log=log, stdout=subprocess.PIPE)
    assert process.stdout is not None
    unfinished, is_over = b"", False
    with process.stdout as printed:
        while not is_over:
            meanwhile()
            if select.select([printed], [], [], LOOK_EVERY_S)[0]:
                read = os.read(printed.fileno(), select.PIPE_BUF)
                *lines, unfinished = (unfinished + read).split(b"\n")
                yield from map(bytes.decode, lines)
                is_over = not read
    if process.wait():
        yield f"tilewatch: {failed}; the log is {log_file}"
