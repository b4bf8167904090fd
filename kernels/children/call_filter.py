"""Builds the seccomp filter of a child process, which refuses dangerous system calls.

The filter sees only numbers, not paths. So it refuses some calls for all files, such as changing a file's mode."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewatch import processes
from tilewatch.kernels.children.system_calls import NUMBERS

Instruction = tuple[int, int, int, int]
"""One step of classic BPF: code, steps to skip if its condition is true, steps to skip if it is false, operand."""

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Maps each architecture to its AUDIT_ARCH number, which Linux passes to a filter."""

LOAD, EQUAL, AT_LEAST, MASK, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
X32 = 0x40000000
EPERM, EACCES, ENOSYS = 1, 13, 38

ACCEPT: Instruction = (RETURN, 0, 0, 0x7FFF0000)
REFUSE: Instruction = (RETURN, 0, 0, 0x00050000 | EPERM)
REFUSE_SOCKET: Instruction = (RETURN, 0, 0, 0x00050000 | EACCES)
UNKNOWN: Instruction = (RETURN, 0, 0, 0x00050000 | ENOSYS)
"""Answer of the filter that a call does not exist. glibc then makes the older call, whose flags the filter can read."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
CONNECTED = (1, 5)
"""Socket types that send only when connected (SOCK_STREAM, SOCK_SEQPACKET). Datagrams could go to any address."""

OTHER_PROCESSES = (
    *("ptrace", "process_madvise", "process_mrelease", "kcmp"),
    *("pidfd_open", "pidfd_getfd", "pidfd_send_signal"),
)
"""Calls that read or affect other processes. Python works without pidfds."""

TARGETS = {
    **dict.fromkeys(("prlimit64", "process_vm_readv", "process_vm_writev", "get_robust_list"), 0),
    **dict.fromkeys(("sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"), 0),
    **dict.fromkeys(("move_pages", "migrate_pages"), 0),
    "perf_event_open": 1,
}
"""Maps each call that takes a process id to the position of this argument."""

PRIORITIES = {"setpriority": 0, "ioprio_set": 1}
"""Maps calls to the value of their first argument that says that the second argument is a process id."""

SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")

REMAINS = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("mq_open", "mq_unlink", "keyctl", "add_key", "request_key"),
)
"""Calls that make or use objects of the system that outlive processes: messages, semaphores, shared memory, keys."""

ATTRIBUTES = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "file_setattr"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
"""Calls that change a file's attributes, which Landlock does not restrict (Linux 6.18)."""

ADMINISTRATION = (
    *("unshare", "setns", "chroot", "pivot_root", "mount", "umount2", "move_mount", "open_tree", "fsopen", "fsmount"),
    *("mount_setattr", "open_by_handle_at", "fanotify_init", "quotactl", "acct", "reboot", "swapon", "swapoff"),
    *("sethostname", "setdomainname", "vhangup", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    *("syslog", "bpf", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"),
    *("iopl", "ioperm", "io_uring_setup"),
)
"""Calls that change the machine or make namespaces. A child on a GPU could change the machine as root, and every user
can be root inside a namespace. io_uring is included because it could make sockets without socket(2)."""

CLONE_FLAGS = 0x7E028000
"""Flags of clone(2) that make new namespaces, or a process that is no descendant of its maker (CLONE_PARENT)."""

SET_OWNER, SET_OWNER_EX = 8, 15  # fcntl(2): the process that the kernel signals when a file is ready
IOCTLS = (
    *(0x8901, 0x8902),  # FIOSETOWN and SIOCSPGRP: the same for sockets
    *(0x5412, 0x541C, 0x540E),  # TIOCSTI, TIOCLINUX and TIOCSCTTY: type into a terminal, and take it over
    *(0x40086602, 0x401C5820),  # FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR: attributes of a file
)

ACCESS, TRUNCATE = 0o3, 0o1000  # flags of open(2)

FILE_KIND, DEVICES = 0xF000, (0x2000, 0x6000)  # modes of mknod(2): character and block devices, such as a disk

PR_SCHED_CORE = 62


@dataclass(frozen=True)
class CallPolicy:
    """Says which system calls a filter allows. Where a `bounds_…` is True, Landlock restricts the calls instead."""

    families: tuple[int, ...] = ()  # address families of allowed sockets
    unix: bool = False
    bounds_connect: bool = False
    bounds_signals: bool = False
    bounds_truncate: bool = False
    attributes: bool = False  # may change files' modes, owners and times


def build(machine: str, process_id: int, policy: CallPolicy) -> list[Instruction]:
    """Returns the filter for a process and its descendants, as instructions.

    The filter reads struct seccomp_data: the call's number at byte 0, the architecture at 4, the arguments from 16."""
    own = (0, process_id)
    refused = (*OTHER_PROCESSES, *REMAINS, *ADMINISTRATION, *(() if policy.attributes else ATTRIBUTES))
    connected = [_load(1), (MASK, 0, 0, 0xF), *_answer(CONNECTED, ACCEPT), REFUSE_SOCKET]
    of_unix = [(EQUAL, 0, len(connected), AF_UNIX), *connected] if policy.unix else []
    rules: dict[str, Sequence[Instruction]] = {
        **{name: [REFUSE] for name in refused},
        **{name: [_load(which), *_answer(own, ACCEPT), REFUSE] for name, which in TARGETS.items()},
        **{name: _bound_priority(kind, own) for name, kind in PRIORITIES.items()},
        "socket": [_load(0), *_answer(policy.families, ACCEPT), *of_unix, REFUSE_SOCKET],
        "socketpair": connected,
        "prctl": [_load(0), *_answer((processes.PR_SET_CHILD_SUBREAPER, PR_SCHED_CORE), REFUSE), ACCEPT],
        "clone": [_load(0), (MASK, 0, 0, CLONE_FLAGS), *_answer((0,), ACCEPT), REFUSE],
        "clone3": [UNKNOWN],
        "mknod": _refuse_devices(1),
        "mknodat": _refuse_devices(2),
        "fcntl": [_load(1), *_answer((SET_OWNER, SET_OWNER_EX), REFUSE), ACCEPT],
        "ioctl": [_load(1), *_answer(IOCTLS, REFUSE), ACCEPT],
    }
    if not policy.bounds_connect:
        rules["connect"] = [REFUSE_SOCKET]
    if not policy.bounds_signals:
        rules |= {name: [_load(0), *_answer(own, ACCEPT), REFUSE] for name in SIGNALS}
    if not policy.bounds_truncate:
        rules |= {"truncate": [REFUSE], "openat2": [UNKNOWN], "open": _refuse_cuts(1), "openat": _refuse_cuts(2)}
    numbers = NUMBERS[machine]
    program: list[Instruction] = [
        *((LOAD, 0, 0, 4), (EQUAL, 1, 0, AUDIT[machine]), REFUSE_SOCKET),
        *((LOAD, 0, 0, 0), (AT_LEAST, 0, 1, X32), REFUSE_SOCKET),
    ]
    for name, answer in rules.items():
        if name in numbers:
            program += [(EQUAL, 0, len(answer), numbers[name]), *answer]
    return [*program, ACCEPT]


def _load(argument: int) -> Instruction:
    """Returns the instruction that loads the low 32 bits of an argument."""
    return (LOAD, 0, 0, 16 + 8 * argument)


def _answer(values: Iterable[int], answer: Instruction) -> list[Instruction]:
    """Returns instructions that end the filter with `answer` if the loaded number is one of `values`."""
    return [each for value in values for each in ((EQUAL, 0, 1, value), answer)]


def _bound_priority(kind: int, own: Sequence[int]) -> list[Instruction]:
    return [_load(0), (EQUAL, 1, 0, kind), REFUSE, _load(1), *_answer(own, ACCEPT), REFUSE]


def _refuse_devices(mode: int) -> list[Instruction]:
    """Returns instructions that refuse to make device files."""
    return [_load(mode), (MASK, 0, 0, FILE_KIND), *_answer(DEVICES, REFUSE), ACCEPT]


def _refuse_cuts(flags: int) -> list[Instruction]:
    """Returns instructions that refuse to truncate a file opened for reading. Old versions of Landlock allow it."""
    cut = (os.O_RDONLY | TRUNCATE, ACCESS | TRUNCATE)
    return [_load(flags), (MASK, 0, 0, ACCESS | TRUNCATE), *_answer(cut, REFUSE), ACCEPT]
