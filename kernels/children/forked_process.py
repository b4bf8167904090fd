"""Starts child processes through servers that fork them (kernels/children/fork_server.py)."""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from tilewatch.kernels.children.fork_server import FORK, MESSAGE_BYTES

END_LIMIT_S = 5.0
"""Seconds after which a server that has not ended is killed. It may be suspended or still importing."""

_servers: dict[tuple[Any, ...], "_Server"] = {}
_lock = threading.Lock()


def _forget() -> None:
    """Forgets the servers after a fork, because two processes cannot share a server's socket."""
    global _lock
    _lock = threading.Lock()
    for server in _servers.values():
        server.control.close()
    _servers.clear()


def _close_all() -> None:
    for server in _servers.values():
        server.close()


os.register_at_fork(after_in_child=_forget)
atexit.register(_close_all)


class ForkedProcess:
    """A process that a server forked, with methods like those of subprocess.Popen. It ends when the server ends."""

    def __init__(self, server: "_Server", process_id: int, handle: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = process_id, stdin, stdout
        self._server, self._handle = server, handle
        self._code: int | None = None
        self._ending = threading.Lock()

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs. After a signal, it is minus the signal's number."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the process's end and returns the exit code. Raises TimeoutExpired after `timeout` seconds."""
        with self._ending:
            if self._code is None:
                ended = select.poll()
                ended.register(self._handle, select.POLLIN)
                if not ended.poll(None if timeout is None else 1000 * timeout):
                    assert timeout is not None
                    raise subprocess.TimeoutExpired("a forked process", timeout)
                self._code = self._server.end(self.pid)
                os.close(self._handle)
            return self._code


def fork(
    server_name: str,
    command: Sequence[str],
    imports_from: Mapping[str, str],
    request: Mapping[str, Any],
    log: IO[bytes],
) -> ForkedProcess:
    """Starts a child process. Children with equal `server_name`, `command` and `imports_from` share a server."""
    try:
        return _find_server(server_name, command, imports_from).fork(request, log)
    except ConnectionError:  # the server was ended, with all of its children
        return _find_server(server_name, command, imports_from).fork(request, log)


def _find_server(name: str, command: Sequence[str], environment: Mapping[str, str]) -> "_Server":
    key = (name, *command, *sorted(environment.items()))
    with _lock:
        server = _servers.get(key)
        if server is None or server.control.fileno() < 0:
            server = _servers[key] = _Server(command, environment)
        return server


class _Server:
    """A server process and the socket to it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.callback(self.control.close)
            self._process = subprocess.Popen(
                [*command, FORK, str(theirs.fileno())],
                # cuTile makes a temporary folder unless it is given one; only children write into it.
                env={**environment, "CUDA_TILE_TEMP_DIR": tempfile.gettempdir()},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            unless_started.pop_all()

    def close(self) -> None:
        """Ends the server and all its children."""
        self.control.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def fork(self, request: Mapping[str, Any], log: IO[bytes]) -> ForkedProcess:
        """Starts a process through the server. Raises ConnectionError if the server has ended."""
        child_in, our_out = os.pipe()
        our_in, child_out = os.pipe()
        stdin, stdout = os.fdopen(our_out, "wb", buffering=0), os.fdopen(our_in, "rb")
        try:
            answer, handles = self._ask(request, [child_in, child_out, log.fileno()])
        except ConnectionError:
            stdin.close()
            stdout.close()
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        return ForkedProcess(self, answer["process_id"], handles[0], stdin, stdout)

    def end(self, process_id: int) -> int:
        """Returns the exit code of a process that has ended. Call it once: the process id may be used again."""
        try:
            return int(self._ask({"ended": process_id}, [])[0]["code"])
        except ConnectionError:  # the process ended with the server
            return -signal.SIGKILL

    def _ask(self, request: Mapping[str, Any], files: Sequence[int]) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            try:
                socket.send_fds(self.control, [json.dumps(request).encode()], files)
                answer, handles, _, _ = socket.recv_fds(self.control, MESSAGE_BYTES, 1)
                if not answer:
                    raise ConnectionError("the process that forks children has ended")
            except OSError as error:
                self.close()
                raise ConnectionError(str(error)) from None
            return json.loads(answer), handles
