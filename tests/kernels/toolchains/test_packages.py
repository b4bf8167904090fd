"""What a person names becomes a whole list of packages, or a sentence."""

import pytest
from packaging.specifiers import SpecifierSet

from tilewatch.kernels.toolchains.packages import (
    NEEDED,
    BadPackages,
    allow_only,
    complete,
    is_allowed,
    read_wanted,
)

INSTALLED = {
    "cuda-tile": "1.7.0",
    "nvidia-cuda-tileiras": "13.4.92",
    "nvidia-cuda-nvcc": "13.4.92",
    "nvidia-nvvm": "13.4.92",
    "nvidia-nvjitlink": "13.5.37",
}


def test_nvidia_s_packages_follow_tileiras_unless_they_are_named() -> None:
    chosen = complete(read_wanted(["nvidia_cuda_TileIRas==13.5.37", "nvidia-nvvm==13.5.40"]), INSTALLED)
    assert chosen == {
        "cuda-tile": SpecifierSet("==1.7.0"),
        "nvidia-cuda-tileiras": SpecifierSet("==13.5.37"),
        "nvidia-cuda-nvcc": SpecifierSet(">=13.5,<=13.5.37"),
        "nvidia-nvvm": SpecifierSet("==13.5.40"),
        "nvidia-nvjitlink": SpecifierSet(">=13.5,<=13.5.37"),
    }


def test_nvidia_s_packages_have_a_local_label_with_tileiras() -> None:
    """No range may end with a label."""
    chosen = complete({"nvidia-cuda-tileiras": "13.5.37+own"}, INSTALLED)
    assert {str(chosen[name]) for name in NEEDED if name != "cuda-tile"} == {"==13.5.37+own"}


@pytest.mark.parametrize(
    ("version", "allowed", "expected"),
    [
        ("13.3.33", ">=13.3,<=13.3.36", True),
        ("13.3.36", ">=13.3,<=13.3.36", True),
        ("13.3.37", ">=13.3,<=13.3.36", False),
        ("13.2.99", ">=13.3,<=13.3.36", False),
        ("13.4.92", "==13.4.92", True),
        ("13.4.92+next", "==13.4.92", False),
        ("13.4.92+next", "==13.4.92+next", True),
        ("13.4.92", "==13.4.92+next", False),
        (None, "==13.4.92", False),
    ],
)
def test_a_version_is_allowed_inside_the_range_and_with_a_label_that_is_named(
    version: str | None, allowed: str, expected: bool
) -> None:
    assert is_allowed(version, SpecifierSet(allowed)) == expected


def test_without_tileiras_the_rest_is_as_installed() -> None:
    chosen = complete({"cuda-tile": "1.6.0"}, INSTALLED)
    assert chosen == {name: allow_only(version) for name, version in {**INSTALLED, "cuda-tile": "1.6.0"}.items()}


@pytest.mark.parametrize(
    ("wanted", "installed", "sentence"),
    [
        ([], INSTALLED, "name a package, such as nvidia-cuda-tileiras==13.5.37"),
        (["cuda-tile"], INSTALLED, "'cuda-tile' names no version; expected PACKAGE==VERSION, such as cuda-tile==1.7.0"),
        (["cuda-tile>=1.7"], INSTALLED, "'cuda-tile>=1.7' names no version"),
        (["--target==1"], INSTALLED, "'--target==1' names no version"),
        (["torch==2.9"], INSTALLED, "torch is not part of a toolchain; its packages are cuda-tile, "),
        (["cuda-tile==1.6.0", "cuda-tile==1.7.0"], INSTALLED, "cuda-tile is named twice, with 1.6.0 and 1.7.0"),
        (
            ["nvidia-cuda-nvcc==13.5.37"],
            INSTALLED,
            "13.5.37, nvidia-nvvm 13.4.92 do not compile together",
        ),
        (["nvidia-cuda-tileiras==13.5.37"], {}, "cuda-tile is not installed here, so its version must be named"),
    ],
)
def test_what_makes_no_toolchain_is_a_sentence(wanted: list[str], installed: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadPackages) as refused:
        complete(read_wanted(wanted), installed)
    assert sentence in str(refused.value)
