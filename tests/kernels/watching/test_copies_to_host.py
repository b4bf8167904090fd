"""Host code may copy to the host what only a GPU knows, as long as the copy decides no launch: a check at its end is
traced, and what launches by such values is refused, whatever library the arrays are of."""

import pytest

from tests.kernels.watching.fixtures.plan import plan

COPIES = {
    "cupy": "cp.random.random((8, 128), dtype='float32'); x.get()",
    "cupy_number": "cp.random.random((8, 128), dtype='float32'); float(x.sum())",
    "cupy_unique": "cp.random.random((8, 128), dtype='float32'); cp.unique(x).get()",
    "numba": "cuda.device_array((8, 128), 'float32'); x.copy_to_host(np.empty((8, 128), 'float32'))",
    "driver": "Own(driver.cuMemAlloc(4096)[1]); driver.cuMemcpyDtoHAsync(HOST, x.address, 4096, 0)",
    "runtime": "Own(runtime.cudaMalloc(4096)[1]); runtime.cudaMemcpy(np.uint64(HOST.ctypes.data), x.address, 4096, 2)",
    "uploaded": "Own(upload()); driver.cuMemcpyDtoH(HOST, x.address, 4096)",
    "torch": "p.randn(8, 128); x.cpu().numpy()",
    "torch_number": "p.randn(8, 128); x.sum().item()",
    "torch_condition": "p.randn(8, 128); bool(x.any())",
    "torch_compared": "p.randn(8, 128); torch.equal(x, x)",
}

WATCH = """
import cuda.tile as ct
import cupy as cp
import numpy as np
import torch
from cuda.bindings import driver, runtime
from numba import cuda
from tilewatch import case, watch
from tiny_ops.kernels import scale_rows

HOST = np.empty((8, 128), "float32")

class Own:
    def __init__(self, address):
        self.address, place = address, (int(address), False)
        self.__cuda_array_interface__ = {{"shape": (8, 128), "typestr": "<f4", "data": place, "version": 3}}

def upload():
    _, address = driver.cuMemAlloc(4096)
    driver.cuMemcpyHtoD(address, np.full((8, 128), 3.0, "float32"), 4096)
    return address

def launch(x):
    ct.launch(torch.cuda.current_stream(), (8, 1, 1), scale_rows, (x, x, 2.0, 64))

MAKE = {{{makers}}}
COPY = {{{copies}}}
EVERY = [f"8:{{name}}" for name in MAKE]

def describe(run, reference=lambda: None):
    return case(run=run, reference=reference)

@watch(problems=EVERY, names="rows : maker")
def checked(p):
    x = MAKE[p.maker](p)
    def run():
        launch(x)
        copied = COPY[p.maker](x)
        if np.isnan(copied).any():
            raise ValueError("it overflows")
        return copied
    return describe(run, lambda: COPY[p.maker](x))

@watch(problems=EVERY, names="rows : maker")
def decided(p):
    x = MAKE[p.maker](p)
    def run():
        launch(x)
        COPY[p.maker](x)
        launch(x)
    return describe(run)

@watch(problems=["8:cupy", "8:driver", "8:torch_condition"], names="rows : maker")
def skipped(p):
    x = MAKE[p.maker](p)
    def run():
        launch(x)
        copied = COPY[p.maker](x)
        if np.any(HOST if p.maker == "driver" else copied):
            launch(x)
    return describe(run)

@watch(problems="8:cupy", names="rows : maker")
def swallowed(p):
    x = MAKE[p.maker](p)
    def run():
        launch(x)
        x.get()
        try:
            launch(x)
        except Exception:
            pass
    return describe(run)

@watch(problems="8:cupy", names="rows : maker")
def raising(p):
    x = MAKE[p.maker](p)
    def run():
        launch(x)
        x.get()
        raise ValueError("every answer is wrong")
    return describe(run)

@watch(problems="8", names="rows")
def known(p):
    x = cp.asarray([3.0, 1.0])
    def run():
        for _ in range(int(x.get()[0])):
            launch(cp.random.random((8, 128), dtype="float32"))
    return describe(run)
"""

LINE_OF_COPIES = 1 + WATCH[: WATCH.index("COPY =")].count("\n")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    parts = {name: text.partition("; ") for name, text in COPIES.items()}
    makers = ", ".join(f'"{name}": lambda p: {made}' for name, (made, _, _) in parts.items())
    copies = ", ".join(f'"{name}": lambda x: {copied}' for name, (_, _, copied) in parts.items())
    return plan(tmp_path_factory.mktemp("plans"), WATCH.format(makers=makers, copies=copies))


@pytest.mark.parametrize("name", COPIES)
def test_a_check_after_the_last_launch_is_traced(found: dict[str, list[list[str]]], name: str) -> None:
    assert len(found[f"checked 8:{name}"][0]) == 1


@pytest.mark.parametrize("name", ["cupy", "numba", "torch"])
def test_a_reference_may_copy_to_the_host(found: dict[str, list[list[str]]], name: str) -> None:
    assert found[f"checked 8:{name}"][2] == []


@pytest.mark.parametrize("name", COPIES)
def test_a_launch_after_a_copy_is_refused_at_the_copy(found: dict[str, str], name: str) -> None:
    assert "the host code needs the values of a" in found[f"decided 8:{name}"]
    assert found[f"decided 8:{name}"].endswith(f"(watch/planned.py, line {LINE_OF_COPIES})")


@pytest.mark.parametrize(
    "name", ["skipped 8:cupy", "skipped 8:driver", "skipped 8:torch_condition", "swallowed 8:cupy"]
)
def test_a_launch_that_only_some_values_lead_to_is_refused(found: dict[str, str], name: str) -> None:
    assert "the host code needs the values of a" in found[name]


def test_a_check_that_no_guess_passes_is_refused(found: dict[str, str]) -> None:
    assert "it then raises ValueError: every answer is wrong (watch/planned.py, line " in found["raising 8:cupy"]


def test_values_that_the_host_stated_may_decide(found: dict[str, list[list[str]]]) -> None:
    assert len(found["known 8"][0]) == 3
