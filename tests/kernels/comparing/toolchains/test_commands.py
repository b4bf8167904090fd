"""`toolchain compare` without a GPU, with real compilers: equal toolchains, one that compiles otherwise, one that
fails."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.kernels.fixtures.second_toolchain import count_compiles, make_toolchain
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.command_line import run_here
from tilewatch.kernels.__main__ import main
from tilewatch.kernels.children import sandbox

WORSE = 'for each; do shift; case "$each" in --opt-level*|-O*) ;; *) set -- "$@" "$each" ;; esac; done\n'
"""Takes the optimisation level out of the arguments of a tileiras."""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Two problems of a kernel whose configs all compile."""
    folder = tiny_repository.make(tmp_path / "watched") / "library"
    file = folder / "double.py"
    file.write_text(file.read_text().replace("(64, 128, 256, 96)", "(64, 128, 256)"))
    return folder


def compare(library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = library.parents[1]
    command = ["toolchain", "compare", *arguments, "--toolchains", str(root)]
    options = ["--library", str(library), "--jobs", "2", "--arch", "sm_90", "--configs", "shipped"]
    environment = {"CUDA_VISIBLE_DEVICES": "", sandbox.SWITCH: "off"}  # runs are written outside of it
    return run_here(*command, *options, environment=environment, folder=root, program=main)


def test_two_toolchains_of_one_list_are_identical_though_each_compiles(library: Path, tmp_path: Path) -> None:
    first, second = (make_toolchain(tmp_path, name, label="same") for name in ("first", "second"))
    done = compare(library, "first", "second", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(each["static"], each["safety"]) for each in found["operators"]] == [("identical", "safe")] * 2
    assert count_compiles(first) == count_compiles(second) > 0


def test_a_changed_compiler_under_an_old_version_is_not_answered_from_the_other_s_store(
    library: Path, tmp_path: Path
) -> None:
    make_toolchain(tmp_path, "first", label="same")
    make_toolchain(tmp_path, "second", label="same", script=f'{WORSE}exec "$TILEIRAS" --opt-level=0 "$@"')
    found = json.loads(compare(library, "first", "second", "--json").stdout)
    assert [each["static"] for each in found["operators"]] == ["changed"] * 2


def test_other_machine_code_is_unknown_without_a_gpu_and_a_second_run_compiles_nothing(
    library: Path, tmp_path: Path
) -> None:
    second = make_toolchain(tmp_path, "worse", script=f'{WORSE}exec "$TILEIRAS" --opt-level=0 "$@"')
    done = compare(library, "installed", "worse", "--markdown", str(tmp_path / "r.md"))
    assert done.returncode == 2, done.stderr
    assert "worse cannot be called safe or not in place of installed on sm_90" in done.stdout
    assert "2 of 2 changed" in done.stdout
    assert (tmp_path / "r.md").read_text().startswith("# installed → worse")
    compiled = count_compiles(second)
    again = compare(library, "installed", "worse")
    assert (again.returncode, again.stdout) == (2, done.stdout)
    assert count_compiles(second) == compiled


def test_what_stops_compiling_is_not_safe(library: Path, tmp_path: Path) -> None:
    make_toolchain(tmp_path, "broken", script='case "$*" in *bytecode*) exit 3 ;; esac\nexec "$TILEIRAS" "$@"')
    done = compare(library, "installed", "broken", "--kernel", "double", "--problem", "1024")
    assert done.returncode == 1, done.stderr
    assert "not safe: double 1024 (sm_90): with the head it does not compile" in done.stdout


def test_three_toolchains_have_one_report_and_the_pins_are_those_of_the_last_safe_one(
    library: Path, tmp_path: Path
) -> None:
    made = [make_toolchain(tmp_path, name, label="same") for name in ("first", "second")]
    make_toolchain(tmp_path, "worse", script=f'{WORSE}exec "$TILEIRAS" --opt-level=0 "$@"')
    done = compare(library, "first", "second", "worse", "--json", "--pins", "pins.txt")
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    assert [(each["head"], each["static"]) for each in found["operators"]] == [
        (head, static) for _ in range(2) for head, static in (("second", "identical"), ("worse", "changed"))
    ]
    assert (found["take"], (tmp_path / "first..second..worse.json").exists()) == ("second", True)
    assert [count_compiles(each) > 0 for each in made] == [True, True]
    pins = [line for line in (tmp_path / "pins.txt").read_text().splitlines() if not line.startswith("#")]
    assert {f"{each.package}=={each.version}" for each in made[1].packages} <= set(pins)


@pytest.mark.parametrize("names", [("installed",), ("installed", "worse", "worse")])
def test_a_toolchain_alone_or_named_twice_is_refused(library: Path, names: tuple[str, ...]) -> None:
    done = compare(library, *names)
    assert done.returncode == 2
    assert "name two or more different toolchains, the one in use first" in " ".join(done.stderr.split())


def test_two_toolchains_of_one_name_are_refused_and_one_by_two_paths_is_not(library: Path, tmp_path: Path) -> None:
    """Both sides were compiled with the toolchain that was named last, so that each was identical and safe."""
    make_toolchain(tmp_path, "next")
    make_toolchain(tmp_path / "other", "next", script=f'{WORSE}exec "$TILEIRAS" --opt-level=0 "$@"')
    done = compare(library, "next", "other/next@580.65")
    assert done.returncode == 2
    sites = " and ".join(str(tmp_path / each / "site") for each in ("next", "other/next"))
    assert f"two toolchains are named next: {sites}; rename one's folder" in " ".join(done.stderr.split())
    done = compare(library, "next", "other/../next@580.65", "--json")
    assert [each["static"] for each in json.loads(done.stdout)["operators"]] == ["identical"] * 2


def test_an_unknown_toolchain_is_a_sentence(library: Path) -> None:
    done = compare(library, "installed", "none")
    assert done.returncode == 2
    assert "no toolchain is named none in" in done.stderr


def test_a_report_of_other_toolchains_is_refused(library: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        make_toolchain(tmp_path, name, label="same")
    assert compare(library, "first", "second", "--report", "r.json").returncode == 0
    done = compare(library, "second", "first", "--report", "r.json")
    assert done.returncode == 2
    assert "r.json compares first → second; name another file for this report" in done.stderr


def test_a_case_is_not_written_over_a_folder_that_exists(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("{}")
    done = run_here(
        *("toolchain", "reproduce", str(tmp_path / "r.json"), "double", "64", "--out", str(tmp_path)),
        environment={},
        folder=tmp_path,
        program=main,
    )
    assert (done.returncode, "Invalid value for --out" in done.stderr) == (2, True)
