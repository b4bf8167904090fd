"""The start of the dashboard's process, and the HTML that a browser gets first."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.dashboard.fixtures.servers import REPOSITORY, START_LIMIT_S
from tilewatch.dashboard.serving import index_page, script_files
from tilewatch.db.server.free_ports import find_free_port


def test_a_setting_that_makes_no_sense_ends_it_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamlit", "run", str(REPOSITORY / "dashboard" / "server.py")]
    command += ["--server.address", "127.0.0.1", "--server.port", str(find_free_port()), "--server.headless", "true"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "TILEWATCH_NIGHTLY_LIMIT_H": "inf"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=START_LIMIT_S, check=False
    )
    assert done.returncode == 1
    assert "tilewatch: TILEWATCH_NIGHTLY_LIMIT_H=inf: input should be less than" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_html_names_the_script_of_the_overviews_first_table_once_and_of_no_other_page() -> None:
    html = index_page.INDEX.read_text(encoding="utf-8")
    overview, jobs = (index_page.write_html(html, page) for page in ("", "jobs"))
    assert named(overview, "BidiComponent") == 1
    assert named(overview, "DataFrame") == named(jobs, "BidiComponent") == 0
    assert named(overview, "recordbatch") == 1, "which BidiComponent imports"
    assert named(overview, "react-dom") == 1, "Streamlit's own HTML has it"
    for script in index_page.ABOVE:
        assert named(jobs, script) == 1


def named(html: str, script: str) -> int:
    found = re.findall(rf'rel="modulepreload" crossorigin href="./static/js/({script}\.[^"]+)"', html)
    assert all((script_files.FOLDER / file).is_file() for file in found)
    return len(found)
