"""Maps the names of Linux's system calls to their numbers, per architecture."""

_COLUMNS = ("x86_64", "aarch64")

_TABLE = """
    socket 41 198, socketpair 53 199, connect 42 203, io_uring_setup 425 425, prctl 157 167
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440, kcmp 312 272
    process_mrelease 448 448, pidfd_open 434 434, pidfd_getfd 438 438, pidfd_send_signal 424 424
    perf_event_open 298 241, get_robust_list 274 100, move_pages 279 239, migrate_pages 256 238
    kill 62 129, tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240
    prlimit64 302 261, setpriority 141 140, ioprio_set 251 30, sched_setparam 142 118, sched_setscheduler 144 119
    sched_setaffinity 203 122, sched_setattr 314 274
    shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semtimedop 220 192, semctl 66 191
    msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181
    keyctl 250 219, add_key 248 217, request_key 249 218
    chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452
    chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54
    utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
    setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, setxattrat 463 463
    removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, removexattrat 466 466, file_setattr 469 469
    open 2 -, openat 257 56, openat2 437 437, truncate 76 45, fcntl 72 25, ioctl 16 29
    mknod 133 -, mknodat 259 33
    clone 56 220, clone3 435 435, unshare 272 97, setns 308 268, chroot 161 51, pivot_root 155 41
    mount 165 40, umount2 166 39, move_mount 429 429, open_tree 428 428, fsopen 430 430, fsmount 432 432
    mount_setattr 442 442, open_by_handle_at 304 265, fanotify_init 300 262, quotactl 179 60, acct 163 89
    reboot 169 142, swapon 167 224, swapoff 168 225, sethostname 170 161, setdomainname 171 162, vhangup 153 58
    settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171, syslog 103 116, bpf 321 280
    init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294
    iopl 172 -, ioperm 173 -
"""


def _read_table() -> dict[str, dict[str, int]]:
    numbers: dict[str, dict[str, int]] = {column: {} for column in _COLUMNS}
    for entry in _TABLE.replace("\n", ",").split(","):
        if entry.strip():
            name, *values = entry.split()
            for column, value in zip(_COLUMNS, values, strict=True):
                if value != "-":
                    numbers[column][name] = int(value)
    return numbers


NUMBERS = _read_table()
"""Maps each architecture, as platform.machine() names it, to the numbers of the calls by name."""
