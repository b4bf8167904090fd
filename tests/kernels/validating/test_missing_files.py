"""Imports from submodules and pointers of Git LFS in a folder, which no node checks out."""

from pathlib import Path

import pytest

from tests.worker.fixtures.tiny_repository import git
from tilewatch.kernels.validating.missing_files import find_outside_files

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with the submodules "third_party/tile-gym" and "other", and files that import them."""
    git(tmp_path, "init", "-q", "-b", "main")
    for name in ("third_party/tile-gym", "other"):
        git(tmp_path, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{name}")
    library = tmp_path / "library"
    library.mkdir()
    (library / "b.py").write_text("import math\n\nimport tile_gym.ops, other as mine\n")
    (library / "a.py").write_text("def late():\n    from TILE_GYM.ops import softmax\n")
    (library / "c.py").write_text("from . import other\nfrom .other import x\nimport others\n")
    (library / "broken.py").write_text("import other\n)\n")
    return library


ALL = [
    ("a.py", 2, "TILE_GYM.ops is in the submodule third_party/tile-gym"),
    ("b.py", 3, "tile_gym.ops is in the submodule third_party/tile-gym"),
    ("b.py", 3, "other is in the submodule other"),
]


@pytest.mark.parametrize(("files", "found"), [((), ALL), (("b.py",), ALL[1:]), (("c.py",), [])])
def test_each_import_from_a_submodule_is_found_in_the_files_that_were_asked_for(
    library: Path, files: tuple[str, ...], found: list[tuple[str, int, str]]
) -> None:
    mistakes = list(find_outside_files(library, files))
    assert [(each.file, each.line, each.sentence.partition(",")[0]) for each in mistakes] == found


def test_a_pointer_of_git_lfs_is_found_whatever_files_were_asked_for(library: Path) -> None:
    (library / "weights.bin").write_text(POINTER)
    (library / "plain.bin").write_text(f"not a {POINTER}")
    git(library, "add", "weights.bin", "plain.bin")
    (pointer,) = find_outside_files(library, ("c.py",))
    assert (pointer.file, pointer.line) == ("weights.bin", None)
    assert pointer.sentence.startswith("it is a pointer of Git LFS and not the file")
    assert str(pointer).startswith("weights.bin: it is a pointer")


def test_a_folder_without_submodules_lacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("import other\n")
    assert list(find_outside_files(tmp_path, ())) == []
