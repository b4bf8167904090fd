"""Keeps a child process from the network, from other processes and from files that are not its own, by the kernel's
Landlock and seccomp. Neither needs root, a container's or a machine's administrator, and both hold for root too.

A process confines itself before it loads other people's code; what it starts is confined as well, and nothing undoes
it. docs/operate/security.md says what each level stops.
"""

import ctypes
import os
import platform
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.kernels import project_settings

REQUIRE, SWITCH = "TILEWATCH_REQUIRE_SANDBOX", "TILEWATCH_SANDBOX"
REQUIRE_APART = "TILEWATCH_REQUIRE_APART"
"""Refuses host code that would have to be measured by the process that runs it: see Apart."""

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/opt", "/nix", "/proc", "/sys", "/dev")
"""What programs and libraries read. Homes, /var, /tmp, /run and other disks are not among them."""

PACKAGE = Path(__file__).parents[2]
"""Our own. In a checkout its folders are links, to be followed."""

OF_THE_DRIVER = ("/dev", "/proc")

SOCKETS_OF_THE_DRIVER = ("/run/nvidia-persistenced", "/var/run/nvidia-persistenced", "/tmp/nvidia-mps")  # noqa: S108
"""Where CUDA looks for NVIDIA's persistence daemon and for MPS, unless CUDA_MPS_PIPE_DIRECTORY names another folder."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

NO_NEW_PRIVS, SET_SECCOMP, SECCOMP_FILTER = 38, 22, 2  # prctl(2)
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # landlock(7); the same numbers on x86-64 and arm64
READS = 0b1101  # execute, read a file, read a folder
WRITES = 0b1_1111_1111_0010  # write, remove and make anything; what newer kernels add is in `_files_rights`
OF_A_FILE = 0b1_0100_0000_0000_0111  # execute, write, read, truncate, connect to it: folders have the others too
CONNECTS = 1 << 16  # to a socket that lies in a folder and that a process outside of this sandbox made
OLDEST_WITH_SOCKETS = 9
"""First version of Landlock (Linux 7.1) whose rules for paths also bind connect(2)."""
CALLS = {"x86_64": (0xC000003E, 41, 53, 42, 157), "aarch64": (0xC00000B7, 198, 199, 203, 167)}
"""Maps an architecture to its number for an audit, and to the numbers of socket(2), socketpair(2), connect(2) and
prctl(2)."""
OLDEST_WITHOUT_FILES = 4
"""First version of Landlock that takes a ruleset without files."""
IO_URING_SETUP = 425
X32 = 0x40000000
AF_UNIX, AF_NETLINK = 1, 16
CONNECTED = (1, 5)
"""SOCK_STREAM and SOCK_SEQPACKET: what is not connected cannot send. One that is may send a datagram to any address."""

Instruction = tuple[int, int, int, int]
"""An instruction of classic BPF: its code, how far to jump if it is true and if not, and the number that it works with.
"""


class Level(StrEnum):
    """What a child is kept from. NETWORK leaves it the files of its user, NONE everything."""

    FULL = "files, network and other processes"
    NETWORK = "network"
    NONE = "nothing"


class GpuLevel(StrEnum):
    """What a child that measures is kept from."""

    PROCESSES = "network and other processes"
    NETWORK = "network"
    NONE = "nothing"


class Apart(StrEnum):
    """When host code has to be measured by a process that does not run it. STATED: always, but for an operator whose
    watch file gives the reason, and for a watch file's own baselines."""

    ALWAYS = "always"
    STATED = "unless a watch file says why not"
    NEVER = "never"


class SandboxMissing(ExpectedError):
    """TILEWATCH_REQUIRE_SANDBOX is set and the kernel cannot do what it asks for; the message is a sentence."""


def find_level() -> Level:
    """Says what a child without a GPU is kept from here. NONE where TILEWATCH_SANDBOX is `off` and nothing requires
    one."""
    refused = os.environ.get(SWITCH) == "off" and not is_required()
    if refused or platform.machine() not in CALLS or not _has_seccomp():
        return Level.NONE
    return Level.FULL if landlock_version() else Level.NETWORK


def find_gpu_level() -> GpuLevel:
    """Says what a child that measures is kept from here. NONE where `find_level` is."""
    if find_level() is Level.NONE:
        return GpuLevel.NONE
    return GpuLevel.PROCESSES if landlock_version() >= OLDEST_WITHOUT_FILES else GpuLevel.NETWORK


def require() -> None:
    """Raises SandboxMissing where TILEWATCH_REQUIRE_SANDBOX is 1 and there is less than a full one."""
    level = find_level()
    if is_required() and level is not Level.FULL:
        raise SandboxMissing(
            f"{REQUIRE} is set, and a child process would be kept from {level.value} here; it takes Linux 5.13 with "
            "Landlock and seccomp"
        )


def is_required() -> bool:
    return os.environ.get(REQUIRE, "") not in ("", "0")


def find_apart() -> Apart:
    """Reads TILEWATCH_REQUIRE_APART: 1 refuses all such host code, 0 none; STATED unless it is set."""
    asked = os.environ.get(REQUIRE_APART, "")
    return Apart.STATED if not asked else Apart.NEVER if asked == "0" else Apart.ALWAYS


def landlock_version() -> int:
    """Returns 0 where the kernel has no Landlock, or does not let this process use it."""
    return max(0, int(_libc().syscall(CREATE_RULESET, None, 0, 1)))


def find_root(library: Path) -> Path:
    """Returns the folder that a library's files may import from: the checkout whose pyproject.toml has a table
    [tool.tilewatch], else the library's own folder."""
    library = library.resolve()
    for folder in (library, *library.parents):
        try:
            if project_settings.read(folder) is not None:
                return folder
        except project_settings.BadProject:
            return folder
    return library


def confine_without_gpu(*, readable: Iterable[str], writable: Iterable[str]) -> None:
    """Confines this process to the system's programs, Python's packages, `readable`, and `writable`; no network."""
    level = find_level()
    if level is Level.NONE:
        return
    _forbid_new_privileges()
    _drop_capabilities()
    if level is Level.FULL:
        _enter_landlock(_list_readable(readable), [*DEVICES, *writable])
    _filter_calls()


def confine_with_gpu(*, writable: Iterable[str] | None) -> None:
    """Confines this process from the network, from other processes, from Unix sockets that are not the driver's (before
    Linux 7.1 from all: CUDA goes on without its daemons), and from writing elsewhere than into `writable` and what the
    driver needs; None leaves files as they are.

    All files may be read: with the rule of a child without a GPU and every device of the driver, NVML worked and CUDA
    did not begin, and with this one CUDA, CUPTI, NVML and PyTorch work (H200, Linux 6.18, 2026-11-22). Root keeps its
    capabilities, which CUPTI may need."""
    level = find_gpu_level()
    if level is GpuLevel.NONE:
        return
    _forbid_new_privileges()
    if level is GpuLevel.PROCESSES:
        mps = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
        sockets = [*SOCKETS_OF_THE_DRIVER, *([mps] if mps else [])]
        _enter_landlock(None, None if writable is None else [*OF_THE_DRIVER, *writable], sockets)
    bounded = level is GpuLevel.PROCESSES and landlock_version() >= OLDEST_WITH_SOCKETS
    _filter_calls((AF_NETLINK,), unix=True, connects=bounded)  # the driver's own


def _list_readable(also: Iterable[str]) -> list[str]:
    """Lists the system's folders, those of this Python and its packages, our own code, and `also`."""
    python = [sys.prefix, sys.base_prefix, *sys.path, *(sysconfig.get_path(each) for each in ("stdlib", "platstdlib"))]
    ours = [str(each.resolve()) for each in PACKAGE.iterdir()]
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [each for each in (*SYSTEM, *python, *ours, *named, *libraries, *also) if each]


def _enter_landlock(
    readable: Iterable[str] | None, writable: Iterable[str] | None, sockets: Iterable[str] = ()
) -> None:
    """Confines this process to files by Landlock. `readable` None leaves reading as it is; `writable` None leaves all
    access to files as it is. Of other processes' Unix sockets it may connect to those in `sockets`, and to no abstract
    one (version 6)."""
    version = landlock_version()
    rights = 0 if writable is None else _files_rights(version)
    if readable is None:
        rights &= ~READS
    connects = CONNECTS if version >= OLDEST_WITH_SOCKETS else 0
    fields = [rights | connects, 0b11 if version >= 4 else None, 0b11 if version >= 6 else None]  # TCP; other processes
    values = [each for each in fields if each is not None]
    ruleset = _checked(_libc().syscall(CREATE_RULESET, struct.pack(f"={len(values)}Q", *values), 8 * len(values), 0))
    for path in readable or ():
        _allow(ruleset, path, READS)
    for path in writable or ():
        _allow(ruleset, path, rights)
    for path in sockets if connects else ():
        _allow(ruleset, path, connects)
    _checked(_libc().syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _files_rights(version: int) -> int:
    """Returns the rights that a ruleset governs: moving between folders since version 2, truncating since 3."""
    return READS | WRITES | (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Adds a rule for a path. A path that does not exist, or that this user may not enter, needs none."""
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            rights &= OF_A_FILE
        _checked(_libc().syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, file), 0))
    finally:
        os.close(file)


def _forbid_new_privileges() -> None:
    _checked(_libc().prctl(NO_NEW_PRIVS, 1, 0, 0, 0))


def _drop_capabilities() -> None:
    """Drops all capabilities: root keeps what it owns and nothing else. With CAP_PERFMON it would read the environment
    of other processes, whatever Landlock says (Linux 6.18)."""
    _checked(_libc().capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)))  # version 3, this process; all sets empty


def _filter_calls(allowed: tuple[int, ...] = (), *, unix: bool = False, connects: bool = False) -> None:
    """Refuses socket(2) but for these families and, with `unix`, Unix sockets; io_uring, which makes sockets without
    it; and to hand orphans on to another process: a program that a library started and left would run on after it
    (kernels/child.py). No call makes a Unix socket of datagrams, which would reach the sockets of others that have a
    name. Unless Landlock bounds what it `connects` to, connect(2) is refused.

    A program over struct seccomp_data: the number at 0, the architecture at 4, the arguments from 16 on.
    """
    load, equal, at_least, mask = 0x20, 0x15, 0x35, 0x54
    accept, refuse = (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | 13)  # SECCOMP_RET_ALLOW; _ERRNO with EACCES

    def rules_of(number: int, *rules: Instruction) -> list[Instruction]:
        """Rules of one call, which end with an answer; other calls jump over them."""
        return [(equal, 0, len(rules), number), *rules]

    def accept_any(values: Iterable[int]) -> list[Instruction]:
        return [each for value in values for each in ((equal, 0, 1, value), accept)]

    arch, socket, socketpair, connect, prctl = CALLS[platform.machine()]
    connected = [(load, 0, 0, 24), (mask, 0, 0, 0xF), *accept_any(CONNECTED), refuse]
    of_unix = [(equal, 0, len(connected), AF_UNIX), *connected] if unix else []
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, arch),
        refuse,
        (load, 0, 0, 0),
        (at_least, 0, 1, X32),
        refuse,
        *rules_of(IO_URING_SETUP, refuse),
        *rules_of(socket, (load, 0, 0, 16), *accept_any(allowed), *of_unix, refuse),
        *rules_of(socketpair, *connected),
        *rules_of(connect, accept if connects else refuse),
        *rules_of(prctl, (load, 0, 0, 16), (equal, 0, 1, processes.PR_SET_CHILD_SUBREAPER), refuse, accept),
        accept,
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    described = struct.pack("=HxxxxxxQ", len(program), ctypes.addressof(code))
    _checked(_libc().prctl(SET_SECCOMP, SECCOMP_FILTER, described, 0, 0))


def _has_seccomp() -> bool:
    return int(_libc().prctl(21, 0, 0, 0, 0)) >= 0  # PR_GET_SECCOMP


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "the sandbox cannot be entered")
    return result
