"""A cubin store in an object store: a real server of the S3 protocol, the real compiler, and children without
credentials."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.registry import _registry

from tests.kernels.fixtures.needs_package import write_package, write_repository
from tests.kernels.fixtures.s3_server import CREDENTIALS, S3Server, s3_server
from tilewatch.kernels.children.child_process import PASSED_ON
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.compiling.store import CubinStore, StoreError, folder
from tilewatch.kernels.library import FOLDER as LIBRARY

CONFIG = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_ctas": 1, "occupancy": 1, "group_size_m": 8}
OK = {"status": "ok", "symbol": "double"}


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as started:
        yield started


def test_cubins_and_outcomes_are_objects_under_the_prefix(server: S3Server) -> None:
    store = CubinStore("s3://cubins/of/team")
    store.require_access(writes=True)
    store.put("aa1", OK, b"cubin")
    store.put("bb2", {"status": "timeout"}, None)
    assert CubinStore("s3://cubins/of/team").outcomes(["aa1", "bb2", "cc3"]) == {
        "aa1": OK,
        "bb2": {"status": "timeout"},
    }
    assert store.cubin("aa1") == b"cubin"
    store.put("aa1", {"status": "error"}, None)
    assert store.outcome("aa1") == {"status": "error"}
    names = {"aa/aa1.cubin", "aa/aa1.json", "bb/bb2.json", "he/health.json"}
    assert {key for key in server.list_keys() if key.startswith("of/team/")} == {f"of/team/{name}" for name in names}


@pytest.mark.parametrize("writes", [True, False])
def test_a_bucket_that_is_not_there_is_trouble_and_is_not_made(server: S3Server, writes: bool) -> None:
    with pytest.raises(StoreError, match=r"the cubin store s3://misspelt/cubins cannot be (read|written)"):
        CubinStore("s3://misspelt/cubins").require_access(writes=writes)
    with pytest.raises(StoreError, match="s3://misspelt"):
        CubinStore("s3://misspelt").put("aa1", OK, b"cubin")
    assert server.list_buckets() == ["cubins"]


@pytest.mark.usefixtures("server")
def test_two_machines_share_what_one_of_them_compiled() -> None:
    """Each has a compiler of its own, and so a child process and a folder of its own."""
    with Compiler("s3://cubins/shared") as first, Compiler("s3://cubins/shared") as second:
        made = first.compile(LIBRARY, "gemm_fp8", "320x32576x7168", CONFIG, "sm_90")
        found = second.compile(LIBRARY, "gemm_fp8", "320x32576x7168", CONFIG, "sm_90")
        failed = first.compile(LIBRARY, "gemm_fp8", "320x32576x7168", {**CONFIG, "tile_m": 48}, "sm_90")
    assert (made.status, made.reused) == ("ok", False)
    assert (found.status, found.reused, found.facts) == ("ok", True, made.facts)
    assert failed.failure == "tile_m=48 is not a power of two"
    assert made.content_key is not None
    assert CubinStore("s3://cubins/shared").cubin(made.content_key).startswith(b"\x7fELF")


@pytest.mark.usefixtures("server")
def test_recorded_code_reaches_a_machine_that_cannot_run_the_host_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a second such machine needs is compiled already."""
    store, watch = "s3://cubins/recorded", write_repository(tmp_path / "repository") / "watch"
    with monkeypatch.context() as able, Compiler(store) as compiler:
        able.setenv("PYTHONPATH", str(write_package(tmp_path / "packages")))
        compiler.trace(watch, "doubled", "8x64:bf16", {"tile": 32}, "sm_90", code_key="cc3")
    outcomes = []
    for _ in range(2):
        with Compiler(store) as compiler:
            outcomes.append(compiler.compile(watch, "doubled", "8x64:bf16", {"tile": 32}, "sm_90", code_key="cc3"))
    assert [(each.status, each.reused) for each in outcomes] == [("ok", False), ("ok", True)]
    assert CubinStore(store).find_traced("dd4") is None


@pytest.mark.usefixtures("server")
def test_a_child_reads_from_a_folder_what_its_parent_fetched() -> None:
    CubinStore("s3://cubins/gpu").put("aa1", OK, b"cubin")
    cubins = LocalCubins("s3://cubins/gpu")
    cubins.fetch("aa1")
    assert cubins.url.startswith("file://")
    assert CubinStore(cubins.url).cubin("aa1") == b"cubin"
    with pytest.raises(StoreError, match="cubin bb2: the cubin store s3://cubins/gpu cannot be read"):
        cubins.fetch("bb2")
    there = Path(CubinStore(cubins.url).url.removeprefix("file://"))
    cubins.close()
    assert not there.exists()
    assert not set(PASSED_ON) & set(CREDENTIALS)


def test_what_a_child_made_is_sent_once_and_not_kept(server: S3Server) -> None:
    cubins = LocalCubins("s3://cubins/sent")
    made = CubinStore(folder(Path(cubins.prepare_child())), cubins.made)
    made.put("aa1", OK, b"cubin", b"bytecode")
    made.put("aa2", {"status": "error"}, None)
    assert made.cubin("aa1") == b"cubin"
    cubins.send()
    assert sorted(key for key in server.list_keys() if key.startswith("sent/")) == [
        "sent/aa/aa1.cubin",
        "sent/aa/aa1.json",
        "sent/aa/aa1.tileirbc",
        "sent/aa/aa2.json",
    ]
    assert CubinStore("s3://cubins/sent").bytecode("aa1") == b"bytecode"
    assert CubinStore("s3://cubins/sent").bytecode("aa2") is None
    assert made.outcomes(["aa1", "aa2"]) == {}
    cubins.close()


def test_without_the_extra_a_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(_registry, "s3", raising=False)  # what it found the first time
    with pytest.raises(StoreError) as refused:
        CubinStore("s3://elsewhere/cubins")
    assert str(refused.value) == (
        "the cubin store s3://elsewhere/cubins cannot be used: the package s3fs is missing; install the "
        "extra s3 (pip install 'tilewatch[s3]'; in a checkout: .venv/bin/pip install --no-deps --require-hashes -r "
        "requirements/s3.txt)"
    )


def test_a_protocol_that_nobody_knows_is_a_sentence() -> None:
    with pytest.raises(StoreError, match="the cubin store sss://cubins cannot be used: Protocol not known: sss"):
        CubinStore("sss://cubins")
