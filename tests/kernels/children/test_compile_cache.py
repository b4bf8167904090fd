"""Homes of libraries that run on a GPU: one for each checkout, in real folders with real locks."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.kernels.fixtures.fake_gpu import install_for_children
from tilewatch import processes
from tilewatch.kernels.children import child_process, compile_cache, gpu_user, sandbox
from tilewatch.kernels.children.child_process import ChildDied, ChildProcess
from tilewatch.kernels.children.compile_cache import CUPY_CACHE, LibraryHome, _lock, is_filled, open_home


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return tmp_path / "user"


Opened = Callable[..., LibraryHome]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Opens homes of children that have no user of their own, and closes them after the test."""
    monkeypatch.setattr(gpu_user, "find_refusal", lambda *_: "it was not tried")
    held = contextlib.ExitStack()

    def open_one(*libraries: Path) -> LibraryHome:
        found = open_home(libraries)
        assert found is not None
        held.callback(found.close)
        return found

    with held:
        yield open_one


def test_what_one_commit_compiles_no_other_one_loads(opened: Opened, tmp_path: Path) -> None:
    mine, theirs = opened(tmp_path / "a"), opened(tmp_path / "b")
    both = opened(tmp_path / "a", tmp_path / "b")
    assert len({mine.folder, theirs.folder, both.folder}) == 3
    (mine.folder / "kernel").write_text("compiled")
    mine.close()
    assert (opened(tmp_path / "a").folder / "kernel").read_text() == "compiled", "its own next child does"
    assert opened(tmp_path / "b", tmp_path / "a").folder == both.folder


def test_folders_of_one_checkout_share_a_home(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")
    assert opened(tmp_path / "watch").folder == opened(tmp_path / "more").folder


def test_a_new_home_has_a_copy_of_what_the_user_s_cupy_compiled(opened: Opened, tmp_path: Path, home: Path) -> None:
    """A copy and no link: the child may write into its own. What CuPy did not compile is not copied."""
    cache = home / ".cupy" / "kernel_cache"
    cache.mkdir(parents=True)
    (cache / "kernel.cubin").write_text("ours")
    (cache / "secret").write_text("ours")
    copy = opened(tmp_path / "a").folder / ".cupy" / "kernel_cache" / "kernel.cubin"
    assert [each.name for each in copy.parent.iterdir()] == [copy.name]
    assert copy.read_text() == "ours"
    copy.write_text("theirs")
    assert (cache / "kernel.cubin").read_text() == "ours"


def test_a_new_home_has_no_more_copies_than_the_limit(
    opened: Opened, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "MOST_SEEDS", 2)
    cache = home / ".cupy" / "kernel_cache"
    cache.mkdir(parents=True)
    for number in range(3):
        (cache / f"{number}.cubin").touch()
    assert len(list((opened(tmp_path / "a").folder / CUPY_CACHE).iterdir())) == 2


def test_homes_that_were_not_used_for_long_are_removed_and_those_in_use_stay(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "KEPT_HOMES", 2)
    held = opened(tmp_path / "held")
    unused = [opened(tmp_path / name) for name in ("old", "new")]
    for age, each in enumerate((*reversed(unused), held), start=1):
        os.utime(each.lock.name, (1000 - age, 1000 - age))
    for each in unused:
        each.close()
    latest = opened(tmp_path / "latest")
    kept = {each.name for each in latest.folder.parent.iterdir() if each.is_dir()}
    assert kept == {each.folder.name for each in (latest, unused[1], held)}
    assert {each.stem for each in latest.folder.parent.glob("*.lock")} == kept


def test_a_home_that_was_used_again_stays_longer_than_one_that_was_not(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = [opened(tmp_path / name) for name in ("a", "b")]
    for at, each in enumerate(homes):
        os.utime(each.lock.name, (at, at))
        each.close()
    monkeypatch.setattr(compile_cache, "KEPT_HOMES", 2)
    opened(tmp_path / "a").close()
    opened(tmp_path / "c").close()
    assert [each.folder.is_dir() for each in homes] == [True, False]


def test_a_home_is_not_removed_as_it_is_opened(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "KEPT_HOMES", 0)
    assert opened(tmp_path / "a").folder.is_dir()


def test_a_child_is_alone_in_its_home_until_another_one_opens_that_home(opened: Opened, tmp_path: Path) -> None:
    first, second = opened(tmp_path / "a"), opened(tmp_path / "a")
    assert not first.is_alone()
    second.close()
    assert first.is_alone()
    assert open_home([tmp_path / "a"]) is None, "from then on the folder is locked"


def test_a_folder_is_filled_by_the_first_file_or_byte_over_a_limit(tmp_path: Path) -> None:
    """A folder counts as a file, and a file with holes has the size that it takes on the disk."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "large").write_bytes(bytes(range(256)) * 4096)
    (tmp_path / "holes").touch()
    os.truncate(tmp_path / "holes", 1 << 30)
    size_bytes = sum(each.lstat().st_blocks for each in tmp_path.rglob("*")) * 512  # stat(2) counts in 512 bytes
    assert 1 << 20 <= size_bytes < 1 << 30
    for missing_bytes, missing_files in ((0, 0), (1, 0), (0, 1)):
        is_over = bool(missing_bytes or missing_files)
        assert is_filled(tmp_path, size_bytes - missing_bytes, 3 - missing_files) == is_over


def test_a_home_that_holds_too_much_is_made_anew(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path / "a")
    (first.folder / "large").write_bytes(bytes(1 << 20))
    first.close()
    monkeypatch.setattr(compile_cache, "HOME_BYTES", 1 << 19)
    assert not (opened(tmp_path / "a").folder / "large").exists()


def test_somebody_who_holds_the_lock_takes_a_home_away_and_stops_nobody(opened: Opened, tmp_path: Path) -> None:
    """A child may open the locks of other homes: it reads all files."""
    found = opened(tmp_path / "a")
    found.close()
    with open(found.lock.name, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert open_home([tmp_path / "a"]) is None
    assert opened(tmp_path / "a").folder == found.folder


def test_a_lock_that_another_process_replaced_or_that_has_no_home_any_more_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, try_lock = tmp_path / "home", processes.try_lock
    for happened in (lambda: folder.with_suffix(".lock").unlink(), folder.rmdir):

        def lock_after(lock: IO[bytes], kind: int, happened: Callable[[], None] = happened) -> bool:
            if kind == fcntl.LOCK_SH:
                shutil.rmtree(folder / CUPY_CACHE.parts[0], ignore_errors=True)
                happened()
            return try_lock(lock, kind)

        with monkeypatch.context() as patch:
            patch.setattr(processes, "try_lock", lock_after)
            assert _lock(folder, os.geteuid()) is None
    found = _lock(folder, os.geteuid())
    assert found is not None
    found.close()


@pytest.mark.skipif(sandbox.landlock_version() < 4, reason="this kernel's Landlock is too old")
def test_a_library_s_child_lives_in_its_home_and_is_ended_where_that_is_full(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(sandbox.SWITCH, raising=False)
    monkeypatch.setattr(ChildProcess, "program", ("-m", "tests.kernels.fixtures.obedient_child"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setattr(compile_cache, "HOME_FILES", 20)
    expected = opened(tmp_path / "a").folder
    child = ChildProcess("library", library=tmp_path / "a")
    try:
        environment = child.ask({"do": "environment"}, deadline_s=60)["environment"]
        assert environment["HOME"] == str(expected)
        assert environment["CUPY_CACHE_DIR"] == str(expected / ".cupy" / "kernel_cache")
        for number in range(21):
            (expected / str(number)).touch()
        monkeypatch.setattr(child_process, "LOOK_EVERY_S", 0.0)
        with pytest.raises(ChildDied, match="there is more than 1 GiB or 20 files in its library's home"):
            child.ask({"do": "sleep"}, deadline_s=60)
    finally:
        child.close()


@pytest.mark.skipif(sandbox.landlock_version() < 4, reason="this kernel's Landlock is too old")
def test_cupy_compiles_into_the_home_of_the_library_and_not_of_the_process_that_forked_it(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the library may not write, it could compile nothing."""
    monkeypatch.delenv(sandbox.SWITCH, raising=False)
    install_for_children(monkeypatch)
    library = tmp_path / "library"
    library.mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")  # its files may import what they like
    (library / "look.py").write_text("import cupy\nraise RuntimeError(f'into {cupy.cuda.compiler.cache.folder} end')\n")
    child = ChildProcess("library", library=library)
    try:
        with pytest.raises(ChildDied) as died:
            child.ask({"ask": "import", "library": str(library), "others": []}, deadline_s=60)
    finally:
        child.close()
    assert f"into {opened(library).folder}/.cupy/kernel_cache end" in str(died.value)
