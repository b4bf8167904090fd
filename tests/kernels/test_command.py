"""The command `python -m tilewatch.kernels`, as a person or a CI job runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.command_line import run_here
from tilewatch.kernels.__main__ import main
from tilewatch.kernels.library import FOLDER

PAGE = Path(__file__).parents[2] / "docs" / "develop" / "kernels.md"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tilewatch.kernels", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_library_is_the_one_that_the_environment_names(tmp_path: Path) -> None:
    repository = tiny_repository.make(tmp_path / "watched")
    here = {"TILEWATCH_REPOSITORY": str(repository), "TILEWATCH_LIBRARY": "library"}
    done = run("compile", "double", "--cubins", str(tmp_path / "cubins"), "--jobs", "1", **here)
    assert done.returncode == 0, done.stderr
    assert "3 ok" in done.stdout
    assert "1 error" in done.stdout
    missing = run("compile", "gemm_fp8", **here)
    assert missing.returncode == 2
    assert f"there is no kernel 'gemm_fp8' in the library {repository}/library; nearest: double" in missing.stderr


def compile_double(library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    cubins = library.parent / "cubins"
    command = ("compile", "double", "--library", str(library), "--cubins", str(cubins), "--jobs", "1", *arguments)
    return run_here(*command, environment={}, folder=library, program=main)


def test_a_kernel_of_which_nothing_compiles_is_an_exit_code(tmp_path: Path) -> None:
    library = tiny_repository.make(tmp_path / "watched") / "library"
    source = (library / "double.py").read_text()
    (library / "double.py").write_text(source.replace("(64, 128, 256, 96)", "(96,)"))
    done = compile_double(library, "--json")
    assert done.returncode == 1
    assert '"by_status": {"error": 1}' in done.stdout


def test_wide_compiles_what_the_short_list_leaves_out(tmp_path: Path) -> None:
    library = tiny_repository.make(tmp_path / "watched") / "library"
    entry = {"kernels": ["double"], "arch": "sm_100", "compiler": "c", "gpus": [], "source": "s", "date": "d"}
    (library / "short_lists.json").write_text(json.dumps([entry | {"axes": ["width"], "configs": [[64]]}]))
    assert '"by_status": {"ok": 1}' in compile_double(library, "--json").stdout
    assert '"by_status": {"error": 1, "ok": 3}' in compile_double(library, "--json", "--wide").stdout


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    library = tiny_repository.make(tmp_path / "watched") / "library"
    (library / "broken.py").write_text("import tilegym")
    done = compile_double(library)
    assert done.returncode == 0
    assert "left out: library file broken.py does not load: ModuleNotFoundError" in done.stderr


def test_the_page_of_the_suite_is_the_table_of_the_library() -> None:
    done = run_here("list", "--markdown", "--library", str(FOLDER), environment={}, folder=FOLDER, program=main)
    command = "python -m tilewatch.kernels list --markdown"
    (shown,) = re.findall(rf"<!-- {command} -->\n\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"))
    assert shown == done.stdout, f"paste it anew: {command}"


def test_the_list_of_one_architecture_has_the_kernels_that_run_there(tmp_path: Path) -> None:
    library = tiny_repository.make(tmp_path / "watched") / "library"
    done = run_here("list", "--arch", "sm_90", "--library", str(library), environment={}, folder=library, program=main)
    assert "double" in done.stdout
    assert "sm_90: 4" in done.stdout
    wrong = run_here("list", "--arch", "h100", "--library", str(library), environment={}, folder=library, program=main)
    assert wrong.returncode == 2
