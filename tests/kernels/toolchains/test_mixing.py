"""A folder with packages of two toolchains: whose files it has, and that no file leads out of it."""

from pathlib import Path

from tests.kernels.fixtures.second_toolchain import TILEIRAS, make_toolchain
from tilewatch.kernels.toolchains.mixing import mix
from tilewatch.kernels.toolchains.toolchain import SITE, Toolchain


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


def make_packages(root: Path, name: str, packages: tuple[str, ...]) -> Toolchain:
    """Each package has the file nvidia/__init__.py, as older wheels of NVIDIA's do, which says the toolchain's name."""
    site = root / name / SITE
    for package in packages:
        info = site / f"{package}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (info / "RECORD").write_text(f"nvidia/__init__.py,,\n{info.name}/METADATA,,\n")
    (site / "nvidia").mkdir()
    (site / "nvidia" / "__init__.py").write_text(name)
    return Toolchain(name, site)


def test_a_file_of_two_packages_is_the_last_one_s_and_no_environment_changes(tmp_path: Path) -> None:
    """The second package's file was copied through the link into the environment of the first."""
    sides = [make_packages(tmp_path, name, ("one", "two")) for name in ("base", "head")]
    for swapped, owner in ({"two"}, "head"), ({"one"}, "base"), (set[str](), "base"):
        mixed = mix(tmp_path / "mixed", "rung", *sides, ("one", "two"), swapped)
        assert [each.package for each in mixed.packages] == ["one", "two"]
        assert mixed.folder is not None
        files = [(each.folder or tmp_path) / "nvidia" / "__init__.py" for each in (*sides, mixed)]
        assert [each.read_text() for each in files] == ["base", "head", owner]
