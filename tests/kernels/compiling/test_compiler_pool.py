"""Work of several compilers at once: its order, its errors, and its end."""

from pathlib import Path
from threading import get_ident

import pytest

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
