"""Errors of results: wrong ones are refused, right ones accepted, in each type, and the sentence names the element."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu.device import FakeGpu

FP8 = "float8_e4m3fn"
FLOATS = [FP8, "bfloat16", "float16", "float32", "float64"]
NAN, INF = math.nan, math.inf


@pytest.fixture
def result_error(gpu: FakeGpu) -> Any:  # noqa: ARG001 - the fake GPU's CuPy is imported
    from tilewatch.kernels.gpu import result_error

    return result_error


def judge(result: Any, expected: Any, dtype: str = "float32", tolerance: float | None = None, shared: str = "") -> Any:
    """Judges values, which are rounded to the type; `shared` is the type that the reference is handed over in."""
    import cupy

    from tilewatch.kernels.gpu import arrays, shared_arrays
    from tilewatch.kernels.gpu.result_error import WHOLE, Reference, Result, find_tolerance, judge

    wanted, values = np.asarray(expected), np.asarray(result)
    shared = shared or shared_arrays.find_shared_type(str(wanted.dtype), dtype)
    if dtype in WHOLE:
        raw = values.astype("uint8" if dtype == "bool" else dtype)
    elif dtype == "float64":
        raw = values.astype(dtype)
    else:
        raw = arrays.encode(cupy.asarray(values.astype(np.float32)), dtype)
    reference = Reference.of(cupy.asarray(wanted.astype(shared)))
    accepted = find_tolerance(dtype) if tolerance is None else tolerance
    return judge([Result("'y'", cupy.asarray(raw), dtype, reference, accepted)])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    import cupy

    from tilewatch.kernels.gpu import arrays

    if dtype == "float64":
        return values
    return np.asarray(arrays.decode(arrays.encode(cupy.asarray(values.astype(np.float32)), dtype), dtype))


def outlier(value: float, *places: tuple[int, ...]) -> np.ndarray:
    """A normal matrix with one value that is larger than all others, or some of them."""
    values = normal(256, 256)
    for place in places or ((3, 7),):
        values[place] = value
    return values


def kept(values: np.ndarray, *places: tuple[int, ...]) -> np.ndarray:
    """Zeros, but for these places."""
    found = np.zeros_like(values)
    for place in places or ((3, 7),):
        found[place] = values[place]
    return found


COLUMN = tuple((row, 9) for row in range(256))
BLOCKS = tuple((row, 0) for row in range(0, 256, 16))
"""One element in each stretch of 4,096."""

HIDDEN: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "zeros beside one 1000": lambda: (kept(outlier(1000.0)), outlier(1000.0)),
    "zeros beside one 1e9": lambda: (kept(outlier(1e9)), outlier(1e9)),
    "zeros beside one 1e9 in each stretch": lambda: (kept(outlier(1e9, *BLOCKS), *BLOCKS), outlier(1e9, *BLOCKS)),
    "zeros beside a column of 1e9": lambda: (kept(outlier(1e9, *COLUMN), *COLUMN), outlier(1e9, *COLUMN)),
    "zeros beside a negative 1e9": lambda: (kept(outlier(-1e9)), outlier(-1e9)),
    "another matrix beside one 1e9": lambda: (
        np.where(outlier(1e9) == 1e9, 1e9, normal(256, 256, seed=1)),
        outlier(1e9),
    ),
    "the last tile of rows is zeros beside one 1e9": lambda: (
        np.where(np.arange(256)[:, None] < 240, outlier(1e9), 0),
        outlier(1e9),
    ),
    "the signs are wrong beside one 1e9": lambda: (np.where(outlier(1e9) == 1e9, 1e9, -outlier(1e9)), outlier(1e9)),
    "rows moved by one beside one 1e9": lambda: (
        np.where(outlier(1e9) == 1e9, 1e9, np.roll(outlier(0.5), 1, axis=0)),
        outlier(1e9),
    ),
    "all is a hundred times too large beside one 1e9": lambda: (
        np.where(outlier(1e9) == 1e9, 1e9, 100 * outlier(1e9)),
        outlier(1e9),
    ),
    "a half is missing beside one 1e9": lambda: (np.where(outlier(1e9) == 1e9, 1e9, outlier(1e9) / 2), outlier(1e9)),
    "zeros in a product whose input has one 1e9": lambda: _hide_in_a_product(1e9),
    "zeros in a product whose input has one 1e4": lambda: _hide_in_a_product(1e4),
}


def _hide_in_a_product(value: float) -> tuple[np.ndarray, np.ndarray]:
    """A row of the product is huge; all others are zeros."""
    a, b = normal(256, 64), normal(64, 256, seed=1)
    a[5, 5] = value
    expected = a @ b
    return np.where(np.arange(256)[:, None] == 5, expected, 0), expected


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("case", HIDDEN)
def test_one_large_element_hides_no_other(case: str, dtype: str) -> None:
    """The largest error alone would be a small share of the largest magnitude."""
    result, expected = HIDDEN[case]()
    error = judge(result, expected, dtype)
    assert error.failure is not None
    assert judge(expected, expected, dtype).failure is None


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize(("dtype", "large"), [(FP8, 400.0), ("float16", 60_000.0)])
def test_one_large_element_hides_no_other_in_a_narrow_type(dtype: str, large: float) -> None:
    expected = outlier(large)
    assert judge(kept(expected), expected, dtype).failure is not None
    assert judge(expected, expected, dtype).failure is None


def attend(queries: int = 256, head: int = 64, *, seed: int = 0, hide: Callable[[Any], Any] = lambda _: None) -> Any:
    """Causal attention of FP8 inputs, in float64. `hide` changes which keys a query sees."""
    q, k, v = (rounded(normal(queries, head, seed=3 * seed + each), FP8).astype(np.float64) for each in range(3))
    sees = np.tril(np.ones((queries, queries), bool))
    hide(sees)
    scores = np.where(sees, q @ k.T / math.sqrt(head), -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v


def _hide_diagonal_of_the_last_tile(sees: np.ndarray) -> None:
    sees[-64:, -64:] = False


def _hide_own_key(sees: np.ndarray) -> None:
    rows = np.arange(1, len(sees))
    sees[rows, rows] = False


def _see_one_tile_ahead(sees: np.ndarray) -> None:
    sees[:64, :128] = True


ATTENTION: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the last tile of rows is zeros": lambda right: np.concatenate([right[:-64], 0 * right[-64:]]),
    "the last tile of rows is a copy of the one before": lambda right: np.concatenate([right[:-64], right[-128:-64]]),
    "the diagonal's keys are left out in the last tile": lambda _: attend(hide=_hide_diagonal_of_the_last_tile),
    "each query's own key is left out": lambda _: attend(hide=_hide_own_key),
    "the first tile sees one tile ahead": lambda _: attend(hide=_see_one_tile_ahead),
    "the last 16 rows are zeros": lambda right: np.concatenate([right[:-16], 0 * right[-16:]]),
    "a quarter of each row is zeros": lambda right: np.concatenate([right[:, :-16], 0 * right[:, -16:]], axis=1),
    "the sum of weights is not divided by": lambda right: right * np.linspace(1, 1.2, 256)[:, None],
}


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("case", ATTENTION)
def test_a_bfloat16_result_of_fp8_inputs_is_judged_as_bfloat16(case: str) -> None:
    right = attend()
    assert judge(ATTENTION[case](right), right, "bfloat16").failure is not None
    assert judge(right, right, "bfloat16").failure is None


INFINITE = np.array([1, 2, -INF, 3])
NOT_LOST: dict[str, tuple[Any, Any]] = {
    "garbage beside an infinity of the reference": ([99, -50, 7, 0], INFINITE),
    "a number for an infinity": ([1, 2, 7, 3], INFINITE),
    "the other infinity": ([1, 2, INF, 3], INFINITE),
    "NaN for an infinity": ([1, 2, NAN, 3], INFINITE),
    "an infinity for a number": ([1, INF, -INF, 3], INFINITE),
    "NaN for a number": ([1, NAN, -INF, 3], INFINITE),
    "a number for a positive infinity": ([1, 3e38, 2], [1, INF, 2]),
    "NaN alone": ([NAN, NAN], [1, 2]),
    "NaN behind a larger error": ([1e30, NAN], [1, 2]),
    "anything for zeros": ([0, 1e-3, 0], [0, 0, 0]),
    "little for zeros": ([0, 1e-30, 0], [0, 0, 0]),
    "NaN for zeros": ([0, NAN, 0], [0, 0, 0]),
    "zeros for little": ([0, 0, 0], [1e-30, 2e-30, -1e-30]),
    "one element of a row of infinities": ([-INF, -INF, 0], [-INF, -INF, -INF]),
}


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("case", NOT_LOST)
def test_infinities_nan_and_zeros_hide_nothing(case: str, dtype: str) -> None:
    result, expected = (np.array(each, np.float64) for each in NOT_LOST[case])
    assert judge(result, expected, dtype).failure is not None


RIGHT: dict[str, tuple[Any, Any]] = {
    "equal infinities": (INFINITE, INFINITE),
    "both infinities": ([INF, -INF, 0], [INF, -INF, 0]),
    "infinities alone": ([-INF, -INF], [-INF, -INF]),
    "zeros": ([0, 0], [0, 0]),
    "a negative zero": ([-0.0, 0.0], [0, 0]),
    "anything where any value will do": ([NAN, 1, INF], [NAN, 1, NAN]),
    "one number": (-2.0, -2.0),
}


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("case", RIGHT)
def test_equal_results_are_right(case: str, dtype: str) -> None:
    result, expected = (np.array(each, np.float64) for each in RIGHT[case])
    error = judge(result, expected, dtype)
    assert (error.largest, error.mean, error.failure) == (0.0, 0.0, None)


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("order", [0, 1])
def test_each_of_two_results_is_judged_in_either_order(order: int) -> None:
    """Attention's result and the logarithms of its sums, in which a row without keys has -inf."""
    import cupy

    from tilewatch.kernels.gpu.result_error import Reference, Result, judge

    o, lse = normal(16, 16), np.array([1, 2, -INF, 3], np.float32)
    garbage = np.array([99, -50, 7, 0], np.float32)

    def pair(of_lse: np.ndarray) -> list[Any]:
        results = [
            Result("'o'", cupy.asarray(o), "float32", Reference.of(cupy.asarray(o)), 1e-3),
            Result("'lse'", cupy.asarray(of_lse), "float32", Reference.of(cupy.asarray(lse)), 1e-3),
        ]
        return results[::-1] if order else results

    assert judge(pair(lse)).failure is None
    failure = judge(pair(garbage)).failure
    assert failure is not None
    assert failure.startswith("the output 'lse' is off without a limit; element [2] is 7 in place of -inf")


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("order", [0, 1])
def test_the_error_of_two_results_is_the_largest_by_each_measure(order: int) -> None:
    """All elements of one result are off by little, a single element of the other one by more."""
    import cupy

    from tilewatch.kernels.gpu.result_error import Reference, Result, judge

    right = np.ones(4096, np.float32)
    little, single = right + 2**-6, right.copy()
    single[7] += 2**-4
    reference = Reference.of(cupy.asarray(right))
    results = [Result("'y'", cupy.asarray(each), "float32", reference, 0.25) for each in (little, single)]
    error = judge(results[::-1] if order else results)
    assert (error.largest, error.mean, error.failure) == (2**-4, 2**-7, None), "typical is 1: a mean is of halves"


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize(
    ("off", "single", "is_accepted"),
    [(0.25, 0.0, True), (0.251, 0.0, False), (0.0, 1.0, True), (0.0, 1.001, False)],
)
def test_an_error_of_as_much_as_is_accepted_is_accepted_by_each_measure(
    off: float, single: float, is_accepted: bool
) -> None:
    """A tolerance of 1/4 of the largest value, which is 4, accepts a mean of 1/8. The typical value is 1."""
    expected = np.ones((2, 4096), np.float32)
    expected[0, 0] = NAN  # may be anything, and is no part of the mean
    expected[1, 0] = 4.0
    values = expected.copy()
    values[0] += off
    values[1, 0] += single
    assert (judge(values, expected, tolerance=0.25).failure is None) == is_accepted


WHOLE: dict[str, tuple[str, Any, Any]] = {
    "an id that is off by one": ("int32", [100_000, 5], [100_000, 4]),
    "an id that is off by one beside 255": ("int32", [255, 17, 3], [255, 18, 3]),
    "a large whole number that is off by one": ("int64", [2**53 + 1, 0], [2**53, 0]),
    "the largest one": ("int64", [2**63 - 2], [2**63 - 1]),
    "a negative one": ("int64", [-(2**62) - 1], [-(2**62)]),
    "24 bits and one": ("int32", [2**24 + 1], [2**24]),
    "two ids in another order": ("int32", [[3, 1], [2, 9]], [[1, 3], [2, 9]]),
    "a byte": ("uint8", [7, 200], [7, 201]),
    "a sign": ("int8", [-1, 1], [1, 1]),
    "a short number": ("int16", [32767], [32766]),
    "true for false": ("bool", [1, 1], [True, False]),
    "unwritten for true": ("bool", [255, 0], [True, False]),
    "a reference of floats": ("int32", [7, 8], [7.0, 9.0]),
    "a reference of floats that is no whole number": ("int32", [7, 8], [7.0, 8.5]),
}


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("case", WHOLE)
def test_whole_numbers_and_booleans_are_compared_exactly(case: str) -> None:
    dtype, result, expected = WHOLE[case]
    error = judge(np.array(result), np.array(expected), dtype, tolerance=0.25)
    assert (error.largest, "whole numbers are compared exactly" in (error.failure or "")) == (INF, True)
    right = np.array(expected) if case != "a reference of floats that is no whole number" else np.array([7, 8])
    assert judge(right, right, dtype).failure is None


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize(
    ("row", "place", "share"),
    [
        (1 << 12, "[0, 2] is 99.0 in place of 2.0", 4 / 23),
        (8, "[2, 4] is 71.0 in place of 20.0", 3 / 7),
        (5, "[2, 4] is 71.0 in place of 20.0", 3 / 4),
    ],
)
def test_the_first_element_of_the_stretch_with_most_wrong_whole_numbers_is_named(
    monkeypatch: pytest.MonkeyPatch, row: int, place: str, share: float
) -> None:
    from tilewatch.kernels.gpu import arrays

    monkeypatch.setattr(arrays, "ROW", row)
    expected = np.arange(24.0).reshape(3, 8)
    expected[2, 3] = NAN
    values = np.nan_to_num(expected)
    values[0, 2] = 99
    values[2, 3:7] = 70, 71, 72, 73  # the first one may be anything
    error = judge(values, expected, "int32")
    assert f"the output 'y' differs in 4 elements; element {place}" in (error.failure or "")
    assert (error.largest, error.mean) == (INF, pytest.approx(share))


@pytest.mark.usefixtures("result_error")
def test_a_float_result_may_have_a_reference_of_whole_numbers() -> None:
    """A count in float32, of which the sum was taken in another order."""
    assert judge(np.array([1e6, 2.0]), np.array([10**6, 2]), "float32", shared="int64").failure is None
    assert judge(np.array([1e6, 2e4]), np.array([10**6, 2]), "float32", shared="int64").failure is not None


@pytest.mark.usefixtures("result_error")
def test_where_the_reference_of_whole_numbers_is_nan_any_will_do() -> None:
    assert judge(np.array([7, 123]), np.array([7.0, NAN]), "int32").failure is None
    assert judge(np.array([8, 123]), np.array([7.0, NAN]), "int32").failure is not None


HONEST: dict[str, Callable[[str], tuple[np.ndarray, np.ndarray]]] = {
    "rounded normal values": lambda _: (normal(256, 512), normal(256, 512)),
    "a large value that is right": lambda _: (outlier(300.0), outlier(300.0)),
    "rows of very unlike sizes": lambda _: (_unlike_rows(), _unlike_rows()),
    "softmax": lambda _: (_softmax(), _softmax()),
    "a gate times a value": lambda _: (_gated(), _gated()),
    "rows that are zero": lambda _: (_zero_rows(), _zero_rows()),
    "causal attention": lambda _: (attend(), attend()),
    "a sum in two halves": lambda dtype: _split(dtype),
    "weights rounded before they are multiplied": lambda dtype: _round_weights(dtype),
    "a row that cancels to noise": lambda dtype: _cancel(dtype),
}
"""What a right kernel may do, and the right values; the result is rounded to its type."""


def _unlike_rows() -> np.ndarray:
    return normal(256, 256) * np.exp2(np.random.default_rng(1).standard_normal((256, 1))).astype(np.float32)


def _softmax() -> np.ndarray:
    raised = np.exp(normal(64, 256))
    return raised / raised.sum(1, keepdims=True)


def _gated() -> np.ndarray:
    gate, up = normal(128, 128), normal(128, 128, seed=1)
    return gate / (1 + np.exp(-gate)) * up


def _zero_rows() -> np.ndarray:
    return np.where(np.arange(256)[:, None] % 5 == 0, 0, normal(256, 256))


def _split(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Both halves of a sum over K are rounded to the type, or to bfloat16, before they are added."""
    a, b = normal(64, 256), normal(256, 64, seed=1)
    halves = [rounded(a[:, part] @ b[part], dtype) for part in (slice(0, 128), slice(128, 256))]
    return halves[0] + halves[1], a @ b


def _round_weights(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    weights, v = _softmax(), normal(256, 64, seed=2)
    return rounded(weights, "bfloat16" if dtype != "float32" else dtype) @ v, weights @ v


def _cancel(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The first row of causal attention's gradient: exactly 0, of which a kernel leaves what it rounds."""
    right = normal(128, 128)
    right[0] = 0
    noisy = right.copy()
    noisy[0] = normal(128, seed=1) * {"float32": 1e-5, "float16": 1e-3}.get(dtype, 4e-3)
    return noisy, right


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("dtype", [FP8, "bfloat16", "float16", "float32"])
@pytest.mark.parametrize("case", HONEST)
def test_what_a_right_kernel_rounds_is_accepted_with_room(case: str, dtype: str) -> None:
    if dtype == FP8 and case in ("softmax", "a row that cancels to noise", "rows that are zero"):
        pytest.skip("this encoder has no zeros and no subnormal results of its own")
    result, expected = HONEST[case](dtype)
    error = judge(result, expected, dtype)
    assert error.failure is None
    from tilewatch.kernels.gpu.result_error import find_mean_tolerance, find_tolerance

    assert error.mean < find_mean_tolerance(find_tolerance(dtype)) / 2


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("dtype", [each for each in FLOATS if each != FP8])
def test_nothing_normal_that_the_largest_error_accepts_is_refused_by_the_mean(dtype: str) -> None:
    """Each element is off by nearly all that is accepted (see MEAN_FACTOR); FP8 is bounded by MOST_MEAN."""
    expected = rounded(normal(1024, 1024), dtype)
    off = expected + 0.9 * 2.0**-6 * np.abs(expected).max() * np.sign(expected)
    error = judge(off, expected, dtype, 2.0**-6)
    assert error.failure is None
    assert error.largest > 0.8 * 2.0**-6
    assert error.mean > 3 * 2.0**-6


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("row", [1 << 12, 24, 10])
def test_the_largest_error_is_found_wherever_it_is_and_in_either_direction(
    monkeypatch: pytest.MonkeyPatch, dtype: str, row: int
) -> None:
    from tilewatch.kernels.gpu import arrays

    monkeypatch.setattr(arrays, "ROW", row)
    expected = np.full((4, 6), 2.0, np.float32)
    for index, by in (((0, 0), 0.5), ((2, 0), 0.5), ((3, 5), -0.5)):
        values = expected.copy()
        values[index] += by
        error = judge(values, expected, dtype, tolerance=0.2)
        assert error.largest == 0.25
        assert f"element [{index[0]}, {index[1]}] is {2 + by:g} in place of 2;" in (error.failure or "")


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("index", [(0, 0), (17, 200), (255, 255)])
def test_the_sentence_names_the_element_by_both_measures(index: tuple[int, int]) -> None:
    """The mean is worst where many are off, the largest error where one is."""
    values = normal(256, 256)
    values[index] += 3
    failure = judge(values, normal(256, 256)).failure
    assert failure is not None
    assert f"element [{index[0]}, {index[1]}] is {values[index]:.6g} in place of" in failure
    assert "of its largest value and by" in failure
    assert "at most 0.001 and 0.005 are accepted" in failure
    hidden = judge(kept(outlier(1e9)), outlier(1e9)).failure
    assert hidden is not None
    assert "is 0 in place of" in hidden


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize("large", [0, 1])
def test_the_sentence_names_the_worst_element_by_the_measure_that_refuses(large: int) -> None:
    """One stretch of 4,096 elements has the largest error, another one the largest mean error. In the first, another
    element is off by more of its own value; in the second, another one by more of the largest value."""
    expected = normal(2, 4096)
    by_mean = 1 - large
    expected[large, [10, 20]] = 4.0, 0.01
    expected[by_mean, [30, 40]] = 4.0, 1e-4
    values = expected.copy()
    values[large, [10, 20]] += 3, 2
    values[by_mean] += 0.2
    failure = judge(values, expected, tolerance=0.25).failure
    assert f"element [{large}, 10] is 7 in place of 4;" in (failure or "")
    values[large, [10, 20]] = expected[large, [10, 20]] + [0.6, 0]
    values[by_mean, [30, 40]] += 0.3, 0.0
    error = judge(values, expected, tolerance=0.25)
    assert error.largest < 0.25
    place = np.abs(expected[by_mean]).argmin()
    assert f"element [{by_mean}, {place}] is " in (error.failure or "")
    assert "at most 0.25 and 0.125 are accepted" in (error.failure or "")


@pytest.mark.usefixtures("result_error")
def test_a_stretch_of_a_few_numbers_is_no_mean() -> None:
    """All others are NaN, as where a kernel may leave what it likes."""
    expected = np.full(4096, NAN)
    expected[:2] = 1.0, 1e4
    assert judge(np.where(expected == 1.0, 1.02, expected), expected, tolerance=1e-3).failure is None


@pytest.mark.usefixtures("result_error")
@pytest.mark.parametrize(("numbers", "mean"), [(8, 0.125), (16, 0.25), (32, 0.5), (64, 0.5), (4096, 0.5)])
def test_the_errors_of_a_stretch_are_divided_by_thirty_two_at_least(numbers: int, mean: float) -> None:
    """Zeros in place of ones are off by a half of a value and the typical one."""
    expected = np.full(4096, NAN)
    expected[:numbers] = 1.0
    assert judge(np.zeros(4096), expected).mean == mean


def test_tolerances_are_those_of_the_result_s_type(result_error: Any) -> None:
    found = {each: result_error.find_tolerance(each) for each in ("float64", *FLOATS, "float8_e5m2")}
    assert found == {
        "float64": 1e-3, "float32": 1e-3, "float16": 5e-3, "bfloat16": 2e-2, FP8: 1e-1, "float8_e5m2": 1e-1,
    }  # fmt: skip
    assert result_error.find_mean_tolerance(0.25) == 1 / 8


def test_a_reference_counts_its_numbers(result_error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    for row in (1 << 12, 2):
        monkeypatch.setattr("tilewatch.kernels.gpu.arrays.ROW", row)
        for values in ([[1.0, NAN, -3.0], [NAN, NAN, NAN]], [NAN, -3.0, 2.0], [-3.0, -INF]):
            found = result_error.Reference.of(cupy.asarray(np.array(values, np.float32)))
            assert (found.numbers, found.scale) == (2, 3.0)


def test_typical_is_the_median_of_what_is_not_zero(result_error: Any) -> None:
    import cupy

    values = np.zeros(1 << 17, np.float32)
    values[::3] = 2.0
    values[::300] = 1e9
    assert result_error.Reference.of(cupy.asarray(values)).typical == 2.0


def test_the_typical_magnitude_is_sampled_to_half_a_percent(result_error: Any) -> None:
    """The error of a sample's median is 1 / (2 d sqrt(n)), with the density d at the median: of normal magnitudes, the
    median is 0.674, and d is 2 x 0.318."""
    error = 1 / (2 * 2 * 0.318 * math.sqrt(result_error.SAMPLE)) / 0.674
    assert error == pytest.approx(0.005, rel=0.15)


@pytest.mark.parametrize(("elements", "sample", "is_sampled"), [(99, 100, False), (100, 100, False), (101, 100, True)])
def test_only_more_elements_than_a_sample_has_are_sampled(
    result_error: Any, monkeypatch: pytest.MonkeyPatch, elements: int, sample: int, is_sampled: bool
) -> None:
    import cupy

    monkeypatch.setattr(result_error, "SAMPLE", sample)
    values = np.arange(1, elements + 1, dtype=np.float32)
    typical = result_error._find_typical(cupy.asarray(values))
    assert (typical != np.median(values)) == is_sampled


@pytest.mark.usefixtures("result_error")
def test_a_library_s_own_reductions_have_cub() -> None:
    """Comparing goes without it; host code that reduces runs in the same process and is timed."""
    import cupy

    judge(np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="reshape"):
        judge(np.ones((2, 2)), np.ones((3, 3)))
    assert cupy._core.get_reduction_accelerators() == [1]
