"""`tilewatch baselines`: another version of a baseline's library is added, listed and removed."""

import json
from pathlib import Path

from tests.kernels.fixtures.small_wheels import write_wheel
from tests.worker.cli.conftest import Tilewatch
from tilewatch.kernels.toolchains.toolchain import list_toolchains
from tilewatch.worker.settings import Settings


def test_an_environment_from_its_adding_to_its_removal(
    tilewatch: Tilewatch, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    write_wheel(tmp_path / "wheels", "sgl-deep-gemm", "0.2.5", {"deep_gemm/__init__.py": b"VERSION = 5"})
    wheels = ("--wheels", str(tmp_path / "wheels"))
    assert "added next;" in tilewatch("baselines", "add", "next", "sgl_deep_gemm==0.2.5", *wheels)
    (row,) = json.loads(tilewatch("baselines", "list", "--json"))
    assert (row["name"], row["packages"]) == ("next", {"sgl-deep-gemm": "0.2.5"})
    (environment,) = list_toolchains(settings.baseline_environments)
    assert environment.folder is not None
    assert (environment.folder / "deep_gemm" / "__init__.py").read_text() == "VERSION = 5"
    assert "is in" in tilewatch("baselines", "add", "next", "sgl-deep-gemm==0.2.5", *wheels, fails=True)
    assert tilewatch("baselines", "remove", "next") == "removed next\n"
    assert "these are: none" in tilewatch("baselines", "remove", "next", fails=True)


def test_packages_of_no_baseline_are_refused(tilewatch: Tilewatch, settings: Settings) -> None:
    sentence = " ".join(tilewatch("baselines", "add", "next", "numpy==2.0.0", fails=True).split())
    assert "no baseline is of numpy; expected sgl-deep-gemm or torch" in sentence
    assert not settings.baseline_environments.exists()
