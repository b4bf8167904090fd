"""The start of the dashboard's process, and the HTML that a browser gets first."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.dashboard.fixtures.servers import REPOSITORY, START_LIMIT_S
from tilewatch.dashboard.serving import index_page
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


def test_a_server_of_tests_ends_with_the_process_of_the_tests(tmp_path: Path) -> None:
    """A suite that was ended by a signal left its dashboard running."""
    port = find_free_port()
    suite = f"""
import os, signal, sys
from pathlib import Path
from tests.dashboard.fixtures import servers
command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}"]
with servers.process(command, Path({str(tmp_path)!r}), os.environ, "http://127.0.0.1:{port}"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", suite], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL, "the server answered"
    deadline = time.monotonic() + START_LIMIT_S
    while is_answered(port):
        assert time.monotonic() < deadline, "it goes on without the suite"
        time.sleep(0.05)


def is_answered(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


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
    assert all((index_page.SCRIPTS_FOLDER / file).is_file() for file in found)
    return len(found)
