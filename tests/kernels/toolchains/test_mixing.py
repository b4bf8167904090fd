"""A folder with packages of two toolchains: whose files it has, and that no file leads out of it."""

from pathlib import Path

from tests.kernels.fixtures.second_toolchain import TILEIRAS, make_toolchain
from tilewatch.kernels.toolchains.mixing import mix


def test_each_package_has_the_files_of_its_side(tmp_path: Path) -> None:
    base = make_toolchain(tmp_path, "base")
    head = make_toolchain(tmp_path, "head", script='exec "$TILEIRAS" -O0 "$@"')
    packages = [each.package for each in base.packages]
    for _ in range(2):  # a second one replaces the first
        mixed = mix(tmp_path / "mixed", "one", base, head, [*packages, "none-such"], {"nvidia-cuda-tileiras"})
    sides = {each.package: each.version.rpartition("+")[2] for each in mixed.packages}
    assert sides == {**dict.fromkeys(packages, "base"), "nvidia-cuda-tileiras": "head"}
    assert mixed.folder is not None
    assert head.folder is not None
    assert (mixed.folder / TILEIRAS).read_text() == (head.folder / TILEIRAS).read_text()
    assert (mixed.folder / "cuda" / "tile" / "__init__.py").is_file()
    assert not [each for each in mixed.folder.rglob("*") if each.is_symlink()]
