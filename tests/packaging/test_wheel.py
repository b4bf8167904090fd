"""The wheel: one top-level package, everything in it, and it runs where there is no checkout."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("kernels", "db", "worker", "dashboard", "recordings")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the unpacked wheel, built from a copy: a build leaves files beside its source."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", *FOLDERS):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-c", BUILD, str(target)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = target.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(target)
    wheel.unlink()
    return target


def test_the_wheel_holds_every_file_and_takes_one_name(site: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    missing = [file for file in tracked.stdout.splitlines() if not (site / "tilewatch" / file).exists()]
    assert missing == []
    assert {each.name for each in site.iterdir() if each.suffix != ".dist-info"} == {"tilewatch"}


def test_its_metadata_name_the_license_and_bring_it(site: Path) -> None:
    (folder,) = site.glob("*.dist-info")
    metadata = (folder / "METADATA").read_text().splitlines()
    assert {"License-Expression: Apache-2.0", "License-File: LICENSE"} <= set(metadata)
    assert (folder / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def run(site: Path, folder: Path, *arguments: str) -> str:
    """What a Python prints that finds the wheel and the other packages, but not the editable install."""
    # -S keeps the editable install away, which is a line in site-packages; its other packages stay reachable.
    packages = [path for path in sys.path if path.endswith("site-packages")]
    done = subprocess.run(
        [sys.executable, "-P", "-S", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": ":".join([str(site), *packages])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_of_the_wheel_runs_outside_the_checkout(site: Path, tmp_path: Path) -> None:
    (scripts,) = site.glob("*.dist-info/entry_points.txt")
    assert "tilewatch = tilewatch.worker.cli.main:main" in scripts.read_text()
    command = ("-c", "from tilewatch.worker.cli.main import main; main()")
    assert run(site, tmp_path, *command, "--version").startswith("tilewatch ")
    assert "regressions" in run(site, tmp_path, *command, "--help")
    found = {finding["name"]: finding for finding in json.loads(run(site, tmp_path, *command, "doctor", "--json"))}
    assert found["Python"]["ok"]
    assert found["repository"]["found"] == "none is watched yet"


def test_the_wheel_runs_outside_the_checkout(site: Path, tmp_path: Path) -> None:
    """Its children too: the catalog is read by a process of its own."""
    program = (
        "import pathlib, tilewatch.worker.cli.main, tilewatch.dashboard.site.weekly_report\n"
        "from tilewatch.kernels import library\n"
        "from tilewatch.kernels.catalog import catalog\n"
        "print(library.FOLDER, len(catalog.read(library.FOLDER, arch='sm_90', kernel='gemm_fp8')))"
    )
    folder, plans = run(site, tmp_path, "-c", program).split()
    assert folder == str(site / "tilewatch" / "kernels" / "library")
    assert int(plans) > 0
