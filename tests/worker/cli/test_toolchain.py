"""`tilewatch toolchain`: a second compiler is added, listed, checked by the doctor, and removed."""

import json
from pathlib import Path

from tests.kernels.fixtures.small_wheels import TILEIRAS, write_wheels
from tests.worker.cli.conftest import Tilewatch
from tilewatch.worker.local.doctor import report
from tilewatch.worker.settings import Settings


def test_a_toolchain_from_its_adding_to_its_removal(tilewatch: Tilewatch, settings: Settings, tmp_path: Path) -> None:
    versions = write_wheels(tmp_path / "wheels", "next")
    wheels = ("--wheels", str(tmp_path / "wheels"))
    named = [f"{name}=={version}" for name, version in versions.items()]
    assert "added the toolchain next; it compiles\n" in tilewatch("toolchain", "add", "next", *named, *wheels)
    written = settings.toolchains / "next" / "requirements.txt"
    tilewatch("toolchain", "add", "copy", "--list", str(written), *wheels)
    installed, copy, added = json.loads(tilewatch("toolchain", "list", "--json"))
    assert (installed["name"], installed["sha256"]) == ("installed", None)
    assert (copy["name"], copy["packages"], copy["sha256"]) == ("copy", versions, added["sha256"])
    assert added["sha256"][:12] in tilewatch("toolchain", "list")

    tileiras = settings.toolchains / "copy" / "site" / TILEIRAS
    tileiras.write_text("#!/bin/sh\nexit 1\n")
    found = {each.name: each for each in report(settings)}
    assert found["toolchain next"].ok
    assert found["toolchain copy"].ok is False
    assert "Return code 1" in found["toolchain copy"].found
    assert found["toolchain copy"].fix == "`tilewatch toolchain remove copy` and add it again"

    assert tilewatch("toolchain", "remove", "copy") == "removed the toolchain copy\n"
    assert "these are: installed, next" in tilewatch("toolchain", "remove", "copy", fails=True)


def test_a_toolchain_that_compiles_nothing_is_not_added(
    tilewatch: Tilewatch, settings: Settings, tmp_path: Path
) -> None:
    versions = write_wheels(tmp_path / "wheels", "broken", "exit 3")
    named = [f"{name}=={version}" for name, version in versions.items()]
    sentence = tilewatch("toolchain", "add", "next", *named, "--wheels", str(tmp_path / "wheels"), fails=True)
    assert "gemm_fp8 does not compile for sm_90 with the toolchain next" in sentence
    assert "Return code 3" in sentence
    assert not (settings.toolchains / "next").exists()


def test_packages_and_a_list_exclude_each_other(tilewatch: Tilewatch, tmp_path: Path) -> None:
    written = tmp_path / "requirements.txt"
    written.write_text("")
    assert "name packages, or a list of packages with --list, and not both" in " ".join(
        tilewatch("toolchain", "add", "next", "cuda-tile==1.7.0", "--list", str(written), fails=True).split()
    )
    said = " ".join(tilewatch("toolchain", "add", "next", "--list", str(written), fails=True).replace("│", "").split())
    assert "'--list': " in said
    assert "names no package with its hash" in said
