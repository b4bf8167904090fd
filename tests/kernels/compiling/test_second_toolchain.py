"""A compiler of a second toolchain: its child uses that toolchain, and neither toolchain answers for the other."""

import os
import re
from pathlib import Path

import pytest

from tests.kernels.fixtures.needs_package import write_package, write_repository
from tests.kernels.fixtures.second_toolchain import TILEIRAS, count_compiles, make_toolchain
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.library import FOLDER as LIBRARY
from tilewatch.kernels.library_errors import PackageMissing

CONFIG = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_ctas": 1, "occupancy": 1, "group_size_m": 8}
ASKED = (LIBRARY, "gemm_fp8", "320x32576x7168", CONFIG, "sm_90")


def test_the_child_says_and_uses_its_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.SWITCH, "off")  # the runs are counted in a file outside of it
    second = make_toolchain(tmp_path, "second")
    store = folder(tmp_path / "cubins")
    with Compiler(store) as installed, Compiler(store, toolchain=second) as other:
        assert "+second" not in installed.version
        assert other.version == installed.version.replace("1.7.0", "1.7.0+second").replace("13.4.92", "13.4.92+second")
        first, own = installed.compile(*ASKED), other.compile(*ASKED)
        assert count_compiles(second) == 1
        again = (installed.compile(*ASKED), other.compile(*ASKED))
    assert (own.status, own.reused, own.compiler) == ("ok", False, other.version), own.failure
    assert own.content_key != first.content_key
    assert own.code_sha256 == first.code_sha256, "it is the same tileiras under another version"
    assert [each.content_key for each in again] == [first.content_key, own.content_key]
    assert [each.reused for each in again] == [True, True]
    assert count_compiles(second) == 1


def test_two_toolchains_of_one_list_share_cubins(tmp_path: Path) -> None:
    first, copy = (make_toolchain(tmp_path, name, label="x") for name in ("first", "copy"))
    store = folder(tmp_path / "cubins")
    with Compiler(store, toolchain=first) as compiler:
        made = compiler.compile(*ASKED)
    with Compiler(store, toolchain=copy) as compiler:
        found = compiler.compile(*ASKED)
    assert (made.reused, found.reused, found.content_key) == (False, True, made.content_key)


def test_what_one_toolchain_records_is_not_fed_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = make_toolchain(tmp_path, "second")
    watch = write_repository(tmp_path / "repository") / "watch"
    store = folder(tmp_path / "cubins")
    with monkeypatch.context() as able:
        path = (str(write_package(tmp_path / "packages")), os.environ.get("PYTHONPATH", ""))
        able.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
        (plan,) = catalog.read(watch, arch="sm_90", kernel="doubled")
        trial = plan.trials[0]
        asked = (watch, "doubled", "8x64:bf16", trial.config, "sm_90")
        with Compiler(store) as recorder:
            recorder.trace(*asked, code_key=trial.code_key)
        with Compiler(store, toolchain=second) as late_recorder, Compiler(store, toolchain=second) as compiler:
            able.delenv("PYTHONPATH")
            with pytest.raises(PackageMissing):
                compiler.compile(*asked, code_key=trial.code_key)
            able.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
            late_recorder.trace(*asked, code_key=trial.code_key)
            assert compiler.compile(*asked, code_key=trial.code_key).compiler == compiler.version
    with Compiler(store) as compiler:
        assert compiler.compile(*asked, code_key=trial.code_key).compiler == compiler.version


def test_a_toolchain_without_its_tileiras_does_not_compile_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuda-tile then takes one from PATH."""
    second = make_toolchain(tmp_path, "second")
    assert second.folder is not None
    other = tmp_path / "bin" / "tileiras"
    other.parent.mkdir()
    (second.folder / TILEIRAS).rename(other)
    monkeypatch.setenv("PATH", str(other.parent), prepend=os.pathsep)
    sentence = f"the toolchain in {second.folder} is not whole: tileiras is missing in it, and {other} would be used"
    with (
        Compiler(folder(tmp_path / "cubins"), toolchain=second) as compiler,
        pytest.raises(BuildError, match=re.escape(sentence)),
    ):
        compiler.compile(*ASKED)
