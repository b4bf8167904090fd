"""What a commit names and does not hold is said alike by `tilewatch validate` and by a submission."""

from pathlib import Path

import pytest

from tests.worker.fixtures import odd_histories
from tests.worker.fixtures.tiny_repository import git
from tilewatch.kernels.library_errors import LibraryError, PackageMissing
from tilewatch.kernels.problems.outside_files import find_submodule, list_pointers, list_submodules
from tilewatch.kernels.validating.mistakes import validate_library
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 12345\n"


@pytest.fixture
def with_submodule(settings: Settings, tmp_path: Path) -> Settings:
    """The tiny repository, whose library imports a package that is a submodule."""
    own = tmp_path / "helpers"
    own.mkdir()
    git(own, "init", "--quiet", "--initial-branch", "main")
    (own / "__init__.py").write_text("FACTOR = 2.0\n")
    git(own, "add", ".")
    odd_histories.add(own, "Help")
    folder = settings.repository
    add = ("submodule", "--quiet", "add", str(own), "library/tiny-helpers")
    git(folder, "-c", "protocol.file.allow=always", *add)
    source = (folder / "library" / "double.py").read_text()
    (folder / "library" / "double.py").write_text(f"import tiny_helpers\n{source}")
    git(folder, "add", ".")
    odd_histories.add(folder, "Take a submodule")
    return settings


def test_a_submodule_is_named_by_both(with_submodule: Settings, tmp_path: Path) -> None:
    sentence = (
        "tiny_helpers is in the submodule library/tiny-helpers, and commits are checked out without their submodules"
    )
    with pytest.raises(PackageMissing, match=sentence):
        submit_nightly(with_submodule, gpus=("h200",))
    library = with_submodule.repository / "library"
    found = validate_library(library, [], ["sm_90"], (tmp_path / "cubins").as_uri()).findings
    assert f"double.py:1: {sentence}" in [str(each) for each in found]


def test_submodules_and_pointers_are_listed_as_they_are_staged_and_in_a_commit(with_submodule: Settings) -> None:
    folder = with_submodule.repository
    assert list_submodules(folder / "library") == list_submodules(folder, "HEAD") == ["library/tiny-helpers"]
    assert list_submodules(folder, "HEAD~1") == []
    (folder / "library" / "sizes.jsonl").write_text(POINTER)
    assert list_pointers(folder / "library") == []
    git(folder, "add", ".")
    assert list_pointers(folder / "library") == ["sizes.jsonl"]
    (folder / "library" / "sizes.jsonl").write_text('{"rows": 1}\n')
    assert list_pointers(folder / "library") == ["sizes.jsonl"], "what a commit will hold, not what lies here"
    assert list_submodules(folder.parent) == list_pointers(folder.parent) == []


WATCHED = """
from tilewatch import watch

@watch(problems="sizes.jsonl")
def double_rows(p):
    pass
"""


@pytest.mark.parametrize(
    ("target", "written", "sentence"),
    [
        ("/dev/zero", None, "sizes.jsonl is not a file"),
        ("/etc/shadow", None, "sizes.jsonl, line 1: not JSON: Expecting value (line 1, column 1)"),
        (None, '{"m": 1}\n' * 100_001, "sizes.jsonl: it has 100,001 lines; expected 100,000 at most"),
        (None, '{"m": ' + "[" * 100_000, "sizes.jsonl, line 1: not JSON that can be read: maximum recursion depth"),
    ],
)
def test_a_submission_refuses_a_problems_file_that_cannot_be_read(
    settings: Settings, target: str | None, written: str | None, sentence: str
) -> None:
    sizes = settings.repository / "library" / "sizes.jsonl"
    if target is None:
        sizes.write_text(written or "")
    else:
        sizes.symlink_to(target)
    (settings.repository / "library" / "double.py").write_text(WATCHED)
    (settings.repository / "pyproject.toml").write_text("[tool.tilewatch]\n")
    git(settings.repository, "add", ".")
    odd_histories.add(settings.repository, "Watch an operator")
    with pytest.raises(LibraryError) as caught:
        submit_nightly(settings, gpus=("h200",))
    assert sentence in str(caught.value)


@pytest.mark.parametrize("package", ["tiny_helpers", "tiny-helpers", "tiny_helpers.sub", "Tiny_Helpers"])
def test_a_package_is_found_in_the_submodule_of_its_name(package: str) -> None:
    assert find_submodule(package, ["docs/theme", "third_party/tiny-helpers"]) == "third_party/tiny-helpers"
    assert find_submodule(package, ["third_party/helpers"]) is None
