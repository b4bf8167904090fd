"""The commands of docs/reference/api.md run as they are printed."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.api_server import serve
from tilewatch.db.lifecycle import tokens
from tilewatch.db.session import session
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit_check import SubmittedChecks

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
BLOCKS = [text for language, text in FENCED if not language]
ANSWERS = [json.loads(text) for language, text in FENCED if language == "json"]


@pytest.fixture
def environment(api_url: str, broker_url: str, repository: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the commands find: a token, the server that they ask for, and a repository with the branches they name.

    curl's own settings lead it to the test's port, and make it fail where the server refuses.
    """
    for branch in ("main", "my-branch"):
        tiny_repository.git(repository, "checkout", "--quiet", "-B", branch)
        tiny_repository.commit(repository, branch, factor=len(branch))
    with session(api_url) as opened:
        token = tokens.add(opened, name=tmp_path.name, rights=["check"], gpu_s=3600, who="ada")
    own = Settings(home=tmp_path, database_url=api_url, broker_url=broker_url, repository=repository, library="library")
    with serve(own) as address:
        here = address.removeprefix("http://")
        (tmp_path / ".curlrc").write_text(f'connect-to = "localhost:8502:{here}"\nfail\n')
        yield {
            "HOME": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LOGNAME": "grace",
            "TOKEN": token,
            "TILEWATCH_DATABASE_URL": api_url,
            "TILEWATCH_BROKER_URL": broker_url,
            "TILEWATCH_HOME": str(tmp_path),
        }


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_commands_runs(environment: dict[str, str], block: str) -> None:
    script = ["bash", "-euxo", "pipefail", "-c", block]
    run = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout


def test_the_answer_that_is_printed_has_the_fields_of_a_real_one() -> None:
    assert [set(answer) for answer in ANSWERS if "check_ids" in answer] == [set(SubmittedChecks.__dataclass_fields__)]
