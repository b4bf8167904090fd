"""The rules of the house that a machine can check."""

import re
import shutil
import subprocess
import sys
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


def test_src_links_to_every_folder_of_the_product() -> None:
    """A folder that is not linked would be missing in a wheel and in the image."""
    linked = {link.name: link.resolve() for link in (ROOT / "src" / "tilewatch").iterdir() if link.is_symlink()}
    assert linked == {name: ROOT / name for name in ("kernels", "db", "worker", "dashboard")}
