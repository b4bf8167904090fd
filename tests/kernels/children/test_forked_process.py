"""Children that are forked: each has its own files, environment and folders, none outlives its server or its parent."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from cuda.tile import _compile

from tests.kernels.fixtures.fake_gpu import install_for_children
from tilewatch.kernels.children import fork_server, forked_process
from tilewatch.kernels.children.child_process import ChildDied, ChildHung, ChildProcess

ROOT = Path(__file__).parents[3]
LOOK = """
import json, os, sys, tempfile
from cuda.tile._cext import default_tile_context
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "home": os.environ["HOME"],
    "temporary": tempfile.gettempdir(), "cutile": default_tile_context.config.temp_dir,
    "files": os.listdir("/proc/self/fd"), "modules": [name for name in sys.modules if "neighbour" in name],
}), file=sys.stderr)
os._exit(3)
"""
"""A library file that says in its last words where it runs."""


@pytest.fixture(autouse=True)
def server() -> Iterator[None]:
    """Servers of other tests' environments stay; those of this file's are as a worker's, which has one."""
    yield
    for each in forked_process._servers.values():
        each.close()
    forked_process._servers.clear()


def look(folder: Path, name: str = "look") -> dict[str, Any]:
    """What a child that reads a library sees of itself."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(LOOK)
    died = ask(folder)
    assert died.startswith("exit code 3: ")
    return dict(json.loads(died.removeprefix("exit code 3: ")))


def ask(library: Path) -> str:
    child = ChildProcess("catalog", library=library)
    with pytest.raises(ChildDied) as died:
        child.ask({"library": str(library), "arch": "sm_90", "kernel": None, "problem": None}, deadline_s=60)
    child.close()
    return str(died.value)


def test_each_child_is_its_own_and_all_have_one_parent(tmp_path: Path) -> None:
    first = look(tmp_path / "a", "neighbour")
    opened = psutil.Process(first["parent"]).num_fds()
    second = look(tmp_path / "b")
    assert first["parent"] == second["parent"] != os.getpid()
    assert psutil.Process(first["parent"]).num_fds() == opened, "the server keeps no file of a child"
    assert psutil.Process(first["parent"]).ppid() == os.getpid()
    assert first["pid"] == first["session"] != second["pid"] == second["session"]
    for each in (first, second):
        assert each["home"] == each["temporary"] == each["cutile"]
        assert len(each["files"]) == 5  # three streams, the copy for answers, and that of the listing itself
    assert first["home"] != second["home"]
    assert not Path(first["home"]).exists()
    assert (len(first["modules"]), second["modules"]) == (1, [])


def test_a_child_asks_which_bytecode_its_compiler_reads_only_where_that_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, nowhere = _compile._get_max_supported_bytecode_version, str(tmp_path / "a folder where no file can be made")
    wanted, compiler = ask(str(tmp_path)), _compile._find_compiler_bin()
    monkeypatch.setattr(_compile, "_get_max_supported_bytecode_version", ask)
    fork_server._ask_bytecode_version.__wrapped__()
    assert _compile._get_max_supported_bytecode_version(nowhere) == wanted
    monkeypatch.setattr(_compile, "_find_compiler_bin", lambda: replace(compiler, path="/elsewhere/tileiras"))
    with pytest.raises(FileNotFoundError):
        _compile._get_max_supported_bytecode_version(nowhere)


def test_a_signal_is_the_end_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert ask(tmp_path) == "SIGSEGV"


def test_whoever_ends_the_server_ends_its_children_and_the_next_child_has_another(tmp_path: Path) -> None:
    before = look(tmp_path / "a")
    child = waiting(tmp_path / "slow")
    os.kill(before["parent"], signal.SIGKILL)
    with pytest.raises(ChildDied, match="SIGKILL"):
        child.ask({}, deadline_s=60)
    assert look(tmp_path / "b")["parent"] != before["parent"]


def test_children_that_measure_have_servers_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without a GPU see a pretended driver and PyTorch; the library's process has another `ct.launch`."""
    install_for_children(monkeypatch)
    children = [ChildProcess(role) for role in ("catalog", "library", "gpu", "compile")]
    catalog, library, gpu, compiler = (psutil.Process(each._process.pid).ppid() for each in children)
    assert catalog == compiler
    assert len({os.getpid(), catalog, library, gpu}) == 4
    for each in children:
        each.close()


def run_alone(function: Callable[[Path], Any], folder: Path) -> None:
    """Calls a function of this module in a process of its own. Pytest's has other threads, and a fork of it keeps the
    locks that they hold."""
    program = f"import pathlib; from {__name__} import {function.__name__} as act; act(pathlib.Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_child_that_is_slow_to_begin_has_its_group_when_it_is_handed_out(tmp_path: Path) -> None:
    """One that was ended at once was never ended: there was no such group yet, and whoever waited did so for ever."""
    run_alone(begin_slowly, tmp_path)


def begin_slowly(folder: Path) -> None:
    begin = os.setsid
    os.setsid = lambda: (time.sleep(0.5), begin())  # type: ignore[assignment, return-value]
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.fork()
    if server == 0:
        control.close()
        fork_server.serve(theirs, lambda _: None)
        os._exit(signal.pause() or 0)
    theirs.close()
    request = {"role": "gpu", "readable": [], "writable": [str(folder)], "environment": {}}
    request["death_signal"] = signal.SIGKILL
    with open(os.devnull) as null:
        socket.send_fds(control, [json.dumps(request).encode()], [null.fileno()] * 3)
    answer, (handle,), _, _ = socket.recv_fds(control, 1 << 16, 1)
    child = json.loads(answer)["process_id"]
    group = os.getpgid(child)
    os.kill(child, signal.SIGKILL)
    os.close(handle)
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    control.close()
    assert group == child


def test_what_cannot_be_imported_is_the_last_word_of_a_child(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('CuPy is broken')")
    child = ChildProcess("gpu", packages=tmp_path)
    with pytest.raises(ChildDied, match=r"^exit code 1: ImportError: CuPy is broken$"):
        child.ask({"ask": "start timer"}, deadline_s=60)


@pytest.mark.gpu
def test_a_server_asks_nothing_of_the_gpu() -> None:
    """CUDA, once asked of in a process, does not work in a fork of it."""
    children = [ChildProcess(role, environment={"CUDA_VISIBLE_DEVICES": "0"}) for role in ("library", "gpu")]
    for each in children:
        files = Path(f"/proc/{psutil.Process(each._process.pid).ppid()}/fd")
        assert [link for file in files.iterdir() if "nvidia" in (link := os.readlink(file))] == []
    assert children[1].ask({"ask": "start timer"}, deadline_s=60) == {}
    for each in children:
        each.close()


def waiting(folder: Path) -> ChildProcess:
    """A child that was asked and does not answer for ten minutes."""
    folder.mkdir()
    (folder / "slow.py").write_text("import time; time.sleep(600)")
    child = ChildProcess("catalog", library=folder)
    child.begin({"library": str(folder), "arch": "sm_90", "kernel": None, "problem": None})
    return child


def test_a_process_that_is_forked_here_has_a_server_of_its_own(tmp_path: Path) -> None:
    """The processes of a Celery pool are forked from a worker."""
    run_alone(compare_servers, tmp_path)


def compare_servers(folder: Path) -> None:
    ours = look(folder / "a")["parent"]
    answer, theirs = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        try:
            os.write(theirs, json.dumps(look(folder / "b")["parent"]).encode())
            forked_process._close_all()
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(answer) as file:
        assert json.loads(file.read()) != ours
    os.waitpid(process_id, 0)
    assert look(folder / "c")["parent"] == ours


def test_nothing_is_left_of_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Nor of what its library started in a session of its own, nor in its folder."""
    (tmp_path / "slow.py").write_text(
        "import subprocess, time\nsubprocess.run('setsid sleep 3600 &', shell=True)\ntime.sleep(600)"
    )
    reads = """
import pathlib, sys
from tilewatch.kernels.catalog import catalog
catalog.read(pathlib.Path(sys.argv[1]), arch="sm_90")
"""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", reads, str(tmp_path)]
    parent = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(scratch)})
    below: list[psutil.Process] = []
    while not any(map(sleeps, below)):  # below the server and its child
        time.sleep(0.05)
        below = psutil.Process(parent.pid).children(recursive=True)
    parent.kill()
    parent.wait()
    assert psutil.wait_procs(below, timeout=60)[1] == []
    assert list(scratch.glob("tilewatch-child-*")) == []


def sleeps(process: psutil.Process) -> bool:
    try:
        return process.name() == "sleep"
    except psutil.NoSuchProcess:  # the shell, which ended meanwhile
        return False


def test_a_child_that_hangs_is_ended_alone(tmp_path: Path) -> None:
    child = waiting(tmp_path / "slow")
    with pytest.raises(ChildHung):
        child.ask({}, deadline_s=0.2)
    assert not child.alive
    assert look(tmp_path / "a")["parent"] == look(tmp_path / "b")["parent"]


def test_the_first_child_after_the_end_of_a_server_has_another_server(tmp_path: Path) -> None:
    """Nobody noticed that end before the child was asked for."""
    before = look(tmp_path / "a")["parent"]
    os.kill(before, signal.SIGKILL)
    assert look(tmp_path / "b")["parent"] != before
