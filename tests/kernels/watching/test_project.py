"""What a repository may do to its modules: the checkout's own ones are known, and nothing else is taken for one."""

import inspect
import shutil
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.catalog.catalog import read
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.watching.project import Project, activate, compile_file

REPOSITORY = Path(__file__).parent / "fixtures" / "foreign_repository"
HOST = "src/tiny_ops/host.py"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    return tmp_path / "repository"


def code_keys(root: Path) -> list[str]:
    return [trial.code_key for plan in read(root / "watch", arch="sm_90", kernel="tuned") for trial in plan.trials]


def add(root: Path, line: str) -> None:
    """Adds a line to the end of the host code."""
    with (root / HOST).open("a") as file:
        file.write(f"\n{line}\n")


def test_a_module_may_have_a_second_name(root: Path) -> None:
    add(root, "import sys; sys.modules['tiny_ops.old_name'] = sys.modules[__name__]")
    assert len(code_keys(root)) == 16


def test_a_module_may_be_machine_code(root: Path) -> None:
    """As setup.py builds one into the working tree."""
    built = root / "src" / "built.so"
    built.write_bytes(b"\x7fELF\0")
    add(root, "import sys, types\nmodule = sys.modules['built'] = types.ModuleType('built')")
    add(root, f"module.__file__ = '{built}'")
    before = code_keys(root)
    built.write_bytes(b"\x7fELF\1")
    assert not set(code_keys(root)) & set(before)


def test_a_file_that_host_code_loads_by_its_path_is_the_commit_s_code(root: Path) -> None:
    """Or else a changed kernel would be measured with the machine code of the last commit."""
    add(root, "import importlib.util, pathlib")
    add(
        root, "spec = importlib.util.spec_from_file_location('by_path', pathlib.Path(__file__).with_name('by_path.py'))"
    )
    add(root, "spec.loader.exec_module(importlib.util.module_from_spec(spec))")
    file = (root / HOST).with_name("by_path.py")
    file.write_text("FACTOR = 2")
    before = code_keys(root)
    file.write_text("FACTOR = 2  # a comment")
    assert code_keys(root) == before
    file.write_text("FACTOR = 3")
    assert not set(code_keys(root)) & set(before)


def test_what_is_installed_inside_the_working_tree_is_not_the_commit_s(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment lies in the repository; its packages are part of the toolchain."""
    installed = root / ".venv" / "lib" / "python3" / "site-packages"
    installed.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    add(root, "import installed_package")
    (installed / "installed_package.py").write_text("NUMBER = 1")
    before = code_keys(root)
    (installed / "installed_package.py").write_text("NUMBER = 2")
    assert code_keys(root) == before


def test_a_checkout_behind_a_link_is_the_same_code(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    assert code_keys(link) == code_keys(root)


def test_host_code_may_look_whether_the_search_of_old_is_installed(root: Path) -> None:
    add(root, "import importlib.util\nassert importlib.util.find_spec('cuda.tile_experimental') is not None")
    assert len(code_keys(root)) == 16


def change(root: Path, *changes: tuple[str, str]) -> None:
    """Changes the host code, in the order given."""
    text = (root / HOST).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (root / HOST).write_text(text)


def test_host_code_may_remember_its_config_in_an_ordered_dict(root: Path) -> None:
    change(root, ("_best = {}", "import collections\n_best = collections.OrderedDict()"))
    assert len(set(code_keys(root))) == len(set(code_keys(REPOSITORY)))


def test_host_code_that_remembers_its_config_for_ever_is_not_taken_for_one_config(root: Path) -> None:
    """Of configs that are hints alone, all would be the one that was found first."""
    change(
        root,
        ("_best = {}", "_best = SimpleNamespace(config=None)"),
        ("if name not in _best:", "if _best.config is None:"),
        ("_best[name]", "_best.config"),
        ("tile=tile, occupancy=occupancy", "occupancy=occupancy"),
        ("config.tile", "64"),
        ("best.tile", "64"),
    )
    with pytest.raises(LibraryError, match="the host code of tuned searches only once"):
        code_keys(root)


@pytest.mark.parametrize("character", ["\f", "\v", "\x1c", "\x85", "\u2028", "\r"])
def test_a_kernel_s_source_is_found_below_characters_that_end_no_line(tmp_path: Path, character: str) -> None:
    """cuTile compiles the lines that inspect finds. Editors put form feeds between sections."""
    activate(project := Project(tmp_path, ()))
    names: dict[str, Any] = {}
    source = f"# above{character}\ndef before():\n    pass\ndef found():\n    return 1\n"
    exec(compile_file(project, str(tmp_path / "ops.py"), source.encode()), names)  # noqa: S102 - as watch files run
    assert inspect.getsource(names["found"]) == "def found():\n    return 1\n"
    activate(None)
