"""Toolchains under a root are found by name, and a half-made one is none."""

from pathlib import Path

import pytest

from tests.kernels.fixtures.second_toolchain import make_toolchain
from tilewatch.kernels.toolchains.toolchain import Package, Toolchain, UnknownToolchain, find_toolchain, list_toolchains

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
