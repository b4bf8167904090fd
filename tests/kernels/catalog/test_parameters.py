"""A kernel's parameters get their values, and we compile what cuTile's own launch would compile."""

import hashlib
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest

from tests.kernels.fixtures import jit_signature
from tilewatch.kernels.catalog.loading import load
from tilewatch.kernels.catalog.parameters import BadArguments, Constant, Scalar, arguments
from tilewatch.kernels.catalog.signature import BadConfig, code_key, signature
from tilewatch.kernels.contract import Array, Kernel, Problem
from tilewatch.kernels.library import FOLDER as LIBRARY

FOREIGN = Path(__file__).parents[1] / "fixtures" / "foreign_library"
PROBLEM = Problem("64", {"n": 64})


def test_the_bytecode_is_that_of_a_launch() -> None:
    problems = ("64x64", "40x24", "5x1")  # whole, strides of 16 bytes that are no 16 elements, strides of 1
    asked = list(itertools.product(("scaled_product", "offset_rows", "double_in_place", "row_sums"), problems))
    ours, launched = jit_signature.bytecodes(FOREIGN, asked, {"tile": 16}, "sm_100")
    assert len(ours) == len(asked)
    assert dict(zip(asked, ours, strict=True)) == dict(zip(asked, launched, strict=True))


def test_arguments_are_in_the_kernel_s_order() -> None:
    kernel = load(FOREIGN)["offset_rows"].kernel
    given = arguments(kernel, kernel.parse("40x24"), {"tile": 16})
    assert [type(each) for each in given] == [Array, Scalar, Constant, Array]
    assert given[1:3] == (Scalar("offset", 3.0, "float32"), Constant("tile", 16))


def test_problems_share_their_code_whatever_their_scalars() -> None:
    kernel = load(FOREIGN)["scaled_product"].kernel
    keys = {
        code_key("source", "sm_90", signature(kernel, kernel.parse(problem), {"tile": 16}))
        for problem in ("64x64", "128x32", "40x24")
    }
    assert len(keys) == 2, "40x24 has other strides"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("tile: ConstInt, y)", "tile: int, y)", "parameter 'tile' gets a constant but is no ct.Constant"),
        ("tile: ConstInt, y)", "tile: ConstInt, y, z)", "parameter 'z' gets nothing"),
        (
            "offset, tile: ConstInt, y)",
            "y, offset, tile: int)",
            "parameter 'tile' gets a constant but is no ct.Constant",
        ),
        ('{"offset": 3.0}', '{"offset": True}', "scalar 'offset' is True, a bool"),
        ('{"offset": 3.0}', '{"offset": 2**31}', "scalar 'offset' is 2147483648, which is no int32"),
        ('{"offset": 3.0}', '{"tile": 3}', "parameter 'tile' is a ct.Constant: give it in `constants`"),
        ('{"offset": 3.0}', '{"offset": 3.0, "ofset": 3}', "no parameter of the kernel is left for scalar 'ofset'"),
        ('(config["tile"],)', "()", "parameter 'tile' is a ct.Constant, but `constants` has no value for it"),
        ('(config["tile"],)', '(config["tile"], 2)', "no parameter of the kernel is left for constant 2"),
    ],
)
def test_what_does_not_fit_the_kernel_is_a_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    source = (FOREIGN / "launched.py").read_text()
    assert old in source
    (tmp_path / "launched.py").write_text(source.replace(old, new))
    kernel = load(tmp_path)["offset_rows"].kernel
    with pytest.raises(BadConfig) as raised:
        signature(kernel, kernel.parse("64x64"), {"tile": 16})
    assert str(raised.value).startswith(f"kernel offset_rows: {sentence}")


def test_code_keys_stay_as_they_are() -> None:
    """A new key compiles everything again: change it with NAMING alone (2 since 2026-11-28)."""
    keys = hashlib.sha256()
    for name in ("gemm_fp8", "grouped_bf16", "attention_decode", "rms_norm"):
        kernel = load(LIBRARY)[name].kernel
        for problem, config in itertools.product(kernel.problems, kernel.list_nightly("sm_90")[:20]):
            keys.update(code_key("source", "sm_90", signature(kernel, problem, config)).encode())
    assert keys.hexdigest() == "d358024e2b010c14886205584c081cc8376c1dc431e71aaffb1919e9c75d274e"


def make_kernel(signature: str, *, arrays: int = 0, constants: tuple[Any, ...] = (), **scalars: Any) -> Kernel:
    """A kernel with these parameters, and a library file that gives so many arrays, constants and scalars."""
    found: dict[str, Any] = {"ct": ct}
    exec(f"def made({signature}): pass", found)  # noqa: S102
    listed = tuple(Array(f"array{number}", (64,), "float32") for number in range(arrays))
    kernel: Any = SimpleNamespace(
        entry=ct.kernel(found["made"]),
        arrays=lambda _: listed,
        constants=lambda problem, config: constants if (problem, config) == (PROBLEM, {}) else None,
        scalars=(lambda problem, config: scalars if (problem, config) == (PROBLEM, {}) else None) if scalars else None,
    )
    return kernel  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("annotation", "value", "dtype"),
    [
        ("", 2**31 - 1, "int32"),
        ("", -(2**31), "int32"),
        (": ct.ScalarInt64", 2**31, "int64"),
        (": ct.ScalarInt64", -(2**31) - 1, "int64"),
        ("", 0.5, "float32"),
        (": ct.ScalarInt64", 0.5, "float32"),
    ],
)
def test_a_scalar_has_the_type_of_a_launch(annotation: str, value: float, dtype: str) -> None:
    kernel = make_kernel(f"n{annotation}", n=value)
    assert arguments(kernel, PROBLEM, {}) == (Scalar("n", value, dtype),)


@pytest.mark.parametrize(
    ("kernel", "sentence"),
    [
        (make_kernel("n", n=2**31), "scalar 'n' is 2147483648, which is no int32"),
        (make_kernel("n", n=-(2**31) - 1), "scalar 'n' is -2147483649, which is no int32"),
        (make_kernel("n", n=float("inf")), "scalar 'n' is inf; expected a finite number"),
        (make_kernel("n", n=float("nan")), "scalar 'n' is nan; expected a finite number"),
        (make_kernel("n", n="3"), "scalar 'n' is '3', a str; only int and float are supported"),
        (make_kernel("x", arrays=2), "no parameter of the kernel is left for array 'array1'"),
        (
            make_kernel("x, t: ct.Constant[int]", arrays=2, constants=(1, 0.5)),
            "no parameter of the kernel is left for array 'array1', constant 0.5",
        ),
        (make_kernel("x, y", arrays=1), "parameter 'y' gets nothing: `arrays` and `constants` have too few values"),
        (make_kernel("array0, n", arrays=1, constants=(1,)), "parameter 'n' gets a constant but is no ct.Constant"),
        (make_kernel("array0, array1", arrays=1, constants=(1,)), "parameter 'array1' gets a constant but"),
        (
            make_kernel("t: ct.Constant[int], array0, n", arrays=1, constants=(1, 2)),
            "parameter 'n' gets a constant but is no ct.Constant",
        ),
        (make_kernel("t: ct.Constant[int]", constants=("f32",)), "the constant of parameter 't' is 'f32', a str; exp"),
    ],
)
def test_a_value_that_does_not_fit_is_named(kernel: Kernel, sentence: str) -> None:
    with pytest.raises(BadArguments) as raised:
        arguments(kernel, PROBLEM, {})
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize("field", ["array", "list"])
def test_an_annotation_of_arrays_is_refused(field: str) -> None:
    annotation = SimpleNamespace(**{"array": None, "list": None, field: "float32"})
    annotated = SimpleNamespace(pysig=SimpleNamespace(parameters=["x"]), parameter_annotations=[annotation])
    kernel: Any = make_kernel("x", arrays=1)
    kernel.entry = SimpleNamespace(_annotated_function=annotated)
    with pytest.raises(BadArguments, match="parameter 'x' has an annotation of arrays or lists"):
        arguments(kernel, PROBLEM, {})


def test_numbers_of_any_kind_are_constants() -> None:
    names = ("a", "b", "c")
    kernel = make_kernel(", ".join(f"{name}: ct.Constant[int]" for name in names), constants=(3, 0.5, True))
    assert arguments(kernel, PROBLEM, {}) == tuple(map(Constant, names, (3, 0.5, True)))
