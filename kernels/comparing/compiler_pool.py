"""Runs work in several compiler processes at once. All work ends at once when the caller is interrupted."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from tilewatch.kernels.compiling.compiler import LIMIT_S, Compiler
from tilewatch.kernels.toolchains.toolchain import Toolchain

Result = TypeVar("Result")

JOIN_S = 0.05


class CompilerPool:
    """Starts processes when there is work for them, and keeps them until the pool is closed."""

    def __init__(
        self, store_url: str, *, jobs: int, limit_s: float = LIMIT_S, toolchain: Toolchain | None = None
    ) -> None:
        """Makes a pool of `jobs` compilers. `toolchain` is the one that compiles, None the installed one."""
        self.store_url, self.jobs, self._limit_s, self._toolchain = store_url, jobs, limit_s, toolchain
        self._todo: queue.SimpleQueue[Callable[[Compiler], None] | None] = queue.SimpleQueue()
        self._compilers: list[Compiler] = []
        self._threads: list[threading.Thread] = []

    def run_all(self, works: Sequence[Callable[[Compiler], Result]]) -> list[Result]:
        """Returns the results in order. Raises the first error of a work (BuildError if nothing compiles)."""
        done: queue.SimpleQueue[tuple[int, Any, Exception | None]] = queue.SimpleQueue()
        for index, work in enumerate(works):
            self._todo.put(_make_reporter(index, work, done))
        while len(self._compilers) < min(self.jobs, len(works)):
            self._start_process()
        results: list[Any] = [None] * len(works)
        for _ in works:
            index, result, error = done.get()
            if error is not None:
                raise error
            results[index] = result
        return results

    def close(self) -> None:
        """Kills every process, also during a compilation."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._todo.get_nowait()
        for _ in self._compilers:
            self._todo.put(None)
        # A thread may be starting a process, so processes are killed until every thread has ended.
        while any(thread.is_alive() for thread in self._threads):
            for compiler in self._compilers:
                compiler.kill()
            for thread in self._threads:
                thread.join(JOIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_process(self) -> None:
        compiler = Compiler(self.store_url, limit_s=self._limit_s, toolchain=self._toolchain)
        self._compilers.append(compiler)
        # Each thread starts its own child, because Linux kills a child when the thread that started it ends.
        self._threads.append(threading.Thread(target=self._work, args=(compiler,), daemon=True))
        self._threads[-1].start()

    def _work(self, compiler: Compiler) -> None:
        with compiler:
            while (work := self._todo.get()) is not None:
                work(compiler)


def _make_reporter(
    index: int, work: Callable[[Compiler], Any], done: "queue.SimpleQueue[tuple[int, Any, Exception | None]]"
) -> Callable[[Compiler], None]:
    def report(compiler: Compiler) -> None:
        try:
            done.put((index, work(compiler), None))
        except Exception as error:  # noqa: BLE001 - it is raised again in the caller's thread
            done.put((index, None, error))

    return report
