"""Two libraries whose host code needs two versions of a package, each recorded by the Python of a real environment."""

import ast
import importlib.metadata
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.fixtures import needs_package
from tests.kernels.fixtures.owner_environment import find_packages, make_environment
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.children import interpreters, sandbox
from tilewatch.kernels.children.child_process import ROOT
from tilewatch.kernels.children.interpreters import BadInterpreter
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.library_errors import LibraryError, PackageMissing

KERNEL, PROBLEM = "doubled", "8x64:bf16"


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Interpreters of two environments, whose packages differ in version."""
    made = []
    for tiles in ((16, 32), (64,)):
        folder = tmp_path_factory.mktemp("environment")
        made.append(make_environment(folder))
        needs_package.write_package(find_packages(folder), *tiles)
    return made[0], made[1]


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Path]:
    """A watch folder whose host code imports a package that Tilewatch's own environment lacks."""
    watch = needs_package.write_repository(tmp_path / "repository", watch=needs_package.WATCH_OF_PACKAGE) / "watch"
    yield watch
    interpreters.use(watch, None)


def test_each_library_is_described_with_the_version_that_its_environment_has(
    environments: tuple[Path, Path], library: Path, tmp_path: Path
) -> None:
    other = needs_package.write_repository(tmp_path / "other", watch=needs_package.WATCH_OF_PACKAGE) / "watch"
    with pytest.raises(PackageMissing, match="No module named 'host_package'"):
        catalog.read(library, arch="sm_90")
    for folder, python in zip((library, other), environments, strict=True):
        interpreters.use(folder, python)
    found = [[trial.config for trial in catalog.read(folder, arch="sm_90")[0].trials] for folder in (library, other)]
    assert found == [[{"tile": 16}, {"tile": 32}], [{"tile": 64}]]


def test_an_environment_without_a_compiler_gives_the_code_of_tilewatchs_own(
    environments: tuple[Path, Path], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Compiler((tmp_path / "store").as_uri()) as compiler:
        interpreters.use(library, environments[1])
        theirs = compiler.compile(library, KERNEL, PROBLEM, {"tile": 64}, "sm_90")
        interpreters.use(library, None)
        monkeypatch.setenv("PYTHONPATH", str(needs_package.write_package(tmp_path / "packages")))
        ours = compiler.compile(library, KERNEL, PROBLEM, {"tile": 64}, "sm_90")
        interpreters.use(library, environments[1])
        compiler.trace(library, KERNEL, PROBLEM, {"tile": 64}, "sm_90", code_key="sent")
        interpreters.use(library, "this node has none")
        sent = compiler.compile(library, KERNEL, PROBLEM, {"tile": 64}, "sm_90", code_key="sent")
        with pytest.raises(PackageMissing, match="this node has none"):
            compiler.compile(library, KERNEL, PROBLEM, {"tile": 64}, "sm_90", code_key="another")
    assert (theirs.status, theirs.failure) == ("ok", None)
    assert (sent.content_key, sent.reused) == (theirs.content_key, True)
    assert (ours.content_key, ours.reused) == (theirs.content_key, True)


SPY = """
import json, os, sys
import tilewatch.tuned  # which nothing has imported before the sandbox
def attempt(act):
    try:
        return f"answered: {act()!r}"[:60]
    except OSError as error:
        return type(error).__name__
raise RuntimeError("found " + json.dumps({
    "prefix": sys.prefix,
    "own": attempt(lambda: len(os.listdir(sys.prefix))),
    "compiler": attempt(lambda: open(TILEIRAS, "rb").read(4)),
    "secret": attempt(lambda: open(SECRET).read()),
    "other environment": attempt(lambda: os.listdir(OTHER)),
    "parent's environment": attempt(lambda: open(f"/proc/{os.getppid()}/environ").read()),
    "token": str("FORGE_TOKEN" in os.environ),
    "modules": " ".join(name for name in ("numpy", "pydantic", "torch") if hasattr(sys.modules.get(name), "__file__")),
    "path": " ".join(sys.path),
}))
"""


@pytest.mark.skipif(not sandbox.landlock_version(), reason="this kernel has no Landlock")
def test_a_library_reads_its_environment_and_no_secret(
    environments: tuple[Path, Path], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_TOKEN", "secret")
    secret, other = tmp_path / "secret", environments[1].parents[1]
    secret.write_text("secret")
    tileiras = f"{interpreters.find_lent_packages()}/nvidia/cu13/bin/tileiras"
    paths = {"SECRET": secret, "OTHER": other, "TILEIRAS": tileiras}
    stated = "".join(f"{name} = {str(path)!r}\n" for name, path in paths.items())
    (library / "operators.py").write_text(stated + SPY)
    interpreters.use(library, environments[0])
    with pytest.raises(LibraryError) as raised:
        catalog.read(library, arch="sm_90")
    text = str(raised.value)
    found = json.loads(text[text.index("{") : text.index("}") + 1])
    own = {name: found.pop(name) for name in ("own", "prefix", "path", "compiler")}
    refused = dict.fromkeys(("secret", "other environment", "parent's environment"), "PermissionError")
    assert found == {**refused, "token": "False", "modules": ""}
    assert own["prefix"] == str(environments[0].parents[1])
    assert own["own"].startswith("answered")
    assert "ELF" in own["compiler"]
    assert not any(folder in own["path"] for folder in (sys.prefix, str(ROOT)))


def test_an_interpreter_that_cannot_record_is_named(library: Path, tmp_path: Path) -> None:
    for python in (Path("/bin/false"), tmp_path / "removed"):
        interpreters.use(library, python)
        with pytest.raises(BadInterpreter, match=f"{python} does not run a library"):
            catalog.read(library, arch="sm_90")


def test_an_environment_without_cutile_is_named_with_what_is_missing(library: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    interpreters.use(library, python)
    with pytest.raises(LibraryError, match=f"{python} has no cuda-tile"):
        catalog.read(library, arch="sm_90")


def test_an_environment_with_another_cutile_is_refused_with_both_versions(library: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "old")
    needs_package.write_package(site := find_packages(tmp_path / "old"))
    (info,) = site.glob("cuda_tile-*.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cuda-tile\nVersion: 1.6.5\n")
    info.rename(site / "cuda_tile-1.6.5.dist-info")
    interpreters.use(library, python)
    own = importlib.metadata.version("cuda-tile")
    with (
        Compiler((tmp_path / "store").as_uri()) as compiler,
        pytest.raises(BuildError, match=rf"cuda-tile 1\.6\.5 .*, but .* cuda-tile {own} "),
    ):
        compiler.compile(library, KERNEL, PROBLEM, {"tile": 64}, "sm_90")


LIST_MODULES = """
import sys
from tilewatch.kernels.child import import_role
for role in ("catalog", "validate", "propose", "trace"):
    import_role(role)
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("tilewatch") and module.__file__))
"""

NEW_IN_3_11 = {"StrEnum", "Self", "UTC", "assert_never", "reveal_type", "LiteralString", "Never", "NotRequired"}
"""Names that a reader of the standard library of Python 3.11 may take for granted."""
ADDED_IN_3_11 = {"co_qualname", "add_note", "co_positions"}
"""Attributes of objects, for the same reason."""


def test_what_records_is_of_the_oldest_python_of_cuda_tile() -> None:
    files = subprocess.run([sys.executable, "-c", LIST_MODULES], check=True, capture_output=True, text=True).stdout
    assert len(files.split()) > 50
    for file in files.split():
        tree = ast.parse(Path(file).read_text(), file, feature_version=(3, 10))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        named = {each.name for node in imports for each in node.names}
        assert not named & (NEW_IN_3_11 | {"tomllib"}), file
        assert not {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & ADDED_IN_3_11, file
        calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert not [each for each in calls if each.startswith("warnings.catch_warnings(") and "action" in each], file
