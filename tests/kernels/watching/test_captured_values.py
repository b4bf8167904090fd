"""Kernels that one function makes with different values have different names."""

import linecache
import runpy
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures import needs_package
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.store import folder
from tilewatch.kernels.watching.captured_values import describe_captured

HOST = """
import cuda.tile as ct
import torch


def make_kernel(factor):
    @ct.kernel
    def scale_rows(x):
        row = ct.bid(0)
        ct.store(x, (row, 0), ct.load(x, (row, 0), (1, 64)) * factor)

    return scale_rows


def double(x, tile):
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), make_kernel(tile), (x,))
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), make_kernel(1.0), (x,))
    return x
"""


KERNEL = """
        @ct.kernel
        def scale_rows(x):
            row = ct.bid(0)
            ct.store(x, (row, 0), scale(ct.load(x, (row, 0), (1, 64))))
"""
OTHER_KERNEL = KERNEL.replace("scale(ct.load(x, (row, 0), (1, 64)))", "ct.load(x, (row, 0), (1, 64)) * 3")
TWO_OF_A_NAME = {
    "kernels of two branches": f"""
def make_kernel(factor):
    if factor == 32:{KERNEL.replace("scale(", "(")}
    else:{OTHER_KERNEL}
    return scale_rows
""",
    "helpers of two branches": f"""
def make_kernel(factor):
    if factor == 32:
        def scale(tile):
            return tile * 2
    else:
        def scale(tile):
            return tile + 1
    if True:{KERNEL}
    return scale_rows
""",
    "defaults of a helper": f"""
def make_kernel(factor):
    def scale(tile, by=factor):
        return tile * by
    if True:{KERNEL}
    return scale_rows
""",
    "a registry": f"""
KERNELS = []
if True:
    if True:{KERNEL.replace("scale(", "(")}
    KERNELS.append(scale_rows)
if True:
    if True:{OTHER_KERNEL}
    KERNELS.append(scale_rows)


def make_kernel(factor):
    return KERNELS[factor == 32]
""",
    "texts": """
import linecache


def make_kernel(factor):
    file, names = f"<kernel {factor}>", {"ct": ct}
    text = f"@ct.kernel\\ndef scale(x):\\n    ct.store(x, (0, 0), ct.load(x, (0, 0), (1, 64)) * {factor})\\n"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), names)
    return names["scale"]
""",
}


def make(value: object, helper: Callable[..., Any] | None = None) -> Callable[..., Any]:
    def function() -> object:
        return value, helper, function

    return function


def test_values_are_told_apart_whatever_they_are() -> None:
    made = [make(each) for each in (1, 1.0, "1", None, make(1), make(2), make)]
    assert len({str(describe_captured(each)) for each in made}) == len(made)  # type: ignore[arg-type]


def test_equal_values_are_equal_in_every_process() -> None:
    one, other = make(object(), make(3)), make(object(), make(3))
    assert describe_captured(one) == describe_captured(other)  # type: ignore[arg-type]
    assert describe_captured(make) == []


def test_a_captured_module_is_its_name_wherever_it_is_installed() -> None:
    captured = []
    for place in ("one", "other"):
        module = types.ModuleType("ops")
        module.__file__ = f"/{place}/ops.py"
        captured.append(describe_captured(make(module)))  # type: ignore[arg-type]
    assert captured[0] == captured[1]


def test_code_of_a_file_that_was_run_is_known_by_its_text(tmp_path: Path) -> None:
    found = []
    for value in (1, 1, 20):
        (tmp_path / "kernels.py").write_text(f"def made():\n    return {value}\n")
        linecache.checkcache()
        found.append(describe_captured(runpy.run_path(str(tmp_path / "kernels.py"))["made"]))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("kernels", TWO_OF_A_NAME.values(), ids=TWO_OF_A_NAME)
def test_two_kernels_of_one_name_have_keys_of_their_own(tmp_path: Path, kernels: str) -> None:
    """Or else a config would be measured with the machine code of another one."""
    repository = needs_package.write_repository(tmp_path)
    (repository / "src" / "needs_package_ops.py").write_text(
        HOST.replace(HOST[HOST.index("def make_kernel") : HOST.index("def double")], kernels)
    )
    (plan,) = catalog.read(repository / "watch", arch="sm_90", kernel="doubled")
    assert len({each.code_key for each in plan.trials}) == len(plan.trials) == 2


def test_each_value_has_machine_code_of_its_own(tmp_path: Path) -> None:
    repository = needs_package.write_repository(tmp_path)
    (repository / "src" / "needs_package_ops.py").write_text(HOST)
    (plan,) = catalog.read(repository / "watch", arch="sm_90", kernel="doubled")
    assert len({each.code_key for each in plan.trials}) == len(plan.trials) == 2
    with Compiler(folder(tmp_path / "cubins")) as compiler:
        codes = [
            compiler.compile(repository / "watch", "doubled", plan.problem, each.config, "sm_90")
            for each in plan.trials
        ]
    assert [each.status for each in codes] == ["ok", "ok"]
    assert len({each.code_sha256 for each in codes}) == len({each.content_key for each in codes}) == 2
