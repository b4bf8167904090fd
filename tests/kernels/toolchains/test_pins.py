"""The compiler that a commit pins is read from its lists, and a toolchain is found that has it."""

from dataclasses import replace

import pytest

from tilewatch.kernels.toolchains.packages import NEEDED, BadPackages
from tilewatch.kernels.toolchains.pins import PinnedToolchain, find_change, find_toolchain, read_pins
from tilewatch.kernels.toolchains.toolchain import Package, Toolchain

INSTALLED = dict.fromkeys(NEEDED, "13.4.92") | {"cuda-tile": "1.7.0"}
OLD = {"nvidia-cuda-tileiras": "13.4.92"}
NEW = {"nvidia-cuda-tileiras": "13.5.37"}


@pytest.mark.parametrize(
    ("line", "pins"),
    [
        ("cuda-tile==1.7.0 \\", {"cuda-tile": "1.7.0"}),
        ("nvidia-cuda-tileiras==13.4.92 ; platform_machine == 'x86_64' \\", OLD),
        ('  "CUDA_Tile[tileiras] === 1.7.0",', {"cuda-tile": "1.7.0"}),
        ('dependencies = ["cuda-tile==1.6.0", "nvidia-cuda-tileiras==13.4.92"]', {"cuda-tile": "1.6.0", **OLD}),
        ('"cuda-tile>=1.7,<1.8"', {}),
        ("cuda-tile==1.7.*", {}),
        ("# cuda-tile==1.7.0", {}),
        ("my-cuda-tile==1.0", {}),
        ("cuda-tile-extras==1.0", {}),
    ],
)
def test_a_pin_is_one_version_of_a_package(line: str, pins: dict[str, str]) -> None:
    assert read_pins([line]) == pins


def test_a_package_that_lists_pin_to_two_versions_is_not_pinned() -> None:
    assert read_pins(
        ["cuda-tile==1.7.0", "cuda-tile==1.7.0", "nvidia-cuda-tileiras==1", "nvidia-cuda-tileiras==2"]
    ) == {"cuda-tile": "1.7.0"}


def test_only_what_both_commits_pin_can_change() -> None:
    assert find_change(OLD, NEW) == ("nvidia-cuda-tileiras",)
    assert find_change({**OLD, "cuda-tile": "1.6.0"}, {**NEW, "cuda-tile": "1.7.0"}) == ("cuda-tile", *NEW)
    assert find_change(OLD, OLD) == find_change({}, NEW) == find_change(OLD, {}) == ()


def test_a_toolchain_is_the_installed_one_or_one_that_has_the_versions_or_a_command_to_add_it() -> None:
    changed = ("nvidia-cuda-tileiras",)
    assert find_toolchain(OLD, changed, (), INSTALLED) == PinnedToolchain("installed", None)
    command = "tilewatch toolchain add cuda-tileiras-13.5.37 nvidia-cuda-tileiras==13.5.37"
    assert find_toolchain(NEW, changed, (), INSTALLED) == PinnedToolchain("cuda-tileiras-13.5.37", command)
    versions = dict.fromkeys(NEEDED, "13.5.37") | {"cuda-tile": "1.7.0"}
    there = Toolchain("next", None, tuple(Package(name, version, None) for name, version in versions.items()))
    other = Toolchain("other", None, (Package("cuda-tile", "1.6.0", None), *there.packages[1:]))
    assert find_toolchain(NEW, changed, (other, there), INSTALLED) == PinnedToolchain("next", None)
    nvcc = Package("nvidia-cuda-nvcc", "13.5.33", None)
    earlier = replace(there, packages=(nvcc, *(each for each in there.packages if each.package != nvcc.package)))
    assert find_toolchain(NEW, changed, (other, earlier), INSTALLED) == PinnedToolchain("next", None)


def test_pins_that_do_not_compile_together_are_refused() -> None:
    with pytest.raises(BadPackages, match="is not installed here"):
        find_toolchain({"cuda-tile": "1.6.0"}, ("cuda-tile",), (), {})
