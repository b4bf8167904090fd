"""A library that reads, writes, calls and kills what is not its own, in a real child: nothing answers it."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.children.call_filter import CallPolicy
from tilewatch.kernels.children.child_process import ON_GPU, WITHOUT_GPU
from tilewatch.kernels.children.sandbox import Level, SandboxMissing
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.library_errors import LibraryError

PRODUCT = Path(sandbox.__file__)
full = pytest.mark.skipif(not sandbox.landlock_version(), reason="this kernel has no Landlock")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is by itself."""
    monkeypatch.delenv(sandbox.SWITCH, raising=False)
    monkeypatch.delenv(sandbox.REQUIRE, raising=False)


PROBES = """
import ctypes, json, multiprocessing, os, socket, subprocess
def attempt(act):
    try:
        return f"answered: {act()!r}"[:60]
    except OSError as error:
        return type(error).__name__
def run(*command):
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise PermissionError(done.stderr)
    return done.stdout
def open_any(process):
    for file in os.listdir(f"/proc/{process}/fd"):
        try:
            return os.open(f"/proc/{process}/fd/{file}", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            pass
    raise PermissionError(process)
def hand_on_orphans():
    if ctypes.CDLL(None, use_errno=True).prctl(36, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(2)")
def pass_on(pair, *length):
    pair[0].send(b"x")
    return pair[1].recv(*length)
def make_ring():
    if ctypes.CDLL(None, use_errno=True).syscall(425, 8, ctypes.create_string_buffer(120)) < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup(2)")
def find_environment(words):
    readable = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            readable += [process] if words in open(f"/proc/{process}/environ", "rb").read() else []
        except OSError:
            pass
    if not readable:
        raise PermissionError(words)
    return readable
parent = os.getppid()
LINK = os.environ["TMPDIR"] + "/link"
found = {
    "secret": attempt(lambda: open(SECRET).read()),
    "secret by a program": attempt(lambda: run("cat", SECRET)),
    "secret in a namespace": attempt(lambda: run("unshare", "--user", "--map-root-user", "--mount", "cat", SECRET)),
    "secret by a link": attempt(lambda: (os.symlink(SECRET, LINK), open(LINK).read())),
    "other checkout": attempt(lambda: os.listdir(os.path.dirname(SECRET))),
    "write there": attempt(lambda: open(os.path.dirname(SECRET) + "/new", "w")),
    "write product": attempt(lambda: open(PRODUCT, "r+")),
    "write own checkout": attempt(lambda: open(os.path.dirname(os.path.abspath(OWN)) + "/new", "w")),
    "own home": attempt(lambda: os.listdir(REAL_HOME)),
    "parent's environment": attempt(lambda: open(f"/proc/{parent}/environ").read()),
    "parent's memory": attempt(lambda: open(f"/proc/{parent}/mem", "rb").read(1)),
    "kill parent": attempt(lambda: os.kill(parent, 0)),
    "files of others": attempt(lambda: open_any(parent)),
    "token of any process": attempt(lambda: find_environment(b"FORGE_TOKEN=of-a-judge")),
    "hand orphans on": attempt(hand_on_orphans),
    "connect": attempt(lambda: socket.create_connection(("127.0.0.1", PORT), 5)),
    "unix socket": attempt(lambda: socket.socket(socket.AF_UNIX)),
    "datagram": attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", DATAGRAMS)),
    "raw datagram": attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)[0].sendto(b"x", DATAGRAMS)),
    "ring": attempt(make_ring),
    "listen": attempt(lambda: socket.create_server(("127.0.0.1", 0))),
    "connect by a program": attempt(lambda: run("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}")),
    "disk": attempt(lambda: os.mknod(os.environ["TMPDIR"] + "/disk", 0o60600, os.makedev(8, 0))),
}
allowed = {
    "own file": attempt(lambda: len(open(OWN).read())),
    "scratch": attempt(lambda: open(os.environ["TMPDIR"] + "/a", "w").write("x")),
    "scratch home": attempt(lambda: open(os.path.expanduser("~/a"), "w").write("x")),
    "null": attempt(lambda: open("/dev/null", "w").write("x")),
    "program": attempt(lambda: run("true")),
    "pair of sockets": attempt(lambda: pass_on(socket.socketpair(), 1)),
    "pair of processes": attempt(lambda: pass_on(multiprocessing.Pipe())),
}
"""


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield int(opened.getsockname()[1])


@pytest.fixture
def datagrams(tmp_path: Path) -> Iterator[Path]:
    """A service that takes messages at a path, as a system's log does."""
    path = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(path))
        yield path


@pytest.fixture
def library(tmp_path: Path, listener: int, datagrams: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "connection.json").write_text("postgresql://tilewatch:secret@db")
    own = tmp_path / "commit" / "lib"
    own.mkdir(parents=True)
    names = {
        "SECRET": str(tmp_path / "home" / "connection.json"),
        "OWN": str(own / "hostile.py"),
        "PORT": listener,
        "DATAGRAMS": str(datagrams),
        "PRODUCT": str(PRODUCT),
        "REAL_HOME": str(Path.home()),
    }
    lines = [f"{name} = {value!r}" for name, value in names.items()]
    report = "raise RuntimeError('probes ' + json.dumps([found, allowed]) + ' end')"
    (own / "hostile.py").write_text("\n".join([*lines, PROBES, report]))
    return own


def outcomes(sentence: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    found, allowed = json.loads(sentence.partition("probes ")[2].partition(" end")[0])
    return found, allowed


@pytest.fixture
def judge() -> Iterator[None]:
    """A process of this user with the forge's token, as the judge's worker is one, but without its own protection."""
    with subprocess.Popen(["sleep", "3600"], env={"TILEWATCH_FORGE_TOKEN": "of-a-judge"}) as running:
        yield
        running.kill()


@full
@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize("role", ["catalog", "compile"])
def test_nothing_that_is_not_its_own_answers_a_library(library: Path, role: str, tmp_path: Path) -> None:
    with Compiler(folder(tmp_path / "cubins")) as compiler:
        ask = {
            "catalog": lambda: catalog.read(library, arch="sm_90"),
            "compile": lambda: compiler.compile(library, "k", "p", {}, "sm_90"),
        }
        with pytest.raises((LibraryError, BuildError)) as raised:
            ask[role]()
    found, allowed = outcomes(str(raised.value))
    assert {name: each for name, each in found.items() if each.startswith("answered")} == {}
    assert {name: each for name, each in allowed.items() if not each.startswith("answered")} == {}


@full
@pytest.mark.usefixtures("judge")
def test_without_a_sandbox_the_same_probes_are_answered(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would hold for a library that never ran them."""
    monkeypatch.setenv(sandbox.SWITCH, "off")
    monkeypatch.setenv("HOME", str(library.parent))
    monkeypatch.setenv("TMPDIR", str(library.parent))
    with pytest.raises(LibraryError) as raised:
        catalog.read(library, arch="sm_90")
    found, _ = outcomes(str(raised.value))
    for name in (
        "secret",
        "secret by a program",
        "secret by a link",
        "connect",
        "kill parent",
        "token of any process",
        "hand orphans on",
        "listen",
        "datagram",
        "raw datagram",
    ):
        assert found[name].startswith("answered"), name


@full
def test_a_child_with_a_gpu_is_kept_from_the_network_and_from_other_processes(listener: int, tmp_path: Path) -> None:
    program = f"""
import os, socket
from tilewatch.kernels.children import sandbox
sandbox.confine_with_gpu(writable=None)
socket.socket(socket.AF_UNIX).close()
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
open({str(tmp_path / "cache")!r}, "w").close()
for act in (lambda: socket.create_connection(("127.0.0.1", {listener})), lambda: socket.socket(socket.AF_INET6),
            lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            lambda: os.kill(os.getppid(), 0), lambda: open(f"/proc/{{os.getppid()}}/mem", "rb")):
    try:
        act()
    except PermissionError:
        continue
    raise SystemExit("it was answered")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@full
def test_a_child_with_a_gpu_connects_to_no_socket_of_others_and_to_the_driver_s_only_where_the_kernel_bounds_it(
    tmp_path: Path,
) -> None:
    """Sockets that another process of the user made."""
    drivers = tmp_path / "drivers"
    drivers.mkdir()
    program = f"""
import socket, sys
from tilewatch.kernels.children import sandbox
sandbox.SOCKETS_OF_THE_DRIVER = ({str(drivers)!r},)
sandbox.confine_with_gpu(writable=[{str(tmp_path)!r}])
for name in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(name.replace("@", chr(0)))
            print("answered")
        except PermissionError:
            print("refused")
"""
    abstract = f"@tilewatch-test-{os.getpid()}"
    names = [abstract, str(tmp_path / "theirs"), str(drivers / "socket")]
    with contextlib.ExitStack() as opened:
        for name in names:
            server = opened.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name.replace("@", "\0"))
            server.listen()
        done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True)
    version = sandbox.landlock_version()
    expected = ["refused", "refused", "answered" if version >= 9 else "refused"]
    assert (done.stdout.split(), done.stderr) == (expected, "")


@full
def test_a_child_with_a_gpu_sends_no_datagram_to_a_unix_socket_of_others(datagrams: Path) -> None:
    program = f"""
import socket
from tilewatch.kernels.children import sandbox
sandbox.confine_with_gpu(writable=None)
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK):
    for make in (lambda: socket.socket(socket.AF_UNIX, kind), lambda: socket.socketpair(socket.AF_UNIX, kind)[0]):
        try:
            make().sendto(b"x", {str(datagrams)!r})
        except PermissionError:
            continue
        raise SystemExit("it was sent")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@full
def test_a_child_with_a_gpu_keeps_what_is_connected_as_it_is_made(tmp_path: Path) -> None:
    program = f"""
import asyncio, multiprocessing, socket
from tilewatch.kernels.children import sandbox
sandbox.confine_with_gpu(writable=[{str(tmp_path)!r}])
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    one.sendmsg([b"x"])
    assert other.recv(1) == b"x"
socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).close()
socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM).close()
one, other = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=one.send, args=("x",))
process.start()
assert other.recv() == "x"
process.join()
with multiprocessing.get_context("fork").Pool(1) as pool:
    assert pool.map(abs, [-1]) == [1]
assert asyncio.run(asyncio.sleep(0, "x")) == "x"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


class NewerKernel:
    """Takes the system calls of a sandbox as a kernel with that version of Landlock, and keeps what they ask for."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.handled = self.scopes = 0
        self.allowed: list[int] = []

    def prctl(self, *_: object) -> int:
        return 0

    def syscall(self, number: int, *given: Any) -> int:
        if number == sandbox.CREATE_RULESET:
            if given[0] is None:
                return self.version
            self.handled, _, self.scopes = struct.unpack("=3Q", given[0].ljust(24, b"\0"))
            return os.open("/dev/null", os.O_RDONLY)
        if number == sandbox.ADD_RULE:
            self.allowed += struct.unpack_from("=Q", given[2])
        return 0


@pytest.mark.parametrize(("version", "connects"), [(8, 0), (9, 1 << 16), (10, 1 << 16)])
def test_a_kernel_that_bounds_connecting_is_asked_to_and_no_other(
    version: int, connects: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = NewerKernel(version)
    monkeypatch.setattr(sandbox, "_libc", lambda: kernel)
    monkeypatch.setattr(sandbox, "SOCKETS_OF_THE_DRIVER", (str(tmp_path / "nowhere"),))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    sandbox.confine_with_gpu(writable=None)
    assert kernel.handled == connects
    assert kernel.scopes == 0b11, "abstract sockets of others, and signals to them"
    assert kernel.allowed == ([connects] if connects else [])
    assert all(not allowed & ~kernel.handled for allowed in kernel.allowed), "a kernel refuses such a rule"


@pytest.mark.parametrize(("version", "newer"), [(1, 0), (2, 1 << 13), (3, 0b11 << 13), (4, 0b11 << 13)])
def test_a_kernel_that_bounds_moving_and_truncating_is_asked_to(
    version: int, newer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right that is not restricted is everybody's, and a kernel refuses one that it does not know."""
    kernel = NewerKernel(version)
    monkeypatch.setattr(sandbox, "_libc", lambda: kernel)
    sandbox._enter_landlock((), (), network=True)
    assert kernel.handled == sandbox.READS | sandbox.WRITES | newer


ENTRANCES = {
    "without a GPU": lambda: sandbox.confine_without_gpu(readable=(), writable=()),
    "ending others": lambda: sandbox.confine_without_gpu(readable=(), writable=(), ends_others=True),
    "to install": lambda: sandbox.confine_to_install(readable=(), writable=()),
    "with a GPU": lambda: sandbox.confine_with_gpu(writable=()),
    "with all files": lambda: sandbox.confine_with_gpu(writable=None),
}


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> list[CallPolicy]:
    """The filters of calls that are entered, on a kernel that takes all of them. This process stays as it is."""
    entered: list[CallPolicy] = []
    monkeypatch.setattr(sandbox, "_filter_calls", entered.append)
    for name in ("_drop_capabilities", "_leave_root", "_become_owner"):
        monkeypatch.setattr(sandbox, name, lambda *_: 0)
    return entered


@pytest.mark.parametrize(
    ("entrance", "truncate", "signals", "connect", "attributes"),
    [
        ("without a GPU", 3, 6, None, False),
        ("ending others", 3, 0, None, False),
        ("to install", 3, 6, 0, True),
        ("with a GPU", 3, 6, 9, False),
        ("with all files", 0, 6, 9, True),
    ],
)
def test_calls_are_left_to_the_first_kernel_that_bounds_them(
    entrance: str,
    truncate: int,
    signals: int,
    connect: int | None,
    attributes: bool,
    policies: list[CallPolicy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it the filter refuses them. The numbers are the first versions of Landlock that bound each call."""
    versions = range(11)
    for version in versions:
        monkeypatch.setattr(sandbox, "_libc", lambda version=version: NewerKernel(version))
        ENTRANCES[entrance]()
    assert [each.bounds_truncate for each in policies] == [version >= truncate for version in versions]
    assert [each.bounds_signals for each in policies] == [version >= signals for version in versions]
    assert [each.bounds_connect for each in policies] == [
        connect is not None and version >= connect for version in versions
    ]
    assert {each.attributes for each in policies} == {attributes}
    assert {each.unix for each in policies} == {"with" in entrance.split()}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_process_whose_sandbox_is_switched_off_is_not_confined(
    entrance: str, policies: list[CallPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = NewerKernel(9)
    monkeypatch.setattr(sandbox, "_libc", lambda: kernel)
    monkeypatch.setenv(sandbox.SWITCH, "off")
    ENTRANCES[entrance]()
    assert (policies, kernel.handled) == ([], 0)
    monkeypatch.delenv(sandbox.SWITCH)
    ENTRANCES[entrance]()
    assert len(policies) == 1


def test_a_folder_s_user_is_one_of_those_set_aside_for_folders() -> None:
    numbers = {sandbox.name_user(f"/home/{each}") - sandbox.FIRST_GPU_USER for each in range(1000)}
    assert min(numbers) >= 0
    assert max(numbers) < 1 << 24
    assert len(numbers) > 990


@pytest.mark.parametrize(
    ("caller", "first", "count", "is_left"),
    [(0, 0, 1, True), (0, 1, 1, False), (1000, 0, 1, False), (0, 0, 0, False)],
    ids=("a folder's user", "an ordinary owner", "no root", "no folder"),
)
def test_root_becomes_the_owner_of_a_folder_only_if_that_is_a_folder_s_user(
    caller: int, first: int, count: int, is_left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first` is how far the first of those users is above the folder's owner."""
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(sandbox, "FIRST_GPU_USER", owner + first)
    monkeypatch.setattr(os, "geteuid", lambda: caller)
    monkeypatch.setattr(sandbox, "_become", lambda user: user + 1)
    assert sandbox._become_owner([str(tmp_path)] * count) == (owner + 1 if is_left else 0)


@full
def test_a_child_that_runs_a_library_on_a_gpu_reads_its_checkout_and_writes_into_its_own_alone(tmp_path: Path) -> None:
    own, other, checkout = tmp_path / "own", tmp_path / "other", tmp_path / "checkout"
    own.mkdir()
    checkout.write_text("kernels")
    other.write_text("theirs")
    program = f"""
from pathlib import Path
from tilewatch.kernels.children import sandbox
sandbox.confine_with_gpu(readable=[{str(checkout)!r}], writable=[{str(own)!r}])
own, other = Path({str(own)!r}), Path({str(other)!r})
assert Path({str(checkout)!r}).read_text() == "kernels"
(own / "kernel").write_text("compiled")
(own / "kernel").unlink()
Path("/dev/null").write_text("")
for act in (other.read_text, lambda: other.write_text("mine"), other.unlink, lambda: other.with_name("new").mkdir(),
            lambda: Path({str(checkout)!r}).write_text("mine"),
            lambda: other.rename(other.with_name("moved")), lambda: (own / "link").hardlink_to(other)):
    try:
        act()
    except OSError:
        continue
    raise SystemExit("it was written")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert other.read_text() == "theirs"


@full
@pytest.mark.parametrize(
    ("switch", "require", "level", "gpu_level"),
    [
        (None, None, Level.FULL, Level.PROCESSES),
        ("off", None, Level.NONE, Level.NONE),
        (None, "1", Level.FULL, Level.PROCESSES),
        ("off", "1", Level.FULL, Level.PROCESSES),
    ],
)
def test_what_is_set_decides_what_a_child_is_kept_from(
    monkeypatch: pytest.MonkeyPatch, switch: str | None, require: str | None, level: Level, gpu_level: Level
) -> None:
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 4)
    for name, value in ((sandbox.SWITCH, switch), (sandbox.REQUIRE, require)):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert (sandbox.find_level(), sandbox.find_gpu_level()) == (level, gpu_level)


def test_a_kernel_without_landlock_is_not_at_the_first_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    assert (sandbox.find_level(), sandbox.find_gpu_level()) == (Level.NETWORK, Level.NETWORK)


@full
def test_what_is_required_reaches_the_child(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child decides by its own environment."""
    monkeypatch.setenv(sandbox.SWITCH, "off")
    monkeypatch.setenv(sandbox.REQUIRE, "1")
    with pytest.raises(LibraryError) as raised:
        catalog.read(library, arch="sm_90")
    found, _ = outcomes(str(raised.value))
    assert not found["secret"].startswith("answered")


def test_where_it_is_required_and_not_there_no_child_starts(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.REQUIRE, "1")
    monkeypatch.setattr(sandbox, "find_level", lambda: Level.NETWORK)
    with pytest.raises(SandboxMissing, match="would be kept from network here; it takes Linux 5"):
        catalog.read(library, arch="sm_90")
    monkeypatch.setattr(sandbox, "find_level", lambda: Level.FULL)
    sandbox.require()


def test_a_library_may_read_its_checkout_and_no_more(tmp_path: Path) -> None:
    watch = tmp_path / "commit" / "watch"
    watch.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'outer'\n")
    assert sandbox.find_root(watch) == watch
    (tmp_path / "commit" / "pyproject.toml").write_text("[tool.tilewatch]\npath = ['src']\n")
    assert sandbox.find_root(watch) == tmp_path / "commit"


def test_what_lies_above_the_checkout_of_a_commit_is_not_the_commit_s(tmp_path: Path) -> None:
    """A data folder may lie in a repository that is watched itself."""
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")
    library = tmp_path / "checkouts" / ("0" * 40) / "library"
    library.mkdir(parents=True)
    assert sandbox.find_root(library) == library
    assert sandbox.find_root(tmp_path / "checkouts") == tmp_path


def test_settings_without_an_end_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").symlink_to("/dev/zero")
    assert sandbox.find_root(tmp_path) == tmp_path


LOADS = """
import json, os, pathlib, sys
from tilewatch.kernels import child

def load(role):
    status = dict(line.split(":\\t") for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    try:
        reads = bool(pathlib.Path(sys.argv[1]).read_text())
    except PermissionError:
        reads = False
    sys.exit(json.dumps([role, status["Seccomp"], status["NoNewPrivs"], reads]))

child.import_role = load
for role in sys.argv[2:]:
    process = os.fork()
    if process == 0:
        child.main(role, [], [])
    os.waitpid(process, 0)
"""


@full
def test_a_child_is_confined_when_it_loads_the_code_of_its_role(tmp_path: Path) -> None:
    """The child that measures runs no library, and reads what its user may."""
    (tmp_path / "secret").write_text("secret")
    roles = (*WITHOUT_GPU, *ON_GPU, "install")
    command = [sys.executable, "-c", LOADS, str(tmp_path / "secret"), *roles]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=True)
    assert list(map(json.loads, done.stderr.splitlines())) == [[role, "2", "1", role == "gpu"] for role in roles]
