"""Runs dangerous or heavy work in child processes, which may crash or hang without harm. A child gets few environment
variables, so credentials never reach it."""

import contextlib
import json
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import tilewatch
from tilewatch import processes
from tilewatch.kernels.children import child_answers, compile_cache, forked_process, gpu_user, interpreters, sandbox
from tilewatch.kernels.children.compile_cache import LibraryHome, is_filled
from tilewatch.kernels.children.forked_process import ForkedProcess
from tilewatch.text import failure_text

PASSED_ON = (
    sandbox.SWITCH,
    sandbox.REQUIRE,
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
)
"""Environment variables that a child gets. It gets no others, because it may run other people's code."""

END_OF = {"compile": signal.SIGTERM}
"""Maps a role to the signal that ends its children when their parent has ended. SIGTERM lets the compile child end its
tile compiler (child.py), which would compile a 512x512x512 tile for ever. Other children are killed."""

ANSWER_BYTES = 64 << 20
"""Most bytes of an answer. The plans of a library with 9,000 configs have 3 MB."""

MEMORY_BYTES = 4 << 30
"""Most memory of a child and its descendants. A compiler may take 1.25 GiB (compiler.py), PyTorch takes 1 GiB."""

GPU_MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
"""Most memory of a child that measures: half of the machine's memory, so that large references and inputs fit."""

MOST_PROCESSES = 1024
"""Most processes of a child and its descendants. PyTorch starts one process per core when it compiles."""

FOLDER_BYTES, FOLDER_FILES = 4 << 30, 100_000
"""Most bytes and files that a child may have in its own folder. A sandboxed child without a store writes only there."""

# With these Git reads root's checkouts for another user, and PyTorch names the cache of a user without a name.
TRUSTS_CHECKOUTS = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
OF_ANOTHER_USER = {**TRUSTS_CHECKOUTS, "USER": "tilewatch"}

WITHOUT_GPU = ("catalog", "validate", "propose", "trace", "compile")
"""Roles of children that use no GPU."""

PROGRAM = ("-m", "tilewatch.kernels.child")

IMPORT_FIRST = "TILEWATCH_IMPORT_FIRST"
"""Environment variable that names the module which a child imports before all others."""

ON_GPU = ("gpu", "library")
"""Roles of children with a CUDA context."""

LOOK_EVERY_S = 0.5
BEGIN_LIMIT_S = 30.0
"""Seconds that `begin` may take to write a request. Only a hanging child takes longer to read the request."""

ROOT = Path(tilewatch.__file__).resolve().parent.parent


class ChildDied(Exception):
    """Raised if the child ended before it answered. The message is its last output."""


class ChildHung(Exception):
    """Raised if the child did not answer before its deadline. The child has been killed."""


class ChildProcess:
    """A process that runs `python -m tilewatch.kernels.child ROLE` and answers one request at a time."""

    program: ClassVar[tuple[str, ...]] = PROGRAM

    def __init__(
        self,
        role: str,
        *,
        environment: Mapping[str, str] | None = None,
        packages: Path | None = None,
        stderr_path: Path | None = None,
        library: str | Path | None = None,
        others: Sequence[Path] = (),
        readable: Sequence[str] = (),
        writable: Sequence[str] = (),
        torch: bool = False,
        cpu_limit_s: float | None = None,
    ) -> None:
        """Starts the child, which may read the checkouts that contain `library` and `others`. Raises SandboxMissing if
        a required sandbox is missing, and BadInterpreter if no Python can run the library."""
        sandbox.require()
        self._interpreter = interpreters.find(library)
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        # cuTile makes these folders at import, and a killed child cannot remove them.
        self._folder = folder = tempfile.mkdtemp(prefix="tilewatch-child-")
        self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._home: LibraryHome | None = None
        self._user = 0
        gpu = {**passed, **(environment or {})}.get("CUDA_VISIBLE_DEVICES", "")
        has_user = role == gpu_user.OWNER or (
            role == "library" and gpu_user.is_of_root() and gpu_user.find_refusal(gpu, ChildProcess) is None
        )
        own = {"CUDA_TILE_CACHE_DIR": f"{folder}/cache", "CUDA_TILE_TEMP_DIR": folder, "TMPDIR": folder}
        if has_user or (role == "library" and sandbox.find_level() is sandbox.Level.FULL):
            self._home = compile_cache.open_home([library, *others], has_user=has_user) if library else None
            home = str(self._home.folder) if self._home else folder
            # CuPy chose its cache when the forking process imported it, so the home alone would not change it.
            own |= {"HOME": home, "CUPY_CACHE_DIR": f"{home}/{compile_cache.CUPY_CACHE}"}
            writable = (home, *writable)
            if has_user:
                own |= OF_ANOTHER_USER
                self._user = sandbox.name_user(home)
                os.chown(folder, self._user, self._user)
        elif role not in ON_GPU and sandbox.find_level() is not sandbox.Level.NONE:
            own |= {"HOME": folder, **OF_ANOTHER_USER}
        first = ""
        if packages is not None:
            # else CuPy would load its own cuBLASLt, and a process has only one (H200, 2026-11-23)
            first, passed[IMPORT_FIRST] = str(packages), "torch"
        path = processes.python_path(first, ROOT)
        found = self._interpreter
        if found is not None and (lent := interpreters.find_lent_packages()):
            passed[interpreters.LENT] = lent
            readable = (*readable, lent if found.packages else f"{lent}/nvidia")
        if found is not None and found.packages is not None:
            passed[interpreters.PACKAGES] = str(found.packages)
            readable = (*readable, str(found.packages))
        imports_from = {**passed, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        self._errors = stderr_path.open("ab+") if stderr_path else tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = self._start(
            role,
            imports_from,
            {**own, **(environment or {})},
            readable=[*(str(sandbox.find_root(Path(each))) for each in (library, *others) if each), *readable],
            writable=[folder, *writable],
            torch=torch,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._memory_bytes = GPU_MEMORY_BYTES if role in ON_GPU else MEMORY_BYTES
        self._cpu_limit_s = cpu_limit_s
        self._buffer = bytearray()
        self._unread = 0
        self._look_at = 0.0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)

    def _start(
        self,
        role: str,
        imports_from: Mapping[str, str],
        own_environment: Mapping[str, str],
        *,
        readable: Sequence[str],
        writable: Sequence[str],
        torch: bool,
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        death_signal = END_OF.get(role, signal.SIGKILL)
        if role in (*WITHOUT_GPU, *ON_GPU) and self.program == PROGRAM:
            # Children that measure need the real driver and PyTorch, one of them the real `ct.launch` (child.py).
            server_name = "without GPU" if role in WITHOUT_GPU else f"{role} with torch" if torch else role
            request = {"role": role, "torch": torch, "readable": list(readable), "writable": list(writable)}
            request |= {"environment": {**imports_from, **own_environment}, "death_signal": death_signal}
            command = interpreters.make_command(self._interpreter)
            return self._fork(server_name, command, imports_from, request, self._errors)
        return processes.start(
            [sys.executable, "-P", *self.program, role, json.dumps([readable, writable])],
            environment={**imports_from, **own_environment},
            log=self._errors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            death_signal=death_signal,
        )

    def _fork(self, *args: Any, **options: Any) -> ForkedProcess:
        try:
            return forked_process.fork(*args, **options)
        except OSError as error:
            self._errors.close()
            self._remove_folder()
            if self._interpreter is None:
                raise
            raise interpreters.BadInterpreter(f"{self._interpreter.python} does not run a library: {error}") from None

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Sends a request and returns its answer. If this raises ChildDied or ChildHung, the child has ended."""
        if self._stdout.closed:
            raise ChildDied("it had ended before it was asked")
        deadline = time.monotonic() + deadline_s
        try:
            self._send(request, deadline)
        except BrokenPipeError:
            raise self._end(deadline) from None
        for _ in range(self._unread):
            self._read_answer(deadline)
        self._unread = 0
        return self._read_answer(deadline)

    def begin(self, request: Mapping[str, Any]) -> None:
        """Sends a request without waiting. A later `finish` returns its answer."""
        with contextlib.suppress(BrokenPipeError):
            self._send(request, time.monotonic() + BEGIN_LIMIT_S)
            self._unread += 1

    def finish(self, *, deadline_s: float) -> dict[str, Any]:
        """Returns the answer to the request that `begin` sent. Raises ChildDied or ChildHung if no answer comes."""
        if self._stdout.closed:
            raise ChildDied("it had ended before it answered")
        deadline = time.monotonic() + deadline_s
        answers = [self._read_answer(deadline) for _ in range(max(1, self._unread))]
        self._unread = 0
        return answers[-1]

    def close(self) -> None:
        """Ends the child at once, with all processes that it started."""
        if not self._stdout.closed:
            self._selector.close()
            self.kill()
            processes.kill([self._process])
            for stream in (self._stdin, self._stdout):
                with contextlib.suppress(BrokenPipeError):  # a request was still being written
                    stream.close()
            self._errors.close()
            self._remove_folder()
            if self._user and (self._home is None or self._home.is_alone()):
                gpu_user.remove_shared_files(self._user)
            if self._home is not None:
                self._home.close()

    def kill(self) -> None:
        """Ends the child. Any thread may call this, also while another thread waits for an answer."""
        if self._process.poll() is None:
            processes.signal_group(self._process, signal.SIGSTOP)
            processes.kill_descendants(self._process.pid)  # a descendant may have left its group
            processes.signal_group(self._process, signal.SIGKILL)

    @property
    def is_idle(self) -> bool:
        """Returns whether every request has been answered."""
        return not self._unread

    @property
    def alive(self) -> bool:
        return not self._stdout.closed and self._process.poll() is None

    def _send(self, request: Mapping[str, Any], deadline: float) -> None:
        """Writes a request in pieces, because a pipe takes only 64 KiB at a time."""
        writable = select.poll()
        writable.register(self._stdin, select.POLLOUT)
        line = memoryview(json.dumps(request).encode() + b"\n")
        while line:
            if not writable.poll(1000 * max(0.0, deadline - time.monotonic())):
                raise self._end_hung()
            line = line[os.write(self._stdin.fileno(), line[: select.PIPE_BUF]) :]

    def _read_answer(self, deadline: float) -> dict[str, Any]:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > ANSWER_BYTES:
                self.close()
                raise ChildDied(f"it answered with more than {ANSWER_BYTES >> 20} MiB")
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._end_hung()
            self._end_if_too_big()
            if not self._selector.select(min(left_s, LOOK_EVERY_S)):
                continue
            chunk = os.read(self._stdout.fileno(), 1 << 16)
            if not chunk:
                raise self._end(deadline)
            self._buffer += chunk
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        answer = child_answers.read_line(line)
        if answer is None:  # a library may have written to the descriptor
            self.close()
            raise ChildDied("its answer is not a JSON object")
        return answer

    def _end_hung(self) -> ChildHung:
        self.close()
        return ChildHung("no answer before its deadline")

    def _end(self, deadline: float) -> ChildDied | ChildHung:
        """Returns the error to raise for a child that closed a pipe."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self._end_hung()
        words = failure_text(processes.last_words(self._process, self._errors))
        self.close()
        return ChildDied(words)

    def _end_if_too_big(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_EVERY_S
        if (too_much := self._find_excess()) is not None:
            self.close()
            raise ChildDied(too_much)

    def _find_excess(self) -> str | None:
        """Returns a sentence on the limit that the child exceeds, or None."""
        if len(processes.list_descendants(self._process.pid)) > MOST_PROCESSES:
            return f"it started more than {MOST_PROCESSES:,} processes"
        usage = processes.measure_usage(self._process.pid)
        if self._cpu_limit_s is not None and usage.cpu_s > self._cpu_limit_s:
            return f"it took more than {self._cpu_limit_s:g} CPU seconds"
        if usage.resident_bytes > self._memory_bytes:
            return f"it took more than {self._memory_bytes / 2**30:.3g} GiB of memory"
        if self._home is not None and is_filled(self._home.folder, compile_cache.HOME_BYTES, compile_cache.HOME_FILES):
            most = f"{compile_cache.HOME_BYTES >> 30} GiB or {compile_cache.HOME_FILES:,} files"
            return f"there is more than {most} in its library's home"
        if is_filled(self._folder, FOLDER_BYTES, FOLDER_FILES):
            return f"it wrote more than {FOLDER_BYTES >> 30} GiB or {FOLDER_FILES:,} files into its folder"
        return None
