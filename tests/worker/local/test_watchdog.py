"""A main thread that does nothing for a minute ends `up` with everything below it; one that gets on does not."""

import contextlib
import itertools
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewatch.worker.local import watchdog
from tilewatch.worker.process.progress import STILL_S

DEADLINE_S = 60.0
LOOKS = int(STILL_S / watchdog.LOOK_EVERY_S)
HANGS = """
import os, pathlib, subprocess, sys
from tilewatch.worker.local import watchdog
watchdog.LOOK_EVERY_S, watchdog.STILL_S = 0.05, 1.0
def wait_for_ever():
    os.read(os.pipe()[0], 1)
below = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(below.pid, flush=True)
watchdog.start(pathlib.Path(sys.argv[1]))
wait_for_ever()
"""


class Ended(Exception):
    pass


def test_a_process_that_waits_for_ever_is_ended_with_its_reason_and_all_that_it_started(tmp_path: Path) -> None:
    reason = tmp_path / "reason"
    done = subprocess.run([sys.executable, "-c", HANGS, str(reason)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"tilewatch: {reason.read_text()}\n"
    assert reason.read_text().startswith(
        "up made no progress for 1 s and was ended (wait_for_ever at <string>:6, called"
    )
    with contextlib.suppress(ProcessLookupError):  # already buried by its new parent
        handle = os.pidfd_open(int(done.stdout))
        assert select.select([handle], [], [], DEADLINE_S)[0]  # a kill returns before the process has ended
        os.close(handle)


@pytest.mark.parametrize(("still", "ends"), [(LOOKS, True), (LOOKS - 1, False)])
def test_it_is_ended_after_a_minute_of_looks_and_begins_anew_when_it_moves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, still: int, ends: bool
) -> None:
    moves: Iterator[int] = itertools.chain([1] * LOOKS, [2] * LOOKS, [3] * (still + 1))

    def end(_: int) -> None:
        raise Ended

    monkeypatch.setattr(watchdog, "count_switches", lambda _: next(moves))
    monkeypatch.setattr(watchdog, "processes", SimpleNamespace(kill_descendants=end))
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(sleep=lambda _: None))
    with pytest.raises(Ended if ends else StopIteration):
        watchdog._watch(tmp_path / "reason")
