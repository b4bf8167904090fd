"""The packages that a commit names: installed once per content, by name, from wheels, and imported in the sandbox."""

import importlib.metadata
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernels.fixtures import needs_package, wheels
from tilewatch import processes
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.children import environments, interpreters, sandbox
from tilewatch.kernels.children.interpreters import BadInterpreter
from tilewatch.kernels.compiling.compiler import Compiler

PACKAGE = "def same(value):\n    return value\n"
NewLibrary = Callable[..., Path]


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "wheels"
    wheels.take_only(monkeypatch, folder, tmp_path / "home")
    for version, tiles in {"1.0": [16, 32], "2.0": [64]}.items():
        files = {"host_package.py": f"TILES = {tiles}\n{PACKAGE}"}
        wheels.write_wheel(folder, needs_package.PACKAGE, version, files)
    yield folder
    forget()


@pytest.fixture
def new_library(tmp_path: Path) -> Iterator[NewLibrary]:
    made = []

    def new(name: str, requirements: str) -> Path:
        folder = needs_package.write_repository(tmp_path / name, watch=needs_package.WATCH_OF_PACKAGE)
        (folder / "pyproject.toml").write_text(needs_package.PROJECT + 'requirements = "packages.txt"\n')
        (folder / "packages.txt").write_text(requirements)
        made.append(folder / "watch")
        return made[-1]

    yield new
    for each in made:
        interpreters.use(each, None)


def forget() -> None:
    """Makes this process know of environments what another one would."""
    for lock in environments._held.values():
        lock.close()
    environments._held.clear()


def find_tiles(library: Path) -> list[int]:
    return [trial.config["tile"] for trial in catalog.read(library, arch="sm_90")[0].trials]


def test_two_repositories_get_two_versions_and_the_second_commit_installs_nothing(
    links: Path, new_library: NewLibrary, tmp_path: Path
) -> None:
    first, second = new_library("first", "host_package==1.0"), new_library("second", "host_package == 2.0  # newer")
    assert [find_tiles(each) for each in (first, second)] == [[16, 32], [64]]
    with Compiler((tmp_path / "store").as_uri()) as compiler:
        compiled = compiler.compile(second, "doubled", "8x64:bf16", {"tile": 64}, "sm_90")
    assert (compiled.status, compiled.failure) == ("ok", None)
    for wheel in links.iterdir():
        wheel.unlink()
    forget()
    assert find_tiles(new_library("next commit", "\n# the same\nhost_package==1.0\n")) == [16, 32]


def test_what_pip_says_is_the_failure(links: Path, new_library: NewLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    library = new_library("first", "host_package==3.0")
    with pytest.raises(BadInterpreter, match=r"packages.txt cannot be installed: .*host_package==3.0"):
        find_tiles(library)
    wheels.write_wheel(links, needs_package.PACKAGE, "3.0", {"host_package.py": f"TILES = [32]\n{PACKAGE}"})
    with pytest.raises(BadInterpreter, match="cannot be installed"):
        find_tiles(library)
    monkeypatch.setattr(environments, "AGAIN_S", 0.0)
    assert find_tiles(library) == [32]


def test_pip_builds_nothing(links: Path, new_library: NewLibrary, tmp_path: Path) -> None:
    """A source distribution has a program of its own, which would have a network."""
    source = tmp_path / "source_package-1.0"
    source.mkdir()
    (source / "setup.py").write_text("raise SystemExit('it ran')\n")
    with tarfile.open(links / f"{source.name}.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    with pytest.raises(BadInterpreter, match="No matching distribution found for source_package") as raised:
        find_tiles(new_library("first", "source_package"))
    assert "it ran" not in str(raised.value)


def test_a_package_runs_nothing_before_the_sandbox(links: Path, new_library: NewLibrary, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    write = f"import pathlib, contextlib\nwith contextlib.suppress(OSError): pathlib.Path({str(mark)!r}).write_text('')"
    files = {
        "host_package.py": f"TILES = [16]\n{PACKAGE}",
        "first.pth": f"import sys; exec({write!r})\n",
        "sitecustomize.py": write,
        "cupy/__init__.py": write,
        "tilewatch/__init__.py": write,
    }
    wheels.write_wheel(links, needs_package.PACKAGE, "4.0", files)
    assert find_tiles(new_library("first", "host_package==4.0")) == [16]
    assert not mark.exists() or not sandbox.landlock_version()


def test_pip_gets_its_own_settings_and_reads_the_folders_that_they_name_alone() -> None:
    own = {
        "PIP_INDEX_URL": "https://user:password@host/",
        "PIP_PROXY": "http://proxy:3128/",
        "PIP_FIND_LINKS": "file:///wheels /more/wheels ../beside https://host/root",
        "PIP_CONFIG_FILE": "/settings/pip.conf",
        "https_proxy": "http://proxy:3128/",
        "SSL_CERT_FILE": "/certificates/own.pem",
        "XDG_CONFIG_HOME": "/settings/of/all/programs",
    }
    secrets = {"TILEWATCH_DATABASE_URL": "postgresql://host/", "FORGE_TOKEN": "secret", "XPIP_": "/x", "A_PIP_B": "/y"}
    settings, readable = environments.find_settings({**own, **secrets})
    assert settings == own
    named = [each for each in readable if each not in map(os.path.expanduser, environments.READ_BY_PIP)]
    assert named == ["/wheels", "/more/wheels", "/settings/pip.conf", "/certificates/own.pem"]


def test_a_link_out_of_the_commit_is_not_read(new_library: NewLibrary, tmp_path: Path) -> None:
    library = new_library("first", "")
    secret = tmp_path / "secret"
    secret.write_text("the secret\n")
    (library.parent / "packages.txt").unlink()
    (library.parent / "packages.txt").symlink_to(secret)
    with pytest.raises(BadInterpreter, match=r"^packages.txt is a link out of the commit$"):
        find_tiles(library)
    (library.parent / "packages.txt").unlink()
    with pytest.raises(BadInterpreter, match="there is no file"):
        find_tiles(library)


@pytest.mark.parametrize(
    "line",
    [
        "package @ https://host/package.whl",
        "https://host/package.whl",
        "git+https://host/package",
        "./package",
        "/package.whl",
        "-e .",
        "-r other.txt",
        "-i wheels",
        "--no-binary :all:",
        "package --config-settings=a=b",
        "package==1 ; python_version > '3' --no-binary=:all:",
        "package==${SECRET}",
        "package ; extra == '${SECRET}'",
        "package==1.0 \\\n --global-option=x",
    ],
)
def test_a_line_that_names_anything_but_a_package_is_refused(line: str) -> None:
    with pytest.raises(BadInterpreter, match=r"^packages.txt: '.*' is no package by name"):
        environments.describe("packages.txt", line, None)


def test_a_line_of_any_length_is_quoted_by_its_first_two_hundred_characters() -> None:
    with pytest.raises(BadInterpreter) as refused:
        environments.describe("packages.txt", "-" * 100_000, None)
    assert str(refused.value) == f"packages.txt: '{'-' * 200}' is no package by name; only those are installed"


@pytest.mark.parametrize(
    "line",
    [
        "package",
        "Package_name.x[extra,other]~=1.2,!=1.3.*  # why",
        "package (>=1.0)",
        "package==2.13.0+cpu; python_version >= '3.10' and platform_machine == 'x86_64'",
        "package==1.0 \\\n    --hash=sha256:0123abc \\\n    --hash=sha256:456def",
    ],
)
def test_a_package_by_name_is_taken(line: str) -> None:
    (taken, cutile) = environments.describe("packages.txt", f"# comment\n\n{line}\n", None).lines
    assert taken.startswith(line[:7])
    assert cutile.startswith("cuda-tile==")


def test_an_environment_depends_on_what_is_installed_alone() -> None:
    same = [environments.describe(file, text, None).folder for file, text in (("a", "x==1"), ("b", "# c\nx==1\n"))]
    others = [
        environments.describe("a", text, python).folder for text, python in (("x==2", None), ("x==1", Path("/p")))
    ]
    assert same[0] == same[1]
    assert len({same[0], *others}) == 3


@pytest.mark.parametrize(
    ("line", "is_replaced"),
    [
        ("cuda-tile", True),
        ("cuda_tile[tileiras]", True),
        ("CUDA-tile[tileiras] >= 1.0", True),
        ("cuda-tile (>=1.0,!=1.3.*)", True),
        ("cuda-tile>=1.0; python_version >= '3.10'", True),
        ("CUDA_tile[extra]==1.0", False),
        ("cuda-tile<1.5", False),
        ("cuda-tile==1.*", False),
        ("cuda-tile==1.0 --hash=sha256:0123abc", False),
        ("cuda-tile>=one", False),
    ],
)
def test_an_environment_has_the_cuda_tile_of_tilewatch_unless_its_file_needs_another(
    line: str, is_replaced: bool
) -> None:
    own = f"cuda-tile=={importlib.metadata.version('cuda-tile')}"
    lines = environments.describe("a", f"x==1\n{line}\n", None).lines
    assert lines == ("x==1", own if is_replaced else line)


def test_environments_that_were_used_last_and_those_in_use_are_left(tmp_path: Path) -> None:
    for number in range(environments.KEPT_ENVIRONMENTS + 3):
        (tmp_path / f"{number:02}").mkdir()
        lock = tmp_path / f"{number:02}.lock"
        subprocess.run(["touch", "-d", f"@{1000 + number}", lock], check=True)
    with (tmp_path / "01.lock").open("ab") as used:
        environments.fcntl.flock(used, environments.fcntl.LOCK_SH)
        environments._remove_unused(tmp_path)
    assert [each for each in ("00", "01", "02", "03") if (tmp_path / each).exists()] == ["01", "03"]


def test_an_environment_that_is_used_again_outlives_those_that_were_not(tmp_path: Path) -> None:
    """Even if it is the oldest one. Others may use it too meanwhile, but not remove it."""
    folders = [tmp_path / f"{number:02}" for number in range(environments.KEPT_ENVIRONMENTS + 1)]
    for age, folder in enumerate(folders):
        folder.mkdir()
        folder.with_suffix(".lock").touch()
        os.utime(folder.with_suffix(".lock"), (1000 + age, 1000 + age))
    environment = environments.Environment("packages.txt", ("x==1",), Path("/python"), folders[0])
    environments.provide(environment)
    try:
        assert [each for each in folders if not each.exists()] == [folders[1]]
        with folders[0].with_suffix(".lock").open("ab") as other:
            assert not processes.try_lock(other, environments.fcntl.LOCK_EX), "nobody removes it while it is used"
            assert processes.try_lock(other, environments.fcntl.LOCK_SH), "others may use it too"
    finally:
        forget()
