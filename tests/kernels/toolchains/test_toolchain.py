"""Toolchains under a root are found by name, and a half-made one is none."""

import shutil
from pathlib import Path

import pytest

from tests.kernels.fixtures.second_toolchain import make_toolchain
from tilewatch.kernels.toolchains import toolchain
from tilewatch.kernels.toolchains.toolchain import (
    LIST,
    Package,
    Toolchain,
    UnknownToolchain,
    find_toolchain,
    is_name,
    list_toolchains,
)

HASH = "7a" * 32


def test_a_toolchain_is_read_from_its_list(tmp_path: Path) -> None:
    (tmp_path / "next").mkdir()
    (tmp_path / "next" / "requirements.txt").write_text(
        f"# what `tilewatch toolchain add` wrote\ncuda-tile==1.7.0 --hash=sha256:{HASH}\n"
    )
    (tmp_path / ".next.part").mkdir()
    (tmp_path / ".next.part" / "requirements.txt").write_text(f"cuda-tile==1.6.0 --hash=sha256:{HASH}\n")
    (tmp_path / "empty").mkdir()
    expected = Toolchain("next", tmp_path / "next" / "site", (Package("cuda-tile", "1.7.0", HASH),))
    assert list_toolchains(tmp_path) == (expected,)
    assert find_toolchain(tmp_path, "next") == expected


def test_the_installed_toolchain_has_no_folder_and_an_unknown_name_is_answered_with_the_known(tmp_path: Path) -> None:
    assert find_toolchain(tmp_path, "installed") == Toolchain("installed", None)
    assert list_toolchains(tmp_path / "nowhere") == ()
    make_toolchain(tmp_path, "next")
    with pytest.raises(UnknownToolchain, match=r"no toolchain is named other in .*; these are: installed, next$"):
        find_toolchain(tmp_path, "other")


def test_a_toolchain_that_is_removed_meanwhile_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile job under another toolchain failed with a traceback."""
    for name in ("gone", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / LIST).write_text(f"cuda-tile==1.7.0 --hash=sha256:{HASH}\n")

    def remove_meanwhile(name: str) -> bool:
        shutil.rmtree(tmp_path / "gone", ignore_errors=True)
        return is_name(name)

    monkeypatch.setattr(toolchain, "is_name", remove_meanwhile)
    assert [each.name for each in list_toolchains(tmp_path)] == ["here"]
