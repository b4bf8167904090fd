"""`toolchain compare` without a GPU, with real compilers: equal toolchains, one that compiles otherwise, one that
fails."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.kernels.fixtures.second_toolchain import count_compiles, make_toolchain
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.command_line import run_here
from tilewatch.kernels.__main__ import main
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.toolchains import commands, comparison, reproduce
from tilewatch.kernels.comparing.toolchains.comparison import ComparisonWanted
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    ReportFile,
    ToolchainName,
    ToolchainReport,
    find_cubins,
)
from tilewatch.kernels.compiling.compiler import LIMIT_S

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


def make_report(head_code: str = "old") -> ToolchainReport:
    side = CompiledSide({}, "ok", 1.0, 1.0, code_sha256="old", cubin="old")
    head = CompiledSide({}, "ok", 1.0, 1.0, code_sha256=head_code, cubin="new")
    report = ToolchainReport((ToolchainName("old"), ToolchainName("next", packages={"cuda-tile": "2"})), "2026-11-28")
    pair = ToolchainPair("double", "1024", "sm_90", "shipped", (side,), (head,), "next")
    report.pairs[pair.key] = pair
    return report


Asked = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Calls `toolchain compare` and returns what it wants compared, without comparing."""

    def call(names: list[str], code: int = 0, head_code: str = "old", **options: Any) -> dict[str, Any]:
        wanted: list[ComparisonWanted] = []

        def compare_toolchains(asked: ComparisonWanted, on_progress: Callable[[str], None]) -> ToolchainReport:
            wanted.append(asked)
            on_progress("compiling")
            return make_report(head_code)

        monkeypatch.setattr(comparison, "compare_toolchains", compare_toolchains)
        with pytest.raises(typer.Exit) as raised:
            commands.compare(names, **options)
        assert raised.value.exit_code == code
        return asdict(wanted[0])

    return call


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {"archs": commands.ARCHS, "gpu": None, "kernels": (), "problem": None, "retunes": True}),
        ({}, {"fail_over": 0.01, "limit_s": LIMIT_S, "minutes": None, "source": ConfigSource.auto}),
        ({}, {"report": Path("old..next.json"), "names": ("old", "next"), "jobs": commands.CORES}),
        ({"gpu": 0}, {"archs": (), "gpu": 0}),
        ({"gpu": 1, "arch": ["sm_90"]}, {"archs": ("sm_90",), "gpu": 1}),
        ({"kernel": ["a", "b"]}, {"kernels": ("a", "b"), "problem": None}),
        ({"kernel": ["a"], "problem": "1x1"}, {"kernels": ("a",), "problem": "1x1"}),
        ({"limit": 0.5, "fail_over": "2%", "minutes": 9.0}, {"limit_s": 0.5, "fail_over": 0.02, "minutes": 9.0}),
        ({"retune": False, "events": True, "jobs": 7}, {"retunes": False, "may_use_events": True, "jobs": 7}),
        ({"report": Path("r.json"), "configs": ConfigSource.shipped}, {"report": Path("r.json"), "source": "shipped"}),
        ({"recording": [Path("a.gz")]}, {"recordings": (Path("a.gz"),)}),
        ({"library": Path("kernels")}, {"library": Path.cwd() / "kernels"}),
    ],
)
def test_each_option_says_what_is_compared(ask: Asked, options: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = ask(["old", "next"], **options)
    assert {name: found[name] for name in wanted} == wanted


def test_recordings_of_the_installation_are_read_unless_others_are_named(ask: Asked) -> None:
    found = ask(["old", "next"])["recordings"]
    assert [file.name for file in found] == sorted(file.name for file in found)
    assert "h200-80093d04.jsonl.gz" in [file.name for file in found]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"problem": "1x1"}, "--problem needs one --kernel"),
        ({"problem": "1x1", "kernel": ["a", "b"]}, "--problem needs one --kernel"),
        ({"configs": ConfigSource.sweep}, "--configs is auto, recording or shipped"),
        ({"configs": ConfigSource.given}, "--configs is auto, recording or shipped"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(typer.BadParameter, match=sentence):
        commands.compare(["old", "next"], **options)


def test_a_report_is_printed_and_written_to_each_file_that_is_named(
    ask: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"markdown": tmp_path / "r.md", "pins": tmp_path / "pins.txt"}
    ask(["old", "next"], **files)
    printed = capsys.readouterr()
    assert printed.err == "compiling\n"
    assert printed.out.startswith("next is safe to take in place of old on sm_90")
    assert files["markdown"].read_text().startswith("# old → next\n")
    assert files["pins"].read_text().endswith("cuda-tile==2\n")
    ask(["old", "next"], code=2, head_code="new", as_json=True)
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_a_case_is_that_of_the_report_with_its_cubins_and_toolchains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = make_report("new")
    file = tmp_path / "r.json"
    ReportFile(file, report).save()
    written: list[tuple[reproduce.ReproducedCase, Path]] = []
    monkeypatch.setattr(reproduce, "write_case", lambda case, out: written.append((case, out)) or ("README.md", "x"))
    monkeypatch.setattr(comparison, "find_installed_side", lambda name, root: (name, root))
    commands.reproduce(file, "double", "1024", tmp_path / "case", toolchains=tmp_path, library=Path("kernels"))
    ((case, out),) = written
    assert (case.report, case.pair) == (report, report.pairs["double", "1024", "sm_90", "next"])
    assert (case.toolchains, out) == ((("old", tmp_path), ("next", tmp_path)), tmp_path / "case")
    assert (case.library, case.cubins) == (Path.cwd() / "kernels", find_cubins(file))
    assert capsys.readouterr().out == f"{tmp_path}/case: README.md, x\n"
