"""Toolchains are installed with real pip from a folder of wheels, whole or not at all."""

import fcntl
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.kernels.fixtures.small_wheels import TILEIRAS, write_wheel, write_wheels
from tilewatch.kernels.toolchains.install import NotInstalled, find_hashes, install, remove
from tilewatch.kernels.toolchains.packages import allow_only
from tilewatch.kernels.toolchains.toolchain import (
    Package,
    Toolchain,
    UnknownToolchain,
    find_toolchain,
    hash_list,
    list_toolchains,
    measure_disk_bytes,
)


def allow(versions: Mapping[str, str]) -> dict[str, SpecifierSet]:
    return {name: allow_only(version) for name, version in versions.items()}


def accept(_: Toolchain) -> None:
    """The check of a test that is about something else."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "toolchains"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], tuple[Package, ...]]:
    """A folder of wheels, their versions, and as what pip lists them."""
    folder = tmp_path_factory.mktemp("made")
    versions = write_wheels(folder, "next")
    return folder, versions, find_hashes(allow(versions), folder)


@pytest.fixture
def wheels(made: tuple[Path, object, object], tmp_path: Path) -> Path:
    """Those wheels in a folder of the test's own."""
    return Path(shutil.copytree(made[0], tmp_path / "wheels"))


@pytest.fixture
def versions(made: tuple[object, dict[str, str], object]) -> dict[str, str]:
    return dict(made[1])


@pytest.fixture
def packages(made: tuple[object, object, tuple[Package, ...]]) -> tuple[Package, ...]:
    return made[2]


def list_left(root: Path) -> list[str]:
    return sorted(each.name for each in root.iterdir() if each.name != ".lock")


def test_a_toolchain_is_whole_when_it_is_checked_and_gone_when_it_is_removed(
    root: Path, wheels: Path, versions: dict[str, str], packages: tuple[Package, ...]
) -> None:
    checked: list[Toolchain] = []
    made = install(root, "next", packages, wheels, checked.append)
    assert {each.package: each.version for each in made.packages} == versions
    assert made == find_toolchain(root, "next")
    assert made.folder is not None
    assert (made.folder / TILEIRAS).stat().st_mode & 0o111
    (early,) = checked
    assert early.folder != made.folder, "nobody finds it by its name before it is checked"
    assert measure_disk_bytes(made) > (made.folder / "cuda" / "tile" / "_compile.py").stat().st_size
    copy = install(root, "copy", packages, wheels, accept)
    assert hash_list(copy) == hash_list(made)
    remove(root, "next")
    assert list_left(root) == ["copy"]
    with pytest.raises(UnknownToolchain):
        remove(root, "next")
    with pytest.raises(NotInstalled, match="belongs to Tilewatch itself"):
        remove(root, "installed")


def test_nothing_is_left_of_a_toolchain_that_fails_its_check(
    root: Path, wheels: Path, packages: tuple[Package, ...]
) -> None:
    def refuse(_: Toolchain) -> None:
        raise NotInstalled("it does not compile")

    with pytest.raises(NotInstalled, match="it does not compile"):
        install(root, "next", packages, wheels, refuse)
    assert list_left(root) == []


def test_a_wheel_that_is_not_the_listed_one_is_refused(
    root: Path, wheels: Path, versions: dict[str, str], packages: tuple[Package, ...]
) -> None:
    write_wheel(wheels, "nvidia-nvvm", versions["nvidia-nvvm"], {"nvidia/cu13/lib/other": b"other"})
    with pytest.raises(NotInstalled, match="DO NOT MATCH THE HASHES"):
        install(root, "next", packages, wheels, accept)
    assert list_left(root) == []


def test_one_version_has_one_content(
    root: Path, wheels: Path, versions: dict[str, str], packages: tuple[Package, ...]
) -> None:
    """Cubins are kept under versions: another tileiras of the same version would be answered with the first's code."""
    install(root, "next", packages, wheels, accept)
    write_wheel(wheels, "nvidia-cuda-tileiras", versions["nvidia-cuda-tileiras"], {TILEIRAS: b"#!/bin/sh\nexit 1\n"})
    with pytest.raises(NotInstalled, match=rf"is not that of the toolchain next: {TILEIRAS} differs.*\+next\+other$"):
        install(root, "other", find_hashes(allow(versions), wheels), wheels, accept)
    assert list_left(root) == ["next"]


def test_a_wheel_of_the_installed_version_with_other_content_is_refused(root: Path, tmp_path: Path) -> None:
    plain = write_wheels(tmp_path / "made", "x")
    for labelled in (tmp_path / "made").glob("*+x-*.whl"):
        labelled.unlink()  # pip takes a version with a label for the newer one
    versions = {name: version.removesuffix("+x") for name, version in plain.items()}
    for name, version in versions.items():
        write_wheel(tmp_path / "made", name, version, {"cuda/tile/__init__.py": b""} if name == "cuda-tile" else {})
    with pytest.raises(NotInstalled, match=r"cuda-tile .* is not that of the toolchain installed: cuda/tile"):
        install(root, "next", find_hashes(allow(versions), tmp_path / "made"), tmp_path / "made", accept)


def test_a_missing_wheel_is_a_sentence_with_what_is_there(wheels: Path, versions: dict[str, str]) -> None:
    with pytest.raises(NotInstalled, match=r"^pip cannot install it: .*cuda-tile==9\.9 \(from versions: "):
        find_hashes(allow({**versions, "cuda-tile": "9.9"}), wheels)


def test_the_newest_allowed_version_is_found(tmp_path: Path) -> None:
    """nvcc has no 13.3.36, though tileiras has."""
    for version in ("13.2.86", "13.3.30", "13.3.33", "13.3.73"):
        write_wheel(tmp_path, "nvidia-cuda-nvcc", version, {})
    (found,) = find_hashes({"nvidia-cuda-nvcc": SpecifierSet(">=13.3,<=13.3.36")}, tmp_path)
    assert (found.package, found.version) == ("nvidia-cuda-nvcc", "13.3.33")
    assert len(found.sha256 or "") == 64


def test_what_a_killed_command_left_is_removed_and_two_commands_do_not_meet(
    root: Path, wheels: Path, packages: tuple[Package, ...]
) -> None:
    (root / ".next.part" / "site").mkdir(parents=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NotInstalled, match="another command changes the toolchains"):
            install(root, "other", packages, wheels, accept)
    install(root, "other", packages, wheels, accept)
    assert list_left(root) == ["other"]
    assert [each.name for each in list_toolchains(root)] == ["other"]


@pytest.mark.parametrize("name", ["installed", "", "../up", ".hidden", "-x", "a b", "x.part"])
def test_a_name_that_is_no_folder_or_taken_is_refused(root: Path, name: str) -> None:
    with pytest.raises(NotInstalled, match="cannot be the name of a toolchain"):
        install(root, name, (), None, accept)
    assert not root.exists()
