"""Runs a module of this package in another process, without the secrets of `tilewatch up`."""

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
    """Yields the output lines of a module, then `failed` if the module fails. Calls `meanwhile` every second."""
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
