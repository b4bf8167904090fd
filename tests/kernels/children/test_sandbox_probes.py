"""What a commit's code must not do, attempted in each role, with Landlock and without, as root and as an ordinary user:
nothing that is not its own answers, and what is its own does."""

import contextlib
import ctypes
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.children import sandbox

PROGRAM = Path(__file__).parents[1] / "fixtures" / "probes.py"
NOBODY = pwd.getpwnam("nobody")
USERS = ["root", "ordinary"]
ON_GPU_AS_USER = "library on a GPU, of root"
ROLES = ["without GPU", "compiles", "library on a GPU", "measures", "installs", ON_GPU_AS_USER]
OF_ROOT = [*ROLES[:2], ON_GPU_AS_USER]
"""Roles in which a child of root has a user of its own. The third and the last run as root only where they must."""

LEFT_OPEN = {"measures": {"attributes", "files"}, "installs": {"attributes"}}
"""Groups of probes that a role answers: the child that measures runs no library, and writes where its user may. pip
runs nothing of a commit, and gives what it unpacks its mode and times."""

OF_PIP = {("sockets", name) for name in ("TCP", "TCP 6", "UDP", "TCP by a program", "listen")}
"""Probes of the network that the child with pip needs. Whether it may send ICMP depends on the machine."""

HELD_BY_LANDLOCK = {"files"}
ENDS_OTHERS = {("processes", name) for name in ("kill", "kill group", "tkill", "tgkill", "rt_sigqueueinfo")} | {
    ("processes", "rt_tgsigqueueinfo")
}
"""Probes that reach a process of the same user from the child that compiles, unless Landlock bounds signals."""


@dataclass(frozen=True)
class Place:
    """What the probes reach for, of the user that makes them."""

    given: Mapping[str, Any]
    command: tuple[str, ...]


@pytest.fixture(params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A process, files, sockets and System V objects of the user."""
    is_root = os.geteuid() == 0
    if request.param == "root" and not is_root:
        pytest.skip("root alone can be root")
    ordinary = is_root and request.param == "ordinary"
    user = (
        ("setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups", "--") if ordinary else ()
    )
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tilewatch-probes-", dir="/var/tmp")))
        folder.chmod(0o755)
        for name in ("theirs", "scratch", "commit", "home"):
            (folder / name).mkdir()
        for name in ("theirs/secret", "theirs/spare", "theirs/moved", "commit/own"):
            (folder / name).write_text("secret")
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for name, kind in (("stream", socket.SOCK_STREAM), ("datagrams", socket.SOCK_DGRAM)):
            opened = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            opened.bind(str(folder / name))
            if kind == socket.SOCK_STREAM:
                opened.listen()
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0tilewatch-probes-{os.getpid()}")
        abstract.listen()
        if ordinary:
            for each in (folder, *folder.rglob("*")):
                os.chown(each, NOBODY.pw_uid, NOBODY.pw_gid)
        target = stack.enter_context(
            subprocess.Popen([*user, "sleep", "600"], stdin=subprocess.DEVNULL, start_new_session=True, cwd=folder)
        )
        stack.callback(target.kill)
        given = {
            "target": target.pid,
            "objects": stack.enter_context(system_v_objects()),
            "secret": str(folder / "theirs" / "secret"),
            "theirs": str(folder / "theirs"),
            "scratch": str(folder / "scratch"),
            "own": str(folder / "commit" / "own"),
            "home": str(folder / "home"),
            "port": listening.getsockname()[1],
            "stream": str(folder / "stream"),
            "datagrams": str(folder / "datagrams"),
            "abstract": f"tilewatch-probes-{os.getpid()}",
        }
        yield Place(given, user)


@contextlib.contextmanager
def system_v_objects() -> Iterator[list[int]]:
    libc = ctypes.CDLL(None, use_errno=True)
    shared, queue, semaphore = libc.shmget(0, 4096, 0o1666), libc.msgget(0, 0o1666), libc.semget(0, 1, 0o1666)
    yield [shared, queue, semaphore]
    libc.shmctl(shared, 0, None)
    libc.msgctl(queue, 0, None)
    libc.semctl(semaphore, 0, 0)


def attempt(place: Place, role: str, *, landlock: bool = True) -> Mapping[str, Mapping[str, str]]:
    if role == ON_GPU_AS_USER:
        if place.command or os.geteuid() != 0:
            pytest.skip("an ordinary user cannot make another one")
        user = sandbox.name_user(place.given["scratch"])
        os.chown(place.given["scratch"], user, user)
    asked = json.dumps({**place.given, "role": role, "landlock": landlock})
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TILEWATCH_")}
    done = subprocess.run(
        [*place.command, sys.executable, "-P", "-B", str(PROGRAM), asked],
        capture_output=True,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    found: Mapping[str, Mapping[str, str]] = json.loads(done.stdout)
    return found


def find_answered(found: Mapping[str, Mapping[str, str]]) -> set[tuple[str, str]]:
    return {
        (group, name)
        for group, probes in found.items()
        if group != "allowed"
        for name, outcome in probes.items()
        if outcome.startswith("answered")
    }


@pytest.mark.parametrize("landlock", [True, False])
@pytest.mark.parametrize("role", ROLES)
def test_nothing_answers_that_is_not_its_own(place: Place, role: str, landlock: bool) -> None:
    if landlock and not sandbox.landlock_version():
        pytest.skip("this kernel has no Landlock")
    found = attempt(place, role, landlock=landlock)
    left_open = LEFT_OPEN.get(role, set()) | (set() if landlock else HELD_BY_LANDLOCK)
    answered = {each for each in find_answered(found) if each[0] not in left_open}
    bounded = landlock and sandbox.landlock_version() >= sandbox.OLDEST_WITH_SIGNALS
    of_role = {
        "installs": OF_PIP | (answered & {("sockets", "ICMP")}),
        "compiles": ENDS_OTHERS if place.command and not bounded else set(),
    }
    assert answered == of_role.get(role, set())
    held = {name for group, each in found.items() if group not in left_open | {"allowed"} for name in each}
    assert len(held) >= (90 if left_open else 110)
    refused = {name: each for name, each in found["allowed"].items() if not each.startswith("answered")}
    assert refused == {}


READS = {
    *("read", "read by a link", "read by a program", "list", "home", "temporary files of others", "service data"),
    *("secrets of a container", "terminals", "terminals of others"),
}
"""Probes of files that change nothing: a child of root with a user of its own keeps the right to read."""


@pytest.mark.parametrize("role", OF_ROOT)
def test_root_s_child_has_a_user_of_its_own(place: Place, role: str) -> None:
    """Without Landlock that user alone keeps the files and processes of root."""
    if place.command or os.geteuid() != 0:
        pytest.skip("an ordinary user cannot make another one")
    answered = find_answered(attempt(place, role, landlock=False))
    assert answered == {("files", name) for name in READS}
    owner = os.stat(place.given["scratch"] + "/own").st_uid
    assert owner > sandbox.FIRST_USER
    attempt(Place({**place.given, "scratch": place.given["theirs"]}, place.command), role)
    assert os.stat(place.given["theirs"] + "/own").st_uid not in (0, owner), "each child has another"


LEAVE = """
import os, sys
from tilewatch.kernels.children import sandbox
sys.path.append(sys.argv[1])
print(sandbox._leave_root([]), os.geteuid())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot make another one")
@pytest.mark.parametrize(
    ("mode", "prefix", "leaves"),
    [
        (0o755, (), True),
        (0o700, (), False),  # root alone may run the compiler
        (0o755, ("unshare", "--user", "--map-root-user"), False),  # there are no other users, as in a container
        (0o755, ("setpriv", "--bounding-set=-setuid", "--inh-caps=-setuid"), False),  # root may not change users
    ],
)
def test_root_becomes_another_user_unless_the_compiler_or_the_container_needs_root(
    tmp_path: Path, mode: int, prefix: tuple[str, ...], leaves: bool
) -> None:
    compiler = tmp_path / "nvidia" / "cu13" / "bin" / "tileiras"
    compiler.parent.mkdir(parents=True)
    compiler.touch()
    compiler.chmod(mode)
    command = [*prefix, sys.executable, "-c", LEAVE, str(tmp_path)]
    right, user = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert (right, user > sandbox.FIRST_USER) == (sandbox.READ_ANY if leaves else 0, leaves)


def test_without_a_sandbox_the_probes_are_answered(place: Place) -> None:
    """Otherwise the test above would hold for probes that never work. Whether the machine's own calls answer depends on
    the machine, and a product that root installed is not an ordinary user's to write."""
    found = attempt(place, "unconfined")
    answered = find_answered(found)
    refused = {
        (group, name)
        for group, probes in found.items()
        for name in probes
        if group not in ("administration", "allowed") and (group, name) not in answered
    }
    needs_root = {("sockets", "ICMP"), ("sockets", "raw"), ("sockets", "packet"), ("files", "write into the product")}
    assert refused - needs_root == set()
    assert len(answered) >= 110


def test_a_file_keeps_what_the_probes_would_change(place: Place) -> None:
    own, before = Path(place.given["own"]), []
    for role in ROLES[:3]:
        before.append(own.stat())
        attempt(place, role)
    after = own.stat()
    assert {(each.st_mode, each.st_mtime_ns, each.st_uid) for each in (*before, after)} == {
        (after.st_mode, after.st_mtime_ns, after.st_uid)
    }
    assert os.listxattr(own) == []
