"""The tile interpreter means what cuda-tile means: NumPy's answers, exact rounding, errors where cuTile has none."""

from pathlib import Path

import cuda.tile as ct
import numpy as np
import pytest

from tools.tile_interpreter import running
from tools.tile_interpreter.array import MemoryArray
from tools.tile_interpreter.cases import expected, inputs, largest_error
from tools.tile_interpreter.language import Language
from tools.tile_interpreter.rounding import NotCovered, decode, encode, round_to
from tools.tile_interpreter.tile import Tile, Undefined

PROBES = running.load(Path(running.__file__).parent / "probes" / "probes.py")


@pytest.mark.parametrize("name", sorted(PROBES))
def test_a_probe_gives_numpy_s_answer(name: str) -> None:
    probe = PROBES[name]
    (problem,) = probe.kernel.problems
    raw = inputs(probe.kernel, problem)
    outputs = running.run(probe, problem, {"num_ctas": 1}, raw)
    wanted = expected(probe.kernel, problem, raw)
    assert largest_error(probe.kernel, problem, wanted, outputs) <= probe.kernel.tolerance(problem)


@pytest.mark.parametrize(
    ("value", "e4m3"),
    [
        (1.0, 0x38),
        (-1.0, 0xB8),
        (1.0625, 0x38),  # a tie between 1 and 1.125 goes to the even fraction
        (1.1875, 0x3A),
        (448.0, 0x7E),
        (470.0, 0x7E),  # saturates, as the hardware's conversion does
        (1e9, 0x7E),
        (2.0**-9, 0x01),
        (2.0**-10, 0x00),  # half the smallest subnormal: a tie with zero
        (1.5 * 2.0**-9, 0x02),
        (np.nan, 0x7F),
    ],
)
def test_fp8_rounds_to_the_bits_of_its_specification(value: float, e4m3: int) -> None:
    assert encode(round_to(np.float32(value), "float8_e4m3fn"), "float8_e4m3fn") == e4m3


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_every_bit_pattern_survives_decoding_and_encoding(dtype: str) -> None:
    bits = np.arange(256, dtype=np.uint8) if "8" in dtype else np.arange(1 << 16, dtype=np.uint16)
    raw = bits.view(np.float16) if dtype == "float16" else bits
    values = decode(raw, dtype)
    back = encode(round_to(values, dtype), dtype).view(bits.dtype)
    usual = np.isfinite(values)
    assert np.array_equal(back[usual], bits[usual])


def test_a_byte_is_two_fp4_values_the_lower_half_first() -> None:
    values = (
        Language().unpack_from_bytes(Tile(np.array([0x71, 0x9E], dtype=np.uint8), ct.uint8), ct.float4_e2m1fn).values
    )
    assert values.tolist() == [0.5, 6.0, -4.0, -0.5]


def test_scales_are_powers_of_two() -> None:
    raw = np.array([0, 1, 127, 128, 254], dtype=np.uint8)
    assert decode(raw, "float8_e8m0fnu").tolist() == [2.0**-127, 2.0**-126, 1.0, 2.0, 2.0**127]
    assert encode(decode(raw[1:], "float8_e8m0fnu"), "float8_e8m0fnu").tolist() == raw[1:].tolist()
    with pytest.raises(NotCovered, match="only powers of two"):
        round_to(np.float32(3.0), "float8_e8m0fnu")


def test_a_scaled_product_takes_one_scale_per_32_of_k() -> None:
    language = Language()
    x = Tile(np.ones((16, 64)), ct.float8_e4m3fn)
    y = Tile(np.ones((64, 16)), ct.float8_e4m3fn)
    scales = np.repeat(np.array([[2.0, 8.0]]), 16, axis=0)
    x_scale, y_scale = Tile(scales, ct.float8_e8m0fnu), Tile(np.ones((2, 16)), ct.float8_e8m0fnu)
    acc = language.zeros((16, 16), ct.float32)
    assert language.mma_scaled(x, x_scale, y, y_scale, acc).values[0, 0] == 32 * 2 + 32 * 8


def test_bits_are_taken_as_another_type() -> None:
    assert Language().bitcast(1.0, ct.int32).item() == 0x3F800000
    assert Language().bitcast(Tile([0x38, 0xB8], ct.uint8), ct.float8_e4m3fn).values.tolist() == [1.0, -1.0]


def test_types_promote_as_cuda_tile_promotes_them() -> None:
    brain = Tile([1.0, 2.0], ct.bfloat16)
    assert (brain * 1.00390625).values.tolist() == [1.0, 2.0], "a Python number is rounded to the tile's type"
    assert (brain * Tile([1.0, 1.0], ct.float32)).dtype == ct.float32
    assert (Tile([3, 4], ct.int32) / 2).dtype == ct.float32
    with pytest.raises(ct.TileError, match="not supported"):
        brain + Tile([1.0, 1.0], ct.float16)
    with pytest.raises(Undefined, match="arithmetic on float8_e4m3fn"):
        Tile([1.0, 2.0], ct.float8_e4m3fn) * 2.0


def test_what_cutile_leaves_undefined_is_an_error() -> None:
    language = Language()
    array = MemoryArray(np.zeros((20, 20), np.float32), ct.float32, name="x")
    with pytest.raises(Undefined, match="lies outside x"):
        language.load(array, index=(2, 0), shape=(16, 16))
    with pytest.raises(Undefined, match="unchecked"):
        language.load(array, index=(1, 0), shape=(16, 16), check_bounds=False)
    with pytest.raises(Undefined, match="power of two"):
        language.load(array, index=(0, 0), shape=(16, 20))
    with pytest.raises(Undefined, match="without a conversion"):
        language.store(array, index=(0, 0), tile=Tile(np.zeros((2, 2)), ct.float64))
    view = array.tiled_view((16, 16), traversal_steps=(1, 16))
    with pytest.raises(Undefined, match="lies outside x"):
        view.load((20, 0))
    with pytest.raises(Undefined, match="unchecked"):
        view.load((5, 0), check_bounds=False)
    assert view.load((4, 0), check_bounds=False).shape == (16, 16), "it ends with the array"
    padded = language.load(array, index=(1, 0), shape=(16, 16))
    assert np.isnan(padded.values[4:]).all(), "undetermined padding must not look like a number"


def test_an_operation_without_a_meaning_here_names_itself() -> None:
    with pytest.raises(NotCovered, match=r"ct\.atomic_cas"):
        _ = Language().atomic_cas
    with pytest.raises(AttributeError, match=r"cuda\.tile has no invention"):
        _ = Language().invention
    with pytest.raises(NotCovered, match=r"ct\.sum of bfloat16"):
        Language().sum(Tile([1.0, 2.0], ct.bfloat16))


def test_the_real_module_stays_as_it_is_for_everybody_else() -> None:
    running.load(Path(__file__).resolve().parents[2] / "kernels" / "library" / "gemm.py")
    import cuda.tile

    assert cuda.tile is ct
    assert not isinstance(cuda.tile, Language)


def test_atomics_add_up_over_equal_indices() -> None:
    array = MemoryArray(np.zeros(4, np.float32), ct.float32, name="x")
    Language().atomic_add(array, Tile([1, 1, 3, 9], ct.int32), 2.5)
    assert array.raw.tolist() == [0.0, 5.0, 0.0, 2.5]
