"""A kernel's parameters get their values, and we compile what cuTile's own launch would compile."""

import hashlib
import itertools
from pathlib import Path

import pytest

from tests.kernels.fixtures import jit_signature
from tilewatch.kernels.catalog.loading import load
from tilewatch.kernels.catalog.parameters import Constant, Scalar, arguments
from tilewatch.kernels.catalog.signature import BadConfig, code_key, signature
from tilewatch.kernels.contract import Array
from tilewatch.kernels.library import FOLDER as LIBRARY

FOREIGN = Path(__file__).parents[1] / "fixtures" / "foreign_library"


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
