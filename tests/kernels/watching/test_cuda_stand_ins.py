"""Arrays of CuPy, Numba, cuda.core and cuda.bindings without a GPU: NumPy says what their shapes and types are."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.kernels.watching.fixtures.trace import trace
from tilewatch.kernels.watching import device_array
from tilewatch.kernels.watching.cuda_stand_ins import array, modules, numpy_functions
from tilewatch.kernels.watching.cuda_stand_ins import cupy as _cupy
from tilewatch.kernels.watching.cuda_stand_ins.array import NoValues, ndarray

REPOSITORY = Path(__file__).parent / "fixtures" / "foreign_repository"
assert _cupy

EXPRESSIONS = {
    "plain number": "1 - x",
    "number of a wider kind": "y / 2",
    "two types": "x * y",
    "compared": "x > y",
    "function": "xp.exp(x)",
    "two results": "xp.divmod(y, 3)[1]",
    "column-major": "x.T + 1",
    "broadcast": "x[0] + y[:, :1]",
    "transposed": "xp.transpose(x)",
    "slice": "x[1:8:3, ::2]",
    "new axis": "x[None, :, None]",
    "row": "x[3]",
    "element": "x[3, 4]",
    "reshape": "x.reshape(-1, 5)",
    "reshape of a transpose": "x.T.reshape(10, -1)",
    "swapaxes": "xp.swapaxes(x.reshape(10, 5, 4), 0, 2)",
    "split": "xp.split(x, 4, axis=1)[2]",
    "contiguous": "xp.ascontiguousarray(x.T)",
    "other type": 'x.T.astype("float16")',
    "bits": 'x.view("uint8")',
    "like": "xp.zeros_like(x.T)",
    "sum": "x.sum(axis=1, keepdims=True)",
    "sum of whole numbers": "y.sum()",
    "mean": "xp.mean(y, axis=0)",
    "place of the largest": "x.argmax(axis=-1)",
    "cumulated": "xp.cumsum(y, axis=0)",
    "product": "x @ x.T",
    "einsum": 'xp.einsum("ij,kj->ik", x[:2], x)',
    "joined": "xp.concatenate([x, x], axis=1)",
    "stacked": "xp.stack([x, x], axis=-1)",
    "where": "xp.where(y > 3, x, 0.0)",
}


def evaluate(name: str, xp: Any, x: Any, y: Any) -> Any:
    return eval(EXPRESSIONS[name], {"xp": xp, "x": x, "y": y})  # noqa: S307 - a text of this file


@pytest.fixture(scope="module")
def cp() -> Any:
    made = modules.StandInModule("cupy")
    vars(made).update(modules.CONTENT["cupy"])
    vars(made)["random"] = SimpleNamespace(**modules.CONTENT["cupy.random"])
    return made


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("is_large", [False, True])
def test_a_result_has_numpys_shape_strides_and_type(
    cp: Any, name: str, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large arrays have rules of their own, because NumPy would touch all of their memory."""
    monkeypatch.setattr(numpy_functions, "MOST_VALUES", 0 if is_large else 1000)
    x, y = cp.empty((10, 20), "float32"), cp.empty((10, 20), "int16")
    found = evaluate(name, cp, x, y)
    wanted = np.asarray(evaluate(name, np, np.zeros(x.shape, x.dtype), np.zeros(y.shape, y.dtype)))
    assert isinstance(found, ndarray)
    assert (found.shape, found.dtype, found.strides) == (wanted.shape, wanted.dtype, wanted.strides)
    assert not found.has_values or name == "like"


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_result_of_known_values_has_numpys_values(cp: Any, name: str) -> None:
    x, y = np.random.default_rng(0).random((10, 20), np.float32), np.arange(200, dtype=np.int16).reshape(10, 20)
    found = evaluate(name, cp, cp.asarray(x), cp.asarray(y))
    np.testing.assert_array_equal(found.get(), evaluate(name, np, x, y))


def test_values_are_never_made_up(cp: Any) -> None:
    known, unknown = cp.arange(6), cp.empty(6)
    assert int(known.sum()) == 15
    with pytest.raises(NoValues, match=r"values of an array \(__int__\)"):
        int(unknown.sum())
    assert known.reshape(2, 3)[1].tolist() == [3, 4, 5]
    known[2:] = unknown[2:]
    with pytest.raises(NoValues):
        known.get()
    with pytest.raises(TypeError):
        np.asarray(unknown)
    assert not cp.random.randint(0, 9, (2, 2)).has_values


def test_what_a_kernel_was_given_has_its_values_again_in_the_next_run(cp: Any) -> None:
    lengths = cp.asarray([3, 5])
    lengths[:1].give_to_kernel()
    with pytest.raises(NoValues):
        lengths.tolist()
    modules.begin_run()
    assert lengths.tolist() == [3, 5]


def test_an_array_larger_than_the_machine_takes_no_memory(cp: Any) -> None:
    large = cp.random.random((1 << 21, 1 << 20))
    assert (large @ large.T).nbytes == 8 << 42
    assert array.new(1 << 45, "int8").sum().dtype == np.int64


def test_a_name_that_the_stand_in_lacks_is_named(cp: Any) -> None:
    assert not hasattr(cp, "RawKernel")
    with pytest.raises(modules.NoStandIn, match=r"stand-in for cupy has no cupy\.linalg"):
        cp.linalg.norm(cp.ones(3))


class Own:
    """An owner's class: what it says of its memory decides."""

    def __init__(self, **interface: Any) -> None:
        self.__cuda_array_interface__ = {"data": (0x1000, False), "version": 3, "typestr": "<f4"} | interface


class OnlyDlpack:
    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __dlpack__(self, *, stream: int) -> Any:
        assert stream == -1, "nothing is to wait"
        return self._values.__dlpack__()


def test_an_array_is_described_by_what_cutile_reads(cp: Any) -> None:
    plain = device_array.describe_array(Own(shape=(4, 6)))
    assert (plain.address, plain.shape, plain.strides, plain.dtype) == (0x1000, (4, 6), (6, 1), "float32")
    assert (plain.memory, plain.memory_bytes, plain.nbytes) == (0x1000, 96, 96)
    backwards = device_array.describe_array(Own(shape=(4, 2), strides=(-24, 8)))
    assert (backwards.strides, backwards.memory, backwards.memory_bytes) == ((-6, 2), 0x1000 - 72, 84)
    assert device_array.describe_array(Own(shape=(3,), typestr="<V2")).dtype == "bfloat16"
    whole = cp.empty((8, 16), "float16")
    part = device_array.describe_array(whole[2:, 4:])
    assert (part.address - part.memory, part.memory, part.memory_bytes) == (72, whole.data.ptr, 256)
    values = np.zeros((3, 5), np.int16)[:, 1:]
    by_dlpack = device_array.describe_array(OnlyDlpack(values))
    assert (by_dlpack.shape, by_dlpack.strides, by_dlpack.dtype) == ((3, 4), (5, 1), "int16")
    assert (by_dlpack.address, by_dlpack.on_gpu) == (values.ctypes.data, False)


WATCHED = """
import cuda.tile as ct
import cupy as cp
import numpy as np
from cuda.bindings import driver, runtime
from cuda.core import Device
from numba import cuda
from tilewatch import case, watch
from tiny_ops.kernels import scale_rows

class Own:
    def __init__(self, address):
        place = (int(address), False)
        self.__cuda_array_interface__ = {"shape": (8, 128), "typestr": "<f4", "data": place, "version": 3}

def of_runtime():
    error, address = runtime.cudaMalloc(4096)
    assert error == runtime.cudaError_t.cudaSuccess
    return Own(address)

def of_driver():
    error, address = driver.cuMemAlloc(4096)
    assert error == driver.CUresult.CUDA_SUCCESS
    return Own(address)

MAKERS = {
    "cupy": lambda p: cp.random.default_rng(p.seed).random((8, 128), dtype=p.numpy_dtype),
    "numba": lambda p: cuda.to_device(np.zeros((8, 128), p.numpy_dtype)),
    "core": lambda p: Own(Device(0).allocate(4096, stream=Device().create_stream()).handle),
    "bindings": lambda p: of_runtime(),
    "driver": lambda p: of_driver(),
    "view": lambda p: cp.asarray(p.randn(16, 128))[8:],
}

@watch(problems=[f"8:{name}" for name in MAKERS], names="rows : maker")
def scaled(p):
    x, y = MAKERS[p.maker](p), MAKERS[p.maker](p)
    kernel = scale_rows.replace_hints(occupancy=1)
    stream = cp.cuda.get_current_stream()
    return case(run=lambda: ct.launch(stream, (8, 1, 1), kernel, (x, y, 2.0, 64)), reference=lambda: None)
"""


def test_arrays_of_every_library_get_the_code_of_tensors(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    (tmp_path / "repository" / "watch" / "scaled.py").write_text(WATCHED)
    found, _ = trace("sm_90", tmp_path / "repository" / "watch")
    (wanted, *_) = found["tuned 8x128:f32"]["launches"].values()
    for name in ("cupy", "numba", "core", "bindings", "driver", "view"):
        (launched,) = found[f"scaled 8:{name}"]["launches"].values()
        assert [each["bytecode"] for each in launched] == [each["bytecode"] for each in wanted], name
        assert found[f"scaled 8:{name}"]["bytes"] == 2 * 8 * 128 * 4
