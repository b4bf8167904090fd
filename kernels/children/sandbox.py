"""Confines a child process with Linux's Landlock and seccomp, even if it runs as root.

A process confines itself before it loads other people's code, and cannot undo it. Its descendants are confined too."""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path

from tilewatch import processes
from tilewatch.errors import ExpectedError
from tilewatch.kernels import project_settings
from tilewatch.kernels.children import call_filter
from tilewatch.kernels.children.call_filter import CallPolicy

REQUIRE, SWITCH = "TILEWATCH_REQUIRE_SANDBOX", "TILEWATCH_SANDBOX"
REQUIRE_APART = "TILEWATCH_REQUIRE_APART"
"""Environment variable that forbids a process to measure the same host code that it runs (see Apart)."""

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/opt", "/nix", "/proc", "/sys")
"""Folders that programs and libraries read. Homes, /var, /tmp, /run, terminals and other disks are not among them."""

PACKAGE = Path(__file__).parents[2]
"""Tilewatch's own folder. In a checkout its subfolders are links, and a child must be able to read their targets."""

SOCKETS_OF_THE_DRIVER = ("/run/nvidia-persistenced", "/var/run/nvidia-persistenced", "/tmp/nvidia-mps")  # noqa: S108
"""Paths at which CUDA looks for NVIDIA's persistence daemon and for MPS, if CUDA_MPS_PIPE_DIRECTORY is not set."""

READ_BY_THE_DRIVER = ("/run/nvidia", "/var/run/nvidia", "/var/lib/nvidia", *SOCKETS_OF_THE_DRIVER)

WRITTEN_BY_THE_DRIVER = ("/proc/self", "/dev/shm")  # noqa: S108 - CUDA's own shared memory; names of its threads
DEVICES_OF_THE_DRIVER = ("nvidia*", "nvhost*", "nvmap", "nvgpu", "nvsciipc", "dxg", "gdrdrv", "infiniband", "dri")

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

FIRST_USER = 1_900_000_000  # and a process id: above the ranges of logins, containers and systemd
FIRST_GPU_USER = 1_910_000_000  # and 24 bits of a folder's name (`name_user`)
READ_ANY = 1 << 2  # CAP_DAC_READ_SEARCH
COMPILERS = ("tileiras", "cuobjdump", "nvdisasm", "ptxas")
TO_LEAVE_ROOT = READ_ANY | 0b1_1110_0011  # and CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SET[GU]ID, CAP_SETPCAP
NO_FIXUP = 1 << 2  # a new user keeps capabilities, and access(2), which finds programs, counts them

NO_NEW_PRIVS, GET_SECCOMP, SET_SECCOMP, SECCOMP_FILTER = 38, 21, 22, 2  # prctl(2)
SECURE_BITS, AMBIENT, GET_DEATH_SIGNAL = 28, 47, 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # landlock(7); these numbers hold on x86-64 and arm64
READS = 0b1101  # execute, read a file, read a folder
WRITES = 0b1_1111_1111_0010  # write, remove and make anything; `_find_file_rights` adds the rights of newer kernels
OF_A_FILE = 0b1_0100_0000_0000_0111  # execute, write, read, truncate, connect; folders have the others too
CONNECTS = 1 << 16  # connect to a socket that a process outside of this sandbox made
OLDEST_WITH_TRUNCATE, OLDEST_WITHOUT_FILES, OLDEST_WITH_SIGNALS, OLDEST_WITH_SOCKETS = 3, 4, 6, 9
"""Landlock versions that first count truncating as writing, accept a ruleset without files, block signals to outside
processes, and restrict connect(2) by path rules (Linux 7.1)."""

_SHA = re.compile("[0-9a-f]{40,64}")


class Level(str, Enum):  # noqa: UP042 - an owner's Python may be 3.10, which has no StrEnum
    """A level of the sandbox. Its value names everything that a child process cannot access."""

    FULL = "files, network and other processes"
    PROCESSES = "network and other processes"
    NETWORK = "network"
    NONE = "nothing"


class Apart(Enum):
    """A rule for when a kernel is timed in another process than its host code."""

    ALWAYS = "always"
    STATED = "unless a watch file says why not"
    NEVER = "never"


class SandboxMissing(ExpectedError):
    """Raised if TILEWATCH_REQUIRE_SANDBOX is set but Linux cannot provide the sandbox."""


def find_level() -> Level:
    """Returns the sandbox's level for children without a GPU on this machine."""
    refused = os.environ.get(SWITCH) == "off" and not is_required()
    if refused or platform.machine() not in call_filter.AUDIT or _libc().prctl(GET_SECCOMP) < 0:
        return Level.NONE
    return Level.FULL if landlock_version() else Level.NETWORK


def find_gpu_level() -> Level:
    """Returns the sandbox's level for children that measure on a GPU. It is never FULL."""
    level = Level.PROCESSES if landlock_version() >= OLDEST_WITHOUT_FILES else Level.NETWORK
    return level if find_level() is not Level.NONE else Level.NONE


def require() -> None:
    """Raises SandboxMissing if the full sandbox is required but this machine cannot provide it."""
    level = find_level()
    if is_required() and level is not Level.FULL:
        raise SandboxMissing(
            f"{REQUIRE} is set, and a child process would be kept from {level.value} here; it takes Linux 5.13 with "
            "Landlock and seccomp"
        )


def is_required() -> bool:
    return os.environ.get(REQUIRE, "") not in ("", "0")


def find_apart() -> Apart:
    """Returns the value of TILEWATCH_REQUIRE_APART: NEVER for "0", ALWAYS for other texts, STATED if unset."""
    asked = os.environ.get(REQUIRE_APART, "")
    return Apart.STATED if not asked else Apart.NEVER if asked == "0" else Apart.ALWAYS


def landlock_version() -> int:
    """Returns Linux's version of Landlock, or 0 if this process cannot use it."""
    return max(0, int(_libc().syscall(CREATE_RULESET, None, 0, 1)))


def find_root(library: Path) -> Path:
    """Returns the folder from which a library's files may import: the checkout with [tool.tilewatch], or `library`."""
    library = library.resolve()
    for folder in (library, *library.parents):
        try:
            if project_settings.read(folder) is not None:
                return folder
        except project_settings.BadProject:
            return folder
        # a checkout of a commit; the folders above it are not the commit's
        if _SHA.fullmatch(folder.name):
            break
    return library


def confine_without_gpu(*, readable: Iterable[str], writable: Sequence[str], ends_others: bool = False) -> None:
    """Confines this process to the given paths and those of Python and the system, without network."""
    if find_level() is Level.NONE:
        return
    _drop_capabilities(_leave_root(writable))
    if version := landlock_version():
        _enter_landlock(_list_readable(readable), [*DEVICES, *writable])
    _filter_calls(
        CallPolicy(
            # before Linux 6.12, `ends_others` allows signals to every process of the user
            bounds_signals=ends_others or version >= OLDEST_WITH_SIGNALS,
            bounds_truncate=version >= OLDEST_WITH_TRUNCATE,
        )
    )


def confine_to_install(*, readable: Iterable[str], writable: Sequence[str]) -> None:
    """Confines this process, which runs pip. Unlike other children, it has a network."""
    if find_level() is Level.NONE:
        return
    _drop_capabilities()
    if version := landlock_version():
        _enter_landlock(_list_readable(readable), [*DEVICES, *writable], network=True)
    _filter_calls(
        CallPolicy(
            families=(call_filter.AF_INET, call_filter.AF_INET6, call_filter.AF_NETLINK),
            bounds_connect=True,
            bounds_signals=version >= OLDEST_WITH_SIGNALS,
            bounds_truncate=version >= OLDEST_WITH_TRUNCATE,
            attributes=True,
        )
    )


def confine_with_gpu(*, readable: Iterable[str] = (), writable: Sequence[str] | None) -> None:
    """Confines this process, which uses a GPU, without network. If `writable` is None, it may use all files."""
    if find_level() is Level.NONE:
        return
    # else root keeps its capabilities, which CUPTI may need for counters
    if writable is not None:
        _drop_capabilities(_become_owner(writable[:1]))
    version = landlock_version()
    files = writable is not None and version > 0
    if files or version >= OLDEST_WITHOUT_FILES:
        mps = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
        sockets = [*SOCKETS_OF_THE_DRIVER, *([mps] if mps else [])]
        driver = [*WRITTEN_BY_THE_DRIVER, *_list_devices()]
        _enter_landlock(
            None if writable is None else [*_list_readable(readable), *READ_BY_THE_DRIVER, *sockets],
            None if writable is None else [*DEVICES, *driver, *writable],
            sockets,
        )
    else:
        version = 0  # Landlock bounds nothing, so that the filter must
    _filter_calls(
        CallPolicy(
            families=(call_filter.AF_NETLINK,),  # the driver uses it
            unix=True,
            # before Linux 7.1, a child reaches no Unix sockets; CUDA works without its daemons
            bounds_connect=version >= OLDEST_WITH_SOCKETS,
            bounds_signals=version >= OLDEST_WITH_SIGNALS,
            bounds_truncate=version >= OLDEST_WITH_TRUNCATE or writable is None,
            attributes=writable is None,
        )
    )


def _list_devices() -> list[str]:
    return [str(each) for pattern in DEVICES_OF_THE_DRIVER for each in Path("/dev").glob(pattern)]


def _list_readable(also: Iterable[str]) -> list[str]:
    """Lists the folders that a child may read: those of the system, of Python, of Tilewatch, and `also`."""
    python = [sys.prefix, sys.base_prefix, *sys.path, *(sysconfig.get_path(each) for each in ("stdlib", "platstdlib"))]
    ours = [str(PACKAGE), *(str(each.resolve()) for each in PACKAGE.iterdir())]
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [each for each in (*SYSTEM, *python, *ours, *named, *libraries, *also) if each]


def _enter_landlock(
    readable: Iterable[str] | None,
    writable: Iterable[str] | None,
    sockets: Iterable[str] = (),
    *,
    network: bool = False,
) -> None:
    """Restricts this process by Landlock to these files and sockets. If both lists are None, it may use all files."""
    version = landlock_version()
    rights = 0 if writable is None else _find_file_rights(version)
    connects = CONNECTS if version >= OLDEST_WITH_SOCKETS else 0
    tcp = (0 if network else 0b11) if version >= 4 else None
    others = 0b11 if version >= OLDEST_WITH_SIGNALS else None
    fields = [rights | connects, tcp, others]
    values = [each for each in fields if each is not None]
    ruleset = _require(_libc().syscall(CREATE_RULESET, struct.pack(f"={len(values)}Q", *values), 8 * len(values), 0))
    for path in readable or ():
        _allow(ruleset, path, READS)
    for path in writable or ():
        _allow(ruleset, path, rights)
    for path in sockets if connects else ():
        _allow(ruleset, path, connects)
    _require(_libc().prctl(NO_NEW_PRIVS, 1, 0, 0, 0))  # Linux asks for it
    _require(_libc().syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _find_file_rights(version: int) -> int:
    """Returns the bits of the file accesses that a Landlock ruleset restricts."""
    return READS | WRITES | (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Allows `rights` on a path. Ignores a path that cannot be opened."""
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            rights &= OF_A_FILE
        _require(_libc().syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, file), 0))
    finally:
        os.close(file)


def name_user(folder: str | Path) -> int:
    """Returns the user id for child processes that write into this folder, computed from the folder's path."""
    # by the path alone, because several children may share the folder
    return FIRST_GPU_USER + int(hashlib.sha256(os.fsencode(folder)).hexdigest()[:6], 16)


def find_need_of_root() -> str | None:
    """Returns why a child process of root must stay root, or None if it can change its user."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    found = [each for path in sys.path for name in COMPILERS for each in Path(path).glob(f"nvidia/*/bin/{name}")]
    programs: list[str | Path] = [sys.executable, *filter(None, map(shutil.which, COMPILERS)), *found]
    if Path("/proc/self/uid_map").read_text().split() != ["0", "0", str(2**32 - 1)]:
        return "this container has no other users"
    if int(status["CapEff"], 16) & TO_LEAVE_ROOT != TO_LEAVE_ROOT:
        return "root may not change users here"
    return next((f"root alone may run {each}" for each in programs if not os.stat(each).st_mode & 0o001), None)


def _leave_root(folders: Sequence[str]) -> int:
    """Changes this process from root to a new user. Returns the capability to keep, or 0 if the user stays root."""
    if os.geteuid() or find_need_of_root() is not None:
        return 0
    user = FIRST_USER + os.getpid()
    for each in folders:
        os.chown(each, user, user)
    return _become(user)


def _become_owner(folders: Sequence[str]) -> int:
    """Changes this process from root to the first folder's owner. Returns the capability to keep, or 0 if unchanged."""
    owners = [os.stat(each).st_uid for each in folders]
    return _become(owners[0]) if owners and owners[0] >= FIRST_GPU_USER and not os.geteuid() else 0


def _become(user: int) -> int:
    parent, death_signal = os.getppid(), ctypes.c_int()
    _require(_libc().prctl(GET_DEATH_SIGNAL, ctypes.byref(death_signal)))
    _require(_libc().prctl(SECURE_BITS, NO_FIXUP))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    processes.end_with_parent(death_signal.value)  # the kernel forgot that with the old user
    if os.getppid() != parent:
        os._exit(1)
    # by it the user reads checkouts and Python in root's home, as far as Landlock allows
    return READ_ANY


def _drop_capabilities(kept: int = 0) -> None:
    """Drops all capabilities except `kept`."""
    # with CAP_PERFMON, root could read other processes' environment in spite of Landlock (Linux 6.18)
    sets = struct.pack("=6I", kept, kept, kept, 0, 0, 0)  # effective, permitted, inheritable; the upper halves
    _require(_libc().capset(struct.pack("=Ii", 0x20080522, 0), sets))  # version 3, this process
    if kept:
        _require(_libc().prctl(AMBIENT, 2, kept.bit_length() - 1, 0, 0))


def _filter_calls(policy: CallPolicy) -> None:
    program = call_filter.build(platform.machine(), os.getpid(), policy)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    described = struct.pack("=HxxxxxxQ", len(program), ctypes.addressof(code))
    _require(_libc().prctl(NO_NEW_PRIVS, 1, 0, 0, 0))
    _require(_libc().prctl(SET_SECCOMP, SECCOMP_FILTER, described))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _require(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "the sandbox cannot be entered")
    return result
