"""Packages that a repository states and Tilewatch's environment lacks: the proposal names them or their file."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kernels.fixtures import needs_package, wheels
from tilewatch.kernels.proposing import proposal
from tilewatch.kernels.proposing.proposal import Proposal, propose
from tilewatch.kernels.proposing.stated_packages import find_stated
from tilewatch.kernels.validating.mistakes import validate_library

DRIVER = """
import torch
from needs_package_ops import double

double(torch.zeros(8, 64, dtype=torch.bfloat16, device="cuda"), 32)
"""
CODE = "def same(value):\n    return value\n"
PROJECT = '[project]\nname = "kernels"\ndependencies = ["numpy>=1", "host_package[fast]==1.0; python_version>\'3\'"]\n'
WAYS = "by `requirements` of [tool.tilewatch], or a Python to `tilewatch watch add`"


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def propose_for(root: Path, **files: str) -> Proposal:
    sources = {"src/needs_package_ops.py": needs_package.HOST.replace("FACTOR", "2"), "run_double.py": DRIVER}
    named = {name.replace("_", "."): text for name, text in files.items()}
    return propose(write(root, {**sources, **named}), "sm_90", root.with_suffix(".cubins").as_uri())


@pytest.fixture
def stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns a requirements file that can be installed and does not name torch."""
    wheels.take_only(monkeypatch, tmp_path / "wheels", tmp_path / "home")
    wheels.write_wheel(tmp_path / "wheels", needs_package.PACKAGE, "1.0", {"host_package.py": CODE})
    wheels.write_installed(tmp_path / "wheels", "numpy")
    return "numpy\nHost.Package==1.0  # rows\n"


def test_a_requirements_file_is_named_and_host_code_runs_with_its_packages(
    stated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "kernels"
    monkeypatch.setattr(proposal, "find_spec", lambda _: None)
    found = propose_for(root, requirements_txt=stated)
    assert found.settings.splitlines()[-1] == 'requirements = "requirements.txt"'
    assert str(found).endswith(
        "# Tilewatch's environment lacks host-package, which requirements.txt states: each node installs the file; for "
        "a GPU add cupy-cuda13x to it.\n# Add to pyproject.toml:\n# [tool.tilewatch]\n"
        '# watch = "watch"\n# path = ["src"]\n# requirements = "requirements.txt"\n'
    )
    assert found.left_out == {}
    assert "needs_package_ops_module.double(x, 32)" in found.text
    root.joinpath("watch", "proposed.py").write_text(found.text)
    assert validate_library(root / "watch", [], ["sm_90"], tmp_path.as_uri()).findings == ()


def test_a_file_that_leaves_pytorch_to_its_reader_does_not_replace_an_environment_with_pytorch(
    stated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposal, "find_spec", lambda name: name)
    found = propose_for(tmp_path / "kernels", requirements_txt=stated)
    assert "requirements =" not in found.settings
    assert "requirements.txt states (it does not bring torch, which its code imports): name another" in found.packages


def test_packages_that_cannot_be_installed_are_named_with_what_pip_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels.take_only(monkeypatch, tmp_path / "wheels", tmp_path / "home")
    found = propose_for(tmp_path / "kernels", requirements_txt="host_package==1.0\n")
    assert "requirements =" not in found.settings
    assert found.packages.startswith(
        "Tilewatch's environment lacks host-package, which requirements.txt states (the packages of requirements.txt "
        "cannot be installed: "
    )
    assert found.packages.endswith(f": name another file of packages {WAYS}")
    assert {each.name for each in found.left_out} == {"double_rows", "sum_rows"}


def test_packages_of_a_pyproject_are_named_with_how_to_give_them(tmp_path: Path) -> None:
    found = propose_for(tmp_path / "kernels", pyproject_toml=PROJECT)
    assert found.packages == (
        "Tilewatch's environment lacks host-package, which pyproject.toml states: name a file that lists them by name "
        f"{WAYS}"
    )
    assert found.settings == '[tool.tilewatch]\nwatch = "watch"\npath = ["src"]'


@pytest.mark.parametrize(
    ("files", "stated"),
    [
        ({}, None),
        ({"requirements.txt": "numpy\ntorch==2.4\ncupy-cuda12x\n# lacking\n"}, None),
        ({"requirements-dev.txt": "lacking\n"}, None),
        ({"pyproject.toml": "[project]\ndependencies = 3\n"}, None),
        ({"pyproject.toml": "[project"}, None),
        ({"requirements.txt": "lacking\n-r more.txt\n"}, ("requirements.txt", ("lacking",), False)),
        (
            {"requirements.txt": "lacking==1.0 \\\n    --hash=sha256:0123abc \\\n    --hash=sha256:456def\n"},
            ("requirements.txt", ("lacking",), True),
        ),
        (
            {"requirements.txt": "numpy\n", "requirements-gpu.txt": "lacking\n"},
            ("requirements-gpu.txt", ("lacking",), True),
        ),
        (
            {"requirements.txt": "lacking\n", "pyproject.toml": PROJECT},
            ("requirements.txt and pyproject.toml", ("lacking", "host-package"), False),
        ),
        (
            {"requirements.txt": "host-package\nlacking", "pyproject.toml": PROJECT},
            ("requirements.txt", ("host-package", "lacking"), True),
        ),
    ],
)
def test_the_file_is_one_that_has_all_that_is_missing(
    tmp_path: Path, files: Mapping[str, str], stated: tuple[str, tuple[str, ...], bool] | None
) -> None:
    found = find_stated(write(tmp_path, files))
    assert (found and (found.file, found.missing, found.text is not None)) == stated


def test_a_link_out_of_the_repository_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"secret": "lacking\n", "kernels/a.py": ""})
    (tmp_path / "kernels" / "requirements.txt").symlink_to(tmp_path / "secret")
    (tmp_path / "kernels" / "pyproject.toml").symlink_to(tmp_path / "secret")
    assert find_stated(tmp_path / "kernels") is None
