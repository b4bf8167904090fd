"""What a child process reads and writes in place of a store, whose credentials it must not have."""

from pathlib import Path

import pytest

from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.compiling.store import CubinStore, find_folder, folder

OK = {"status": "ok", "symbol": "double"}
FAILED = {"status": "error", "failure": "no such instruction"}


def make_store(url: str, tmp_path: Path) -> str:
    return folder(tmp_path / "store") if url == "folder" else url


@pytest.mark.parametrize("url", ["folder", "memory://fetched"])
def test_a_child_reads_a_folder_whatever_store_there_is(tmp_path: Path, url: str) -> None:
    url = make_store(url, tmp_path)
    CubinStore(url).put("aa1", OK, b"cubin")
    cubins = LocalCubins(url)
    path = Path(cubins.prepare_child())
    assert path.is_dir()
    assert (find_folder(cubins.url), (path == tmp_path / "store")) == (str(path), url.startswith("file"))
    for _ in range(2):
        cubins.fetch("aa1")
    assert (path / "aa" / "aa1.cubin").read_bytes() == b"cubin"
    assert Path(cubins.prepare_child()) == path
    cubins.close()
    assert path.exists() == url.startswith("file")


@pytest.mark.parametrize("url", ["folder", "memory://sent"])
def test_what_a_child_wrote_is_moved_into_the_store(tmp_path: Path, url: str) -> None:
    url = make_store(url, tmp_path)
    cubins = LocalCubins(url)
    cubins.prepare_child()
    first = cubins.made
    child = CubinStore(folder(Path(first)))
    child.put("aa1", OK, b"cubin", b"bytecode")
    child.put("bb2", FAILED, None)
    cubins.send()
    store = CubinStore(url)
    assert store.outcomes(["aa1", "bb2"]) == {"aa1": OK, "bb2": FAILED}
    assert (store.cubin("aa1"), store.bytecode("aa1"), store.bytecode("bb2")) == (b"cubin", b"bytecode", None)
    assert [each for each in Path(first).glob("*/*") if each.is_file()] == []
    cubins.prepare_child()
    assert cubins.made != first
    cubins.close()
    assert not Path(first).exists()
