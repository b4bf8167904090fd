"""The release of this code, also where it is on the path and not installed: an API that asked for it ended for ever."""

import importlib.metadata
import subprocess
import sys

import pytest

from tilewatch import find_release
from tilewatch.worker.local.children import CANNOT_START


def test_code_that_is_not_installed_has_a_release_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_release() == importlib.metadata.version("tilewatch")

    def refuse(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", refuse)
    assert find_release() == "unknown"


def test_an_api_without_its_packages_says_so_and_asks_not_to_be_tried_again() -> None:
    program = """
import sys
sys.modules["uvicorn"] = None
sys.argv = ["tilewatch", "api"]
from tilewatch.worker.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == CANNOT_START
    assert done.stderr.startswith("tilewatch: the API cannot start: import of uvicorn halted")
