"""The start of the dashboard's process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.dashboard.fixtures.servers import REPOSITORY, START_LIMIT_S, free_port


def test_a_setting_that_makes_no_sense_ends_it_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamlit", "run", str(REPOSITORY / "dashboard" / "server.py")]
    command += ["--server.address", "127.0.0.1", "--server.port", str(free_port()), "--server.headless", "true"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "TILEWATCH_NIGHTLY_LIMIT_H": "inf"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=START_LIMIT_S, check=False
    )
    assert done.returncode == 1
    assert "tilewatch: TILEWATCH_NIGHTLY_LIMIT_H=inf: input should be less than" in done.stderr
    assert "Traceback" not in done.stderr
