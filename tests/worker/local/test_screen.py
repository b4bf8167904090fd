"""What `tilewatch up` prints: it never waits for whoever reads it."""

import os
import threading

import pytest

from tilewatch.worker.local import screen
from tilewatch.worker.local.screen import Screen

DEADLINE_S = 60.0


def test_an_output_that_takes_nothing_is_not_waited_for_and_gets_the_newest_lines_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, ours = os.pipe()
    lines = [f"line {number:06}" for number in range(20_000)]
    with os.fdopen(ours, "w") as output, os.fdopen(theirs, "rb", buffering=0) as reader:
        monkeypatch.setattr("sys.stdout", output)
        shown = Screen()
        printing = threading.Thread(target=lambda: [shown.print_line(line) for line in lines], daemon=True)
        printing.start()
        printing.join(DEADLINE_S)
        assert not printing.is_alive()
        assert len(shown._unwritten) == screen.KEPT_BYTES
        read = b""
        while not read.endswith(f"{lines[-1]}\n".encode()):
            read += reader.read(1 << 16)
            shown.progress("")
    assert read.startswith(f"{lines[0]}\n{lines[1]}\n".encode())
