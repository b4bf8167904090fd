"""The rules of the house that a machine can check."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_folder_imports_only_what_it_may() -> None:
    lint_imports = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert lint_imports
    checked = subprocess.run([lint_imports, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_make_help_names_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (phony,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^  make ([a-z-]+) ", shown, re.MULTILINE)) == set(phony.split())


def test_every_package_of_ours_is_installed() -> None:
    """setuptools is told its packages by name: a new folder that is not named would be missing in the image."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = {
        ".".join(folder.parent.relative_to(ROOT).parts)
        for top in ("kernels", "db", "worker", "dashboard")
        for folder in (ROOT / top).rglob("__init__.py")
    }
    assert found == set(project["tool"]["setuptools"]["packages"])
