"""Library files: those of old commits import `kernels.contract`, and a repository may have a package `kernels`."""

import hashlib
import json
import linecache
import sys
from pathlib import Path

import pytest

import tilewatch
from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.loading import LibraryKernel, find, find_first_line, join_failures, list_failures, load
from tilewatch.kernels.catalog.validation import read_weights
from tilewatch.kernels.library_errors import LibraryError, PackageMissing

NEW, OLD = "from tilewatch.kernels.contract", "from kernels.contract"


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of drawn faults put a checkout's root on the path of children, where `kernels` is a package of ours."""
    monkeypatch.setenv("PYTHONPATH", str(Path(tilewatch.__file__).parents[1]))


def planned(library: Path) -> list[str]:
    return [plan.kernel for plan in catalog.read(library, arch="sm_90")]


@pytest.mark.usefixtures("no_root")
def test_a_library_file_of_an_old_commit_loads(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0").replace(NEW, OLD))
    assert OLD in (tmp_path / "double.py").read_text()
    assert planned(tmp_path) == ["double", "double"]


def test_a_library_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0"), encoding="utf-8-sig")
    assert planned(tmp_path) == ["double", "double"]


@pytest.mark.usefixtures("no_root")
@pytest.mark.parametrize("line", [NEW, OLD])
def test_a_folder_kernels_beside_the_library_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """A repository's own package may be called `kernels`, and a worker may be started in it."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("raise ImportError('the kernels of the watched repository')")
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0").replace(NEW, line))
    monkeypatch.chdir(tmp_path)
    assert planned(tmp_path / "library") == ["double", "double"]


@pytest.mark.parametrize("weights", ["None", "['model', 1.0]"])
def test_weights_that_are_no_dict_are_named(tmp_path: Path, weights: str) -> None:
    source = tiny_repository.SOURCE.replace("FACTOR", "2.0")
    (tmp_path / "double.py").write_text(
        source.replace('name="double",', f'name="double", weights=lambda _: {weights},')
    )
    loaded = load(tmp_path)["double"]
    assert isinstance(loaded, LibraryKernel)
    with pytest.raises(LibraryError, match=r"`weights` of 1024 is a .*; expected a dict by model"):
        read_weights(loaded, loaded.kernel.problems[0])


def write(folder: Path, **files: str) -> Path:
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    return folder


SOURCE = tiny_repository.SOURCE.replace("FACTOR", "2.0")
LINE = SOURCE[: SOURCE.index("@ct.kernel")].count("\n") + 1
MUST_DEFINE = "must define KERNELS, a tuple of tilewatch.kernels.contract.Kernel, or operators under @watch"
NO_TABLE = "watch file broken.py needs a table [tool.tilewatch] in the pyproject.toml of its repository: it says where "
WATCH = """
from tilewatch import watch

@watch(problems="8", names="n")
def norm(p):
    pass
"""


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("KERNELS = (3,)", f"library file broken.py {MUST_DEFINE}"),
        (f"{SOURCE}\nKERNELS = list(KERNELS)", f"library file broken.py {MUST_DEFINE}"),
        (f"{SOURCE}\nKERNELS += (3,)", f"library file broken.py {MUST_DEFINE}"),
        ("x = 1", f"library file broken.py {MUST_DEFINE}"),
        (WATCH, NO_TABLE),
        (SOURCE.replace('name="double"', "name=3"), "broken.py: a kernel's name is 3; expected text"),
        (
            SOURCE.replace('name="double"', 'name="total"'),
            "broken.py: 'total' is the kernel of weighted totals; give yours another name",
        ),
        (
            SOURCE.replace('name="double"', 'name="double span"'),
            "broken.py: 'double span' is the series of double's spans; give yours another name",
        ),
        ("def fail():\n    1 // 0\n\n\nfail()", "library file broken.py does not load: ZeroDivisionError: integer "),
        ("raise SystemExit('no GPU')", "library file broken.py does not load: SystemExit: no GPU (line 1)"),
        ("\nimport nowhere.installed", "library file broken.py does not load: ModuleNotFoundError: "),
        ("\nfrom . import x", "library file broken.py, line 2: it imports from '.'; a library file may import "),
    ],
)
def test_a_file_with_a_mistake_is_named_and_costs_no_other_file(tmp_path: Path, source: str, sentence: str) -> None:
    write(tmp_path, broken=source, double=SOURCE, _own="1 // 0")
    assert list(load(tmp_path)) == ["double"]
    (failure,) = list_failures(tmp_path)
    assert str(failure).startswith(sentence)
    assert isinstance(failure, PackageMissing) is ("ModuleNotFoundError" in sentence)
    assert ("watched_library.broken" in sys.modules) is ("name" in sentence), "what was loaded stays"
    with pytest.raises(type(failure), match=r"^there is no kernel 'triple' in .*; .*broken\.py"):
        find(tmp_path, "triple")
    (alone := tmp_path / "alone").mkdir()
    with pytest.raises(type(failure)) as raised:
        load(write(alone, broken=source))
    assert str(raised.value) == str(failure)


def test_the_line_of_an_error_is_the_innermost_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, broken="def fail():\n    1 // 0\n\n\nfail()", syntax="x = 1\ny = (", double=SOURCE)
    first, second = (str(each) for each in list_failures(tmp_path))
    assert first.endswith("ZeroDivisionError: integer division or modulo by zero (line 2)")
    assert second.startswith("library file syntax.py does not load: SyntaxError: '(' was never closed")
    assert second.endswith("(line 2)")


def test_a_folder_may_have_no_kernel_but_not_no_file(tmp_path: Path) -> None:
    assert load(write(tmp_path, empty="KERNELS = ()")) == {}
    (tmp_path / "none").mkdir()
    with pytest.raises(LibraryError, match=r"/none holds no watch file and no library file \(\*\.py\)$"):
        load(write(tmp_path / "none", _own="1 // 0"))


def test_a_path_of_the_project_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tilewatch]\npath = ["src"]\n')
    with pytest.raises(LibraryError, match=r"\[tool\.tilewatch\] has the path 'src', which is not a folder$"):
        load(write(tmp_path, ops=WATCH))
    (tmp_path / "src").mkdir()
    (operator,) = load(write(tmp_path, ops=WATCH)).values()
    assert (operator.kernel.name, operator.file, find_first_line(operator)) == ("norm", "ops.py", 4)


def test_an_operator_that_another_watch_file_imports_is_declared_once(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tilewatch]\npath = ["watch"]\n')
    (tmp_path / "watch").mkdir()
    write(tmp_path / "watch", norms=WATCH, scales=f"from norms import norm\n{WATCH.replace('norm', 'scale')}")
    assert {name: each.file for name, each in load(tmp_path / "watch").items()} == {
        "norm": "norms.py",
        "scale": "scales.py",
    }
    assert list_failures(tmp_path / "watch") == ()


def test_the_source_of_a_kernel_is_that_of_the_folder_that_was_loaded_last(tmp_path: Path) -> None:
    """Files of all commits have the same names, and cuTile reads a kernel's source by name."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        write(folder, double=f"{SOURCE}# {folder.name}\n")
    for folder in (*folders, folders[0]):
        load(folder)
        assert linecache.getlines("watched_library/double.py")[-1] == f"# {folder.name}\n"


def test_an_interrupt_is_no_mistake_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(write(tmp_path, broken="raise KeyboardInterrupt"))


def test_of_two_kernels_of_a_name_the_first_stays(tmp_path: Path) -> None:
    write(tmp_path, a=SOURCE, b="\n\n" + SOURCE)
    found = load(tmp_path)
    assert [each.file for each in found.values()] == ["a.py"]
    (failure,) = list_failures(tmp_path)
    assert str(failure) == (
        f"library file b.py, line {LINE + 2}: double is left out: a.py, line {LINE} declares the name too; give it "
        "another one (of a function under @watch, set __name__)"
    )
    assert find_first_line(found["double"]) == LINE


def test_a_folder_is_loaded_once_for_each_architecture(tmp_path: Path) -> None:
    write(tmp_path, double=SOURCE)
    first = find(tmp_path, "double", "sm_90")
    assert isinstance(first, LibraryKernel)
    assert first.source_sha256 == hashlib.sha256(SOURCE.encode()).hexdigest()
    (tmp_path / "double.py").write_text(f"{SOURCE}# changed\n")
    assert find(tmp_path / ".." / tmp_path.name, "double", "sm_90") is first
    later = find(tmp_path, "double", "sm_100")
    assert isinstance(later, LibraryKernel)
    assert later.source_sha256 != first.source_sha256


def test_a_short_list_of_the_folder_goes_before_the_file_s_own(tmp_path: Path) -> None:
    lists = ", ".join(f'"sm_{arch}": ShortList(lambda _: True, "file", (), "s", "d")' for arch in (90, 100))
    source = SOURCE.replace("import Array, ", "import Array, ShortList, ")
    write(tmp_path, double=source.replace("baselines=()", f"baselines=(), short_lists={{{lists}}}"))
    entry = {"kernels": ["double"], "arch": "sm_90", "axes": ["width"], "configs": [[64]], "compiler": "folder"}
    stored = [{**entry, "gpus": [], "source": "s", "date": "d"}]
    (tmp_path / "short_lists.json").write_text(json.dumps(stored))
    found = find(tmp_path, "double")
    assert isinstance(found, LibraryKernel)
    compilers = {arch: each.compiler for arch, each in found.kernel.short_lists.items()}
    assert compilers == {"sm_90": "folder", "sm_100": "file"}
    listed = found.kernel.short_lists["sm_90"]
    assert [listed.has({"width": width}) for width in (64, 128)] == [True, False]


@pytest.mark.parametrize(
    ("kinds", "joined"),
    [
        ((LibraryError, LibraryError), LibraryError),
        ((LibraryError, PackageMissing), PackageMissing),
        ((PackageMissing, PackageMissing), PackageMissing),
    ],
)
def test_another_machine_is_tried_if_a_package_is_missing_for_one_of_several_files(
    kinds: tuple[type[LibraryError], ...], joined: type[LibraryError]
) -> None:
    failure = join_failures([kind(str(number)) for number, kind in enumerate(kinds)])
    assert (type(failure), str(failure)) == (joined, "0; 1")
