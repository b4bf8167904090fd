"""Ends `tilewatch up` if its main thread is stuck and cannot restart processes."""

import contextlib
import os
import sys
import threading
import time
import traceback
from pathlib import Path

from tilewatch import processes
from tilewatch.worker.process.progress import STILL_S, count_switches

LOOK_EVERY_S = 5.0
FRAMES = 6
"""The number of innermost calls of the main thread that are written into the reason."""


def start(reason: Path) -> str | None:
    """Starts the watchdog. Returns the reason if the last watchdog ended `tilewatch up`, else None."""
    before = reason.read_text(encoding="utf-8") if reason.exists() else None
    reason.unlink(missing_ok=True)
    threading.Thread(target=_watch, args=(reason,), name="watchdog", daemon=True).start()
    return before


def _watch(reason: Path) -> None:
    # Counts checks, not time, because the process may be paused.
    moved, still = count_switches(os.getpid()), 0
    while still * LOOK_EVERY_S < STILL_S:
        time.sleep(LOOK_EVERY_S)
        before, moved = moved, count_switches(os.getpid())
        still = still + 1 if moved == before else 0
    frames = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident or 0])[-FRAMES:]
    where = ", called by ".join(f"{each.name} at {Path(each.filename).name}:{each.lineno}" for each in reversed(frames))
    sentence = f"up made no progress for {STILL_S:.0f} s and was ended ({where})"
    with contextlib.suppress(OSError):
        reason.write_text(sentence, encoding="utf-8")
        os.set_blocking(sys.stderr.fileno(), False)  # what reads it may be what does not get on
        os.write(sys.stderr.fileno(), f"tilewatch: {sentence}\n".encode())
    processes.kill_descendants(os.getpid())
    os._exit(1)
