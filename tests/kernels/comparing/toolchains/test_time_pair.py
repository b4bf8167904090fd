"""The script that times two cubins: what it says of the times of its processes."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tilewatch.kernels.comparing.toolchains import time_pair


def test_the_difference_is_the_median_of_the_processes_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([(100.0, 104.0, 0.0), (200.0, 220.0, 0.001), (100.0, 90.0, 0.0)])

    def answer(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(stdout=json.dumps(next(times)))

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(sys, "argv", ["time_pair.py", "3"])
    time_pair.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  2: base 200.00 us, head 220.00 us, head / base 1.1000, outputs 0.001 apart"
    assert lines[3] == "head takes +4.00 % (0.9000 to 1.1000)"
