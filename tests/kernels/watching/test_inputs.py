"""Tensors that a watch file makes have the type that it names, on a machine without a GPU."""

from pathlib import Path

import pytest

from tests.kernels.fixtures import needs_package
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.watching.inputs import ProblemInputs

HOST = """
import cuda.tile as ct


@ct.kernel
def gather_rows(x, index, weights, out):
    pass


def gather(*arrays):
    ct.launch(0, (1,), gather_rows, arrays)
    return arrays[-1]
"""

WATCH = """
from needs_package_ops import gather
from tilewatch import case, watch


@watch(problems="4x64:bf16", names="rows x cols")
def gathered(p):
    x, index = p.randn(p.rows, p.cols), p.randint(0, p.rows, (p.rows,), dtype="i64")
    weights, out = p.ones(p.rows, dtype=FLOAT), p.empty(p.rows, p.cols, dtype=p.dtype)
    return case(run=lambda: gather(x, index, weights, out), reference=lambda: x[index])
"""


def write(folder: Path, type_name: str) -> Path:
    needs_package.write_repository(folder, watch=WATCH.replace("FLOAT", repr(type_name)))
    (folder / "src" / "needs_package_ops.py").write_text(HOST)
    return folder / "watch"


def test_a_tensor_has_the_type_of_the_problem_unless_the_watch_file_names_one(tmp_path: Path) -> None:
    (plan,) = catalog.read(write(tmp_path, "float32"), arch="sm_90")
    assert plan.dtypes == ("bfloat16", "float32", "int64")


def test_a_type_that_pytorch_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"operators\.py.*has no type float33"):
        catalog.read(write(tmp_path, "float33"), arch="sm_90")


def test_a_problem_whose_type_pytorch_lacks_is_not_measured_in_another_type(tmp_path: Path) -> None:
    """A misspelled `bf17` was float32, with no word about it."""
    watch = write(tmp_path, "float32")
    operators = watch / "operators.py"
    operators.write_text(operators.read_text().replace(":bf16", ":bf17").replace(", dtype=p.dtype", ""))
    with pytest.raises(LibraryError, match=r"operators\.py.*has no type bf17"):
        catalog.read(watch, arch="sm_90")


@pytest.mark.parametrize("choice", ["bf16", "float8_e4m3fn"])
def test_a_type_that_numpy_lacks_is_named_with_a_way_out(choice: str) -> None:
    """It ended as "data type 'bfloat16' not understood", which names neither NumPy nor what to do."""
    inputs = ProblemInputs(Problem("p", {}, {"dtype": choice}), 0)
    with pytest.raises(ValueError, match=r"^NumPy has no type (bfloat16|float8_e4m3fn): `import ml_dtypes` gives it"):
        assert inputs.numpy_dtype
    assert ProblemInputs(Problem("p", {}, {"dtype": "f16"}), 0).numpy_dtype == "float16"
