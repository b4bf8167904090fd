"""`tilewatch validate` finds what is wrong with a library file or a watch file, with file and line, without a GPU."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.kernels.fixtures import needs_package
from tests.kernels.fixtures.owner_environment import find_packages, make_environment
from tests.worker.fixtures import tiny_repository
from tilewatch.worker.cli.main import cli

REPOSITORY = Path(__file__).parents[1] / "watching" / "fixtures" / "foreign_repository"
SOURCE = tiny_repository.SOURCE.replace("FACTOR", "2.0")

WRONG = """
import torch
from tilewatch import case, watch
from tiny_ops import host

@watch(problems="8", names="n", baselines=("torhc",))
def no_such_baseline(p):
    return case(run=lambda: host.scale(p.randn(8, p.n)), reference=lambda: None, torch=lambda: None)
"""


@pytest.fixture(autouse=True)
def _cubins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewatch.kernels.compiling.store.DEFAULT_FOLDER", tmp_path / "cubins")


LOOP = """
from tilewatch import case, watch
from tiny_ops import host

for columns in (64, 128, 64):
    def scaled(p, columns=columns):
        x = p.randn(p.rows, columns)
        return case(run=lambda: host.scale_and_sum(x), reference=lambda: None)

    scaled.__name__ = f"scaled_{columns}"
    watch(problems="8", names="rows")(scaled)
"""

SECOND = """
from tilewatch import case, watch
from tiny_ops import host

@watch(problems="{8,16}", names="rows")
def second_fails(p):
    x = p.randn(p.rows, 64)
    return case(run=lambda: host.scale_and_sum(x, 64 if p.rows == 8 else 96), reference=lambda: None)
"""


def validate(*arguments: Path | str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(cli, ["validate", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout.splitlines()


def test_operators_of_a_repository_are_recorded_and_compiled() -> None:
    code, lines = validate(REPOSITORY / "watch" / "operators.py")
    assert (code, lines) == (0, ["7 operators compiled for sm_90, 0 findings"])


def test_without_files_the_folder_is_the_one_that_the_repository_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a pre-commit hook runs it: from anywhere in the repository."""
    monkeypatch.chdir(REPOSITORY / "src")
    assert validate() == (0, ["7 operators compiled for sm_90, 0 findings"])


def test_a_finding_has_file_and_line_and_costs_its_own_operator_only(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    watch = tmp_path / "repository" / "watch"
    (watch / "wrong.py").write_text(WRONG)
    (watch / "missing.py").write_text("import math\nimport not_installed_anywhere\n")
    code, lines = validate(watch / "wrong.py", watch / "missing.py")
    assert code == 1
    assert lines[0].startswith("missing.py:2: watch file missing.py does not load: ModuleNotFoundError")
    assert lines[1] == (
        "wrong.py:6: watch file wrong.py, line 6: no_such_baseline has no baseline 'torhc'; it has torch, copy"
    )
    assert lines[2:] == ["0 operators compiled for sm_90, 2 findings"]


def write_watch_file(tmp_path: Path, source: str) -> Path:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    file = tmp_path / "repository" / "watch" / "other.py"
    file.write_text(source)
    return file


def test_operators_that_a_loop_declares_are_found_and_one_that_is_left_out_is_a_finding(tmp_path: Path) -> None:
    code, lines = validate(write_watch_file(tmp_path, LOOP))
    assert (code, lines[1:]) == (1, ["2 operators compiled for sm_90, 1 finding"])
    assert lines[0].startswith("other.py:6: library file other.py, line 6: scaled_64 is left out: other.py, line 6")


def test_every_problem_is_compiled_for_every_architecture(tmp_path: Path) -> None:
    """A tile of 96 is no power of two, and only the second problem has it."""
    code, lines = validate(write_watch_file(tmp_path, SECOND), "--arch", "sm_90,sm_100")
    assert (code, lines[2:]) == (1, ["0 operators compiled for sm_90, sm_100, 2 findings"])
    for line, arch in zip(lines, ("sm_90", "sm_100"), strict=False):
        assert line.startswith(f"other.py:5: second_fails on 16 does not compile for {arch} with ")


def test_progress_is_told_from_the_first_step() -> None:
    done = CliRunner().invoke(cli, ["validate", str(REPOSITORY / "watch" / "operators.py"), "--limit", "20"])
    assert done.stderr.splitlines()[:2] == [
        "operators.py: tracing for sm_90",
        "operators.py: compiling tuned on 8x64:bf16 for sm_90",
    ]


def test_a_hint_that_host_code_searches_and_never_applies_is_a_finding(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    host = tmp_path / "repository" / "src" / "tiny_ops" / "host.py"
    applied = "scale_rows.replace_hints(occupancy=best.occupancy)"
    assert applied in host.read_text()
    host.write_text(host.read_text().replace(applied, "scale_rows"))
    code, lines = validate(tmp_path / "repository" / "watch" / "operators.py")
    said = "searches the hint occupancy, and asks the compiler for the same code with each value: the host code does"
    assert code == 1
    assert [line.partition(": ")[0] for line in lines if said in line] == ["operators.py:7"]
    assert lines[-1] == "6 operators compiled for sm_90, 1 finding"


@pytest.mark.parametrize(
    ("made", "array"),
    [
        ("p.randn(0, 64)", "float32 in the shape (0, 64)"),
        ('p.zeros(8, 64, dtype="uint32")', "uint32 in the shape (8, 64)"),
    ],
)
def test_an_array_that_no_other_process_can_pass_is_a_finding_unless_the_file_says_why(
    tmp_path: Path, made: str, array: str
) -> None:
    """Or else the first sweep would be refused, with a GPU in hand."""
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    file = tmp_path / "repository" / "watch" / "loop.py"
    source = LOOP.replace("p.randn(p.rows, columns)", made).replace("(64, 128, 64)", "(64,)")
    file.write_text(source)
    code, lines = validate(file)
    assert code == 1
    assert f"loop.py:6: scaled_64 on 8: a launch gets an array of {array}, which only the host code's own" in lines[0]
    file.write_text(source.replace('names="rows"', 'names="rows", not_apart="it has such an array"'))
    assert validate(file)[1][-1].endswith(" 0 findings")


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('{"y": inputs["x"]', '{"z": inputs["x"]', "`reference` gives z, but the kernel writes y"),
        ('config["width"],),\n', 'config["width"], 7),\n', "no parameter of the kernel is left for constant 7"),
        ("ct.store(y,", "ct.store(z,", "does not compile for sm_90"),
    ],
)
def test_a_library_files_kernel_is_checked_too(tmp_path: Path, old: str, new: str, finding: str) -> None:
    assert SOURCE.count(old) == 1
    (tmp_path / "double.py").write_text(SOURCE.replace(old, new))
    code, lines = validate(tmp_path / "double.py")
    assert code == 1
    assert lines[0].startswith("double.py:")
    assert finding in lines[0]
    assert lines[1:] == ["0 operators compiled for sm_90, 1 finding"]


def test_a_finding_gives_a_terminal_no_orders(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text('raise ValueError("\\x1b[2J")\n')
    _, lines = validate(tmp_path / "double.py")
    assert "ValueError: \ufffd[2J" in lines[0]


def test_files_of_two_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    done = CliRunner().invoke(cli, ["validate", str(tmp_path / "a.py"), str(REPOSITORY / "watch" / "operators.py")])
    assert "several folders" in str(done.exception)


def test_a_repository_that_names_no_folder_is_not_taken_for_tilewatchs_own_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner saw "42 operators compiled", which were Tilewatch's."""
    (tmp_path / "pyproject.toml").write_text('[tool.ruff]\nselect = ["I"]\n')
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["validate"])
    assert f"no pyproject.toml in {tmp_path} or above has the table [tool.tilewatch]" in str(done.exception)
    assert done.stderr == ""  # no step was begun


def test_an_operator_without_problems_and_a_file_without_operators_are_findings(tmp_path: Path) -> None:
    """Nothing found is not nothing wrong."""
    (tmp_path / "empty.py").write_text("KERNELS = ()\n")
    code, lines = validate(tmp_path / "empty.py")
    assert (code, lines[0]) == (1, "empty.py: empty.py declares no operator")
    assert lines[-1] == "0 operators compiled for sm_90, 1 finding"
    (tmp_path / "empty.py").write_text(
        tiny_repository.SOURCE.replace("FACTOR", "2.0").replace(
            'problems=(parse("1024"), parse("2048")),', "problems=(),"
        )
    )
    code, lines = validate(tmp_path / "empty.py")
    assert code == 1
    assert "double has no problem" in lines[0]


def test_host_code_is_validated_by_the_python_that_has_its_package(tmp_path: Path) -> None:
    file = needs_package.write_repository(tmp_path / "repository") / "watch" / "operators.py"
    assert validate(file)[0] == 1
    python = make_environment(tmp_path / "environment")
    needs_package.write_package(find_packages(tmp_path / "environment"))
    assert validate(file, "--python", python) == (0, ["1 operator compiled for sm_90, 0 findings"])
