"""Compiles in several processes at once. All of them end if the caller is interrupted."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Self, TypeVar

from tilewatch.kernels.compiling.compiler import LIMIT_S, Compiler
from tilewatch.kernels.toolchains.toolchain import Toolchain

Result = TypeVar("Result")

KILL_EVERY_S = 0.05


class CompilerPool:
    """Starts compiling processes when there is work, and keeps them until it is closed."""

    def __init__(
        self, store_url: str, *, jobs: int, limit_s: float = LIMIT_S, toolchain: Toolchain | None = None
    ) -> None:
        """Makes a pool. `toolchain` is None for the installed toolchain."""
        self.store_url, self.jobs = store_url, jobs
        self._make_compiler = partial(Compiler, store_url, limit_s=limit_s, toolchain=toolchain)
        # Each thread starts its own child, because Linux kills a child when the thread that started it ends.
        self._threads = ThreadPoolExecutor(jobs)
        self._of_thread = threading.local()
        self._compilers: list[Compiler] = []

    def start_all(self, works: Sequence[Callable[[Compiler], Result]]) -> list[Future[Result]]:
        """Starts functions that each get a compiler. Returns their futures in order."""
        return [self._threads.submit(self._run, work) for work in works]

    def run_all(self, works: Sequence[Callable[[Compiler], Result]]) -> list[Result]:
        """Calls functions that each get a compiler. Returns their results in order."""
        return [each.result() for each in self.start_all(works)]

    def close(self) -> None:
        """Kills every process of the pool, even during a compilation."""
        closing = threading.Thread(target=self._threads.shutdown, kwargs={"cancel_futures": True})
        closing.start()
        # A thread may be starting a process, so processes are killed until every thread has ended.
        while closing.is_alive():
            for compiler in self._compilers:
                compiler.kill()
            closing.join(KILL_EVERY_S)
        for compiler in self._compilers:
            compiler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Callable[[Compiler], Result]) -> Result:
        if not hasattr(self._of_thread, "compiler"):
            self._of_thread.compiler = self._make_compiler()
            self._compilers.append(self._of_thread.compiler)
        return work(self._of_thread.compiler)
