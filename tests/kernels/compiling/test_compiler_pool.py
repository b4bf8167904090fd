"""Work of several compilers at once: its order, its errors, and its end."""

import threading
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest

from tilewatch.kernels.compiling import compiler_pool
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.compiler_pool import CompilerPool


def test_results_are_in_the_order_of_the_works_and_an_error_is_raised(tmp_path: Path) -> None:
    def fail(_: Compiler) -> int:
        raise BuildError("nothing compiles here")

    with CompilerPool(tmp_path.as_uri(), jobs=2) as pool:
        assert pool.run_all([lambda _, number=number: number for number in range(9)]) == list(range(9))  # type: ignore[misc]
        with pytest.raises(BuildError, match="nothing compiles here"):
            pool.run_all([fail, lambda _: 1])


def test_each_thread_has_a_compiler_of_its_own(tmp_path: Path) -> None:
    """Linux kills a child when the thread that started it ends, so a thread must not use another one's compiler."""
    with CompilerPool(tmp_path.as_uri(), jobs=3) as pool:
        used = set(pool.run_all([lambda compiler: (get_ident(), id(compiler))] * 200))
    assert len(used) == len({thread for thread, _ in used}) == len({compiler for _, compiler in used})


class MadeCompiler:
    """Compiles until it is killed."""

    def __init__(self, *how: object, **limits: object) -> None:
        self.how, self.limits = how, limits
        self.killed, self.is_closed = threading.Event(), False

    def kill(self) -> None:
        self.killed.set()

    def close(self) -> None:
        self.is_closed = True


def test_a_pool_that_closes_kills_what_is_compiled_and_drops_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_pool, "Compiler", MadeCompiler)
    started = threading.Barrier(3, timeout=60)

    def compile_long(compiler: Any) -> MadeCompiler:
        started.wait()
        compiler.killed.wait(20)
        made: MadeCompiler = compiler
        return made

    with CompilerPool("file:///store", jobs=2, limit_s=3.0) as pool:
        futures = pool.start_all([compile_long] * 2 + [lambda compiler: compiler] * 3)  # type: ignore[list-item]
        started.wait()
    compilers = [each.result() for each in futures[:2]]
    assert [(each.killed.is_set(), each.is_closed) for each in compilers] == [(True, True)] * 2
    assert {(each.how, str(each.limits)) for each in compilers} == {
        (("file:///store",), "{'limit_s': 3.0, 'toolchain': None}")
    }
    assert [each.cancelled() for each in futures[2:]] == [True] * 3
