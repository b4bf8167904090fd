"""The dashboard as a process on a free port, started like `tilewatch up` starts it, and other servers beside it."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
START_LIMIT_S = 60


@contextlib.contextmanager
def dashboard(url: str, folder: Path, port: int, settings: Mapping[str, str]) -> Iterator[str]:
    """Its address; run in `folder`, which is not the repository. Nothing it does may end in a stack trace."""
    command = [sys.executable, "-m", "streamlit", "run", str(REPOSITORY / "dashboard" / "server.py")]
    command += ["--server.address", "127.0.0.1", "--server.port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TILEWATCH_DATABASE_URL": url, **settings}
    address = f"http://127.0.0.1:{port}"
    with process(command, folder, environment, f"{address}/_stcore/health") as log:
        yield address
    assert "Traceback" not in log.read_text()


@contextlib.contextmanager
def process(command: list[str], folder: Path, environment: Mapping[str, str], answers: str) -> Iterator[Path]:
    """A server that has begun to answer at that address; gives its log."""
    log = folder / "log"
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        _await(answers, server, log)
        yield log
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own http address
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"nothing answered at {url} after {START_LIMIT_S} s: {log.read_text()}")
