"""Ctrl-C ends the suite and every server that its tests started. A test that hangs fails by its name."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[1]
PATIENCE_S = 120.0
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"))

WAITS = """
import os, sys, threading
from pathlib import Path
from tests.dashboard.fixtures.servers import process
from tilewatch.db.server.free_ports import find_free_ports

def test_waits(tmp_path):
    (port,) = find_free_ports(1)
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with process(command, tmp_path, dict(os.environ), f"http://127.0.0.1:{port}"):
        Path(os.environ["PLACE"]).write_text(str(port))
        threading.Event().wait()
"""


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def list_servers(port: str) -> list[psutil.Process]:
    """Lists the servers of this port that run: a process that has ended and that nobody has waited for is none."""
    asked = ["http.server", port, "--bind"]
    found = psutil.process_iter(["cmdline", "status"])
    return [each for each in found if asked == (each.info["cmdline"] or [])[2:5] and each.info["status"] != "zombie"]


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_ctrl_c_leaves_no_server(options: tuple[str, ...], tmp_path: Path) -> None:
    place, test = tmp_path / "port", tmp_path / "test_waits.py"
    test.write_text(WAITS)
    environment = {**os.environ, "PLACE": str(place), "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = [*PYTEST, *options, str(test)]
    with (tmp_path / "log").open("wb") as log:
        suite = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: place.exists() and place.read_text() != "", (tmp_path / "log").read_text())
        port = place.read_text()
        assert len(list_servers(port)) == 1
        os.killpg(suite.pid, signal.SIGINT)
        suite.wait(PATIENCE_S)
        wait_for(lambda: list_servers(port) == [], "the server runs on")
    finally:
        if suite.poll() is None:
            os.killpg(suite.pid, signal.SIGKILL)
            suite.wait()
    assert suite.returncode != 0


def test_a_test_that_hangs_fails_by_its_name_and_the_others_run(tmp_path: Path) -> None:
    """CI waited 53 minutes for one, was ended and named none (2026-11-29)."""
    (tmp_path / "test_hangs.py").write_text(
        "import threading\ndef test_hangs(): threading.Event().wait()\ndef test_runs(): pass"
    )
    command = [*PYTEST, "-o", "faulthandler_timeout=3", "-n", "1", str(tmp_path)]
    suite = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "test_hangs.py::test_hangs" in suite.stdout
    assert "1 failed, 1 passed" in suite.stdout
    assert 'test_hangs.py", line 2 in test_hangs' in suite.stderr, "where it hung"


def test_a_test_has_more_time_than_the_longest_needs_and_less_than_ci_has() -> None:
    """The walk of a newcomer took 1,056 s on a busy machine, and a limit of 600 s ended it as if it hung."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    ci = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]
    whole_suite_s = 15 * 60
    assert 1.5 * 1056 < options["faulthandler_timeout"] < 60 * ci["timeout-minutes"] - whole_suite_s
