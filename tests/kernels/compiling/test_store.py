"""The cubin store: what is asked for many keys at once is what is asked for one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewatch.kernels.compiling import store as module
from tilewatch.kernels.compiling.store import CubinStore, StoreError, find_folder, folder
from tilewatch.kernels.results import is_final

OK = {"status": "ok", "symbol": "double"}
TIMEOUT = {"status": "timeout", "failure": "not compiled within 15 s"}


@pytest.mark.parametrize("url", ["folder", "memory://cubins"])
def test_many_outcomes_are_read_at_once_and_unknown_keys_left_out(tmp_path: Path, url: str) -> None:
    store = CubinStore(folder(tmp_path) if url == "folder" else url)
    store.put("aa1", OK, b"cubin")
    store.put("bb2", TIMEOUT, None)
    assert store.outcomes(["aa1", "bb2", "cc3"]) == {"aa1": OK, "bb2": TIMEOUT}
    assert store.outcomes(["aa1"]) == {"aa1": store.outcome("aa1")}
    assert store.outcomes(["cc3"]) == store.outcomes([]) == {}


def test_an_outcome_that_cannot_be_read_is_no_unknown_one(tmp_path: Path) -> None:
    store = CubinStore(folder(tmp_path))
    store.put("aa1", OK, b"cubin")
    (tmp_path / "aa" / "aa1.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        store.outcomes(["aa1", "bb2"])
    (tmp_path / "aa" / "aa1.json").unlink()
    (tmp_path / "aa" / "aa1.json").mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        store.outcomes(["aa1", "bb2"])


def test_what_is_made_goes_into_a_folder_of_its_own_and_is_read_first(tmp_path: Path) -> None:
    root, made = tmp_path / "root", tmp_path / "made"
    CubinStore(folder(root)).put("aa1", OK, b"of root", b"bytecode of root")
    store = CubinStore(folder(root), str(made))
    assert (store.cubin("aa1"), store.bytecode("aa1"), store.outcome("aa1")) == (b"of root", b"bytecode of root", OK)
    store.put("aa1", {**OK, "symbol": "triple"}, b"made")
    store.put("bb2", OK, b"made")
    store.put_traced("cc3", {"launches": []})
    assert (store.cubin("aa1"), store.bytecode("aa1")) == (b"made", b"bytecode of root")
    assert store.outcomes(["aa1", "bb2"]) == {"aa1": {**OK, "symbol": "triple"}, "bb2": OK}
    assert store.find_traced("cc3") == {"launches": []}
    names = sorted(each.name for each in made.glob("*/*"))
    assert names == ["aa1.cubin", "aa1.json", "bb2.cubin", "bb2.json", "cc3.recorded"]
    plain = CubinStore(folder(root))
    assert (plain.cubin("aa1"), plain.outcome("bb2"), plain.find_traced("cc3")) == (b"of root", None, None)
    assert plain.bytecode("bb2") is None


def test_a_cubin_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"^cubin aa1: .*cannot be read"):
        CubinStore(folder(tmp_path)).cubin("aa1")


@pytest.mark.parametrize("url", ["folder", "memory://lost"])
def test_a_deleted_cubin_was_never_compiled(tmp_path: Path, url: str) -> None:
    store = CubinStore(folder(tmp_path) if url == "folder" else url)
    for key in ("aa1", "aa2", "bb3"):
        store.put(key, OK, b"cubin")
    store.put("bb4", TIMEOUT, None)
    store._files.rm_file(store._path("aa2", "cubin"))
    assert store.outcomes(["aa1", "aa2", "bb3", "bb4"]) == {"aa1": OK, "bb3": OK, "bb4": TIMEOUT}
    assert store.outcome("aa2") is None


@pytest.mark.parametrize(("error", "reason"), [(OSError("no route"), "no route"), (TimeoutError(), "TimeoutError")])
def test_an_error_of_a_store_is_named_by_its_words_or_else_by_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    store = CubinStore(folder(tmp_path))
    monkeypatch.setattr(type(store._files), "cat_file", fail)
    with pytest.raises(StoreError) as raised:
        store.bytecode("aa1")
    assert str(raised.value) == f"the cubin store file://{tmp_path} cannot be read: {reason}"


@pytest.mark.parametrize("writes", [False, True])
def test_a_folder_that_is_not_there_yet_is_made_by_who_writes(tmp_path: Path, writes: bool) -> None:
    store = CubinStore(folder(tmp_path / "cubins"))
    store.require_access(writes=writes)
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == (["health.json"] if writes else [])
    assert (tmp_path / "cubins").exists() is writes


@pytest.mark.parametrize(("writes", "act"), [(False, "read"), (True, "written")])
def test_a_file_in_the_place_of_a_folder_is_no_store(tmp_path: Path, writes: bool, act: str) -> None:
    (tmp_path / "cubins").touch()
    with pytest.raises(StoreError, match=f"the cubin store file://{tmp_path}/cubins cannot be {act}: "):
        CubinStore(folder(tmp_path / "cubins")).require_access(writes=writes)


def test_a_protocol_whose_package_no_extra_brings_is_refused_with_the_error_of_its_import() -> None:
    with pytest.raises(StoreError, match=r"^the cubin store gs://cubins cannot be used: .*gcsfs"):
        CubinStore("gs://cubins")


def test_a_disk_is_full_below_the_room_that_a_compiler_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, is_full in ((module.ROOM_BYTES, False), (module.ROOM_BYTES - 1, True)):
        monkeypatch.setattr(module.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        if is_full:
            with pytest.raises(StoreError, match="no space is left"):
                module.require_room()
        else:
            module.require_room()


def test_a_timeout_is_final_once_the_compiler_had_all_of_its_cpu_time() -> None:
    outcomes = [{"status": "timeout", "cpu_s": 14.9}, {"status": "timeout", "cpu_s": 15.0}, {"status": "error"}]
    assert [is_final(each, 15.0) for each in outcomes] == [False, True, True]


def test_the_url_of_a_folder_leads_back_to_it(tmp_path: Path) -> None:
    assert find_folder(folder(tmp_path)) == str(tmp_path)


def test_two_threads_may_store_one_outcome_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two configs with equal code have one key. Both threads wrote one temporary file, and one of them ended with an
    error."""
    store = CubinStore(folder(tmp_path))
    both_have_written, move = threading.Barrier(2, timeout=30), type(store._files).mv

    def move_later(*of: object) -> None:
        both_have_written.wait()
        move(*of)

    monkeypatch.setattr(type(store._files), "mv", move_later)
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(store.put_traced, "k" * 64, {"launches": []}) for _ in range(2)]
    assert [each.result() for each in done] == [None, None]
    assert store.find_traced("k" * 64) == {"launches": []}
