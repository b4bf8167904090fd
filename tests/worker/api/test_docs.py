"""The commands of docs/api.md run as they are printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs" / "api.md").read_text(), re.DOTALL | re.MULTILINE)
BLOCKS = [text for language, text in FENCED if not language]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_commands_runs(server: str, api_url: str, tmp_path: Path, block: str) -> None:
    """curl's own settings lead it to the test's port, and make it fail where the server refuses."""
    here = server.removeprefix("http://")
    (tmp_path / ".curlrc").write_text(f'connect-to = "localhost:8502:{here}"\nfail\n')
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LOGNAME": "grace",
        "TILEWATCH_DATABASE_URL": api_url,
        "TILEWATCH_BROKER_URL": "redis://nobody",
        "TILEWATCH_HOME": str(tmp_path),
    }
    script = ["bash", "-euxo", "pipefail", "-c", block]
    run = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout
