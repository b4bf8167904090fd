"""A reader that closes the pipe, as `head` does, ends a command without a traceback."""

import os
import subprocess
import sys

import pytest

from tests.worker.fixtures.compiled_sweep import add_gpu_worker
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly


@pytest.mark.parametrize("command", ["status", "status --json", "watch list", "--help"])
def test_a_closed_pipe_is_no_traceback(settings: Settings, context: Context, command: str) -> None:
    add_gpu_worker(context)
    submit_nightly(settings, gpus=("h200",))
    servers = settings.connection()
    environment = {
        **os.environ,
        "TILEWATCH_HOME": str(settings.home),
        "TILEWATCH_DATABASE_URL": servers.database_url,
        "TILEWATCH_BROKER_URL": servers.broker_url,
    }
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tilewatch.worker.cli.main", *command.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
