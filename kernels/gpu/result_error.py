"""Measures how far a result is from its reference, and decides whether the result is accepted.

Whole numbers and booleans are compared exactly. Floating-point results must pass two measures. The first measure is the
largest |result - reference| as a share of the reference's largest finite magnitude. It can miss the errors of all other
elements if one element is large. The second measure is min(1, |result - reference| / (|reference| + typical)), averaged
over 4,096 neighbours; the largest average counts. `typical` is the median magnitude of the elements that are not 0. The
test is that of numpy.isclose, |e| <= rtol |r| + atol with atol = rtol x typical, solved for rtol. A median is robust:
half of all elements must change before it changes (Huber and Ronchetti, "Robust Statistics", 2009, section 1.4)."""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import cupy
import numpy as np

from tilewatch.kernels.gpu import arrays

WHOLE = frozenset({"bool", "uint8", "int8", "int16", "int32", "int64"})
"""Types whose values are compared exactly."""

TOLERANCES: Mapping[str, float] = {"float64": 1e-3, "float32": 1e-3, "float16": 5e-3, "bfloat16": 2e-2}
LEAST_EXACT = 1e-1
"""Tolerances of the first measure by the result's type; LEAST_EXACT is for FP8 types. A bfloat16 step is at most 2**-7
of a value and a float16 step 2**-10, so their tolerances are 2.5 and 5 steps. The tolerance of float32 is one step of
TF32 (2**-10), in which Tensor Cores multiply. A step of e4m3 is 2**-3, so rounding is off by up to 0.0625."""

MEAN_FACTOR = 5.0
"""The tolerance of the second measure is this many times the tolerance e of the first. Suppose that each element of a
normally distributed result is off by e x L. L, the largest of 2**24 values, is 5.5 deviations, and `typical` is 0.67
deviations. The mean error is then 5.5 e x E[1 / (|x| + 0.67)] = 5.5 e x 0.79 = 4.4 e. So the second measure refuses
only results that have a few large elements."""

MOST_MEAN = 1 / 8
"""Upper limit of the second measure's tolerance. If the reference is normally distributed, a result of zeros has a mean
error of 0.47, a copy of other rows 0.65, and a result that is off by one e4m3 step everywhere 0.06."""

LEAST_COUNTED = 32
"""Least number by which the sum of a stretch's errors is divided, because a mean of few elements would be unstable."""

SAMPLE = 1 << 16
"""Elements in the sample from which `typical` is computed. The error of `typical` is then 0.5 %."""

FLT_MAX, DBL_MAX = "3.402823466e+38f", "1.7976931348623157e308"


@dataclass(frozen=True)
class Reference:
    """The correct values of a result, as an array on the GPU. NaN means that any value is accepted."""

    values: Any
    scale: float  # largest finite magnitude; 0 for int64
    typical: float  # median magnitude without zeros; 0 for int64
    counts: Any  # values per row that are not NaN

    @classmethod
    def of(cls, values: Any) -> Self:
        counts = _reduce(_make_present(str(values.dtype)), values)
        if values.dtype.kind == "i":
            return cls(values, 0.0, 0.0, counts)
        scale = float(_reduce(_make_magnitude(str(values.dtype)), values).max(initial=0.0))
        return cls(values, scale, _find_typical(values) or scale, counts)

    @property
    def numbers(self) -> int:
        """Returns how many elements are not NaN."""
        return int(self.counts.sum(dtype=np.float64))


@dataclass(frozen=True)
class Result:
    """One result of a launch, on the GPU in the raw type of `dtype`."""

    name: str
    values: Any
    dtype: str
    reference: Reference
    tolerance: float  # largest accepted error; unused for whole numbers


@dataclass(frozen=True)
class ResultError:
    """The two error measures of a launch. `failure` says why a result is refused, or is None."""

    largest: float
    mean: float
    failure: str | None = None


NO_ERROR = ResultError(0.0, 0.0)


def find_tolerance(dtype: str) -> float:
    """Returns the largest accepted error for results of a type."""
    return TOLERANCES.get(dtype, LEAST_EXACT)


def judge(results: Iterable[Result]) -> ResultError:
    """Returns the error of the first refused result, or the largest errors if all results are accepted."""
    worst = NO_ERROR
    for each in results:
        error = _judge_whole(each) if each.dtype in WHOLE else _judge_floats(each)
        if error.failure is not None:
            return error
        worst = ResultError(max(worst.largest, error.largest), max(worst.mean, error.mean))
    return worst


def find_mean_tolerance(tolerance: float) -> float:
    return min(MEAN_FACTOR * tolerance, MOST_MEAN)


def _judge_floats(result: Result) -> ResultError:
    reference = result.reference
    if reference.values.dtype.kind == "i":
        reference = Reference.of(reference.values.astype(np.float64))
    shaped = cupy.ascontiguousarray(result.values).reshape(reference.values.shape)
    kind = "float32" if reference.values.dtype == np.float32 and result.dtype != "float64" else "float64"
    # The kernel itself converts bfloat16 when it adds; other types are converted to a copy.
    raw = "bfloat16" if (kind, result.dtype) == ("float32", "bfloat16") else kind
    values = shaped
    if raw != "bfloat16":
        values = (shaped if result.dtype == "float64" else arrays.decode(shaped, result.dtype)).astype(kind, copy=False)
    wanted = reference.values.astype(kind, copy=False)
    largest = _reduce(_make_largest(raw), values, wanted)
    typical = getattr(cupy, kind)(reference.typical)
    means = _reduce(lambda *rows, axis: _make_relative(raw)(*rows, typical, axis=axis), values, wanted)
    means = means / np.maximum(reference.counts, LEAST_COUNTED)
    worst, mean = float(largest.max(initial=0.0)), float(means.max(initial=0.0))
    share = worst / reference.scale if reference.scale else math.inf if worst else 0.0
    error = ResultError(share, mean)
    is_large = not share <= result.tolerance
    if not is_large and mean <= find_mean_tolerance(result.tolerance):
        return error
    start = arrays.ROW * int((largest if is_large else means).argmax())
    found, expected = (each.reshape(-1)[start : start + arrays.ROW].get() for each in (shaped, wanted))
    found = _decode_on_host(found, result.dtype)
    with np.errstate(invalid="ignore"):
        differences = np.abs(found - expected)
        off = differences if is_large else differences / (np.abs(expected) + reference.typical)
    off = np.where(np.isnan(expected) | (found == expected), 0.0, np.where(np.isnan(off), np.inf, off))
    return replace(error, failure=_describe_floats(result, error, start, int(off.argmax()), found, expected))


def _describe_floats(result: Result, error: ResultError, start: int, at: int, found: Any, expected: Any) -> str:
    if np.isnan(found[at]):
        what = "left elements unwritten"
    elif math.isinf(error.largest):
        what = "is off without a limit"
    else:
        what = f"is off by {error.largest:.3g} of its largest value and by {error.mean:.3g} in its worst mean"
    accepted = f"at most {result.tolerance:.3g} and {find_mean_tolerance(result.tolerance):.3g} are accepted"
    place = _name_element(result.reference.values.shape, start + at)
    return f"the output {result.name} {what}; {place} is {found[at]:.6g} in place of {expected[at]:.6g}; {accepted}"


def _judge_whole(result: Result) -> ResultError:
    reference = result.reference
    # A boolean is compared as its byte: the fill 255 does not count as true.
    shaped = cupy.ascontiguousarray(result.values).reshape(reference.values.shape)
    kind = "int64" if reference.values.dtype.kind == "i" else "float64"
    values, wanted = (each.astype(kind, copy=False) for each in (shaped, reference.values))
    counts = _reduce(_make_different(kind), values, wanted)
    if not counts.any():
        return NO_ERROR
    start = arrays.ROW * int(counts.argmax())
    found, expected = (each.reshape(-1)[start : start + arrays.ROW].get() for each in (values, wanted))
    at = int(((found != expected) & (expected == expected)).argmax())
    share = float((counts / np.maximum(reference.counts, 1)).max())
    place = _name_element(reference.values.shape, start + at)
    failure = (
        f"the output {result.name} differs in {int(counts.sum(dtype=np.float64)):,} elements; {place} is "
        f"{found[at].item()} in place of {expected[at].item()}; whole numbers are compared exactly"
    )
    return ResultError(math.inf, share, failure)


def _name_element(shape: tuple[int, ...], at: int) -> str:
    if not shape:
        return "its value"
    return f"element [{', '.join(str(each) for each in np.unravel_index(at, shape))}]"


def _decode_on_host(values: Any, dtype: str) -> Any:
    """Converts raw values to numbers on the host."""
    if dtype == "float8_e4m3fn":
        return arrays.e4m3_values()[values]
    if dtype == "float8_e8m0fnu":
        return np.exp2(values.astype(np.float32) - 127)
    if dtype == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def _find_typical(values: Any) -> float:
    """Returns the median magnitude in a sample of the values, without zeros and infinities."""
    flat = values.reshape(-1)
    if flat.size > SAMPLE:
        flat = flat[cupy.asarray(np.random.default_rng(0).integers(flat.size, size=SAMPLE))]
    sample = np.abs(flat.get())
    sample = sample[np.isfinite(sample) & (sample > 0)]
    return float(np.median(sample)) if sample.size else 0.0


def _reduce(kernel: Any, *compared: Any) -> Any:
    """Returns a reduction kernel's values, one for each row of ROW elements."""
    with arrays.without_cub():
        return np.concatenate([kernel(*rows, axis=-1).get() for rows in arrays.list_rows(*compared)] or [np.zeros(0)])


@functools.cache
def _make_largest(raw: str) -> Any:
    """Compiles the kernel that finds the largest |x - y|. NaN in y is ignored, and NaN in x gives infinity."""
    return _make_kernel(raw, "(isnan(y) ? 0 : X == y ? 0 : ABS(X - y) <= MAX ? ABS(X - y) : INF)", "max(a, b)")


@functools.cache
def _make_relative(raw: str) -> Any:
    """Compiles the kernel that adds up relative differences, each at most 1."""
    share = "ABS(X - y) < ABS(y) + t ? ABS(X - y) / (ABS(y) + t) : 1"
    return _make_kernel(raw, f"(isnan(y) ? 0 : X == y ? 0 : {share})", "a + b", ", KIND t")


@functools.cache
def _make_different(kind: str) -> Any:
    different = "(x == y ? 0 : 1)" if kind == "int64" else "(isnan(y) ? 0 : x == y ? 0 : 1)"
    return cupy.ReductionKernel(f"{kind} x, {kind} y", "float32 e", different, "a + b", "e = a", "0")


@functools.cache
def _make_present(kind: str) -> Any:
    present = "(y == y ? 1 : 0)"  # NaN is not equal to itself
    return cupy.ReductionKernel(f"{kind} y", "float32 e", present, "a + b", "e = a", "0")


@functools.cache
def _make_magnitude(kind: str) -> Any:
    magnitude = _fill_in(kind, "(ABS(y) <= MAX ? ABS(y) : 0)")
    return cupy.ReductionKernel(f"{kind} y", f"{kind} e", magnitude, "max(a, b)", "e = a", "0")


def _make_kernel(raw: str, expression: str, reduce: str, more: str = "") -> Any:
    """Compiles a kernel that compares x with y. `raw` is the type of x."""
    kind = "float32" if raw == "bfloat16" else raw
    x = "__uint_as_float((unsigned int)x << 16)" if raw == "bfloat16" else "x"
    inputs = f"{'uint16' if raw == 'bfloat16' else raw} x, {kind} y{more.replace('KIND', kind)}"
    filled = _fill_in(kind, expression).replace("X", x)
    return cupy.ReductionKernel(inputs, f"{kind} e", filled, reduce, "e = a", "0")


def _fill_in(kind: str, expression: str) -> str:
    single = kind == "float32"
    words = {
        "ABS": "fabsf" if single else "fabs",
        "MAX": FLT_MAX if single else DBL_MAX,
        "INF": "1e38f * 10" if single else "1e308 * 10",
    }
    for word, meaning in words.items():
        expression = expression.replace(word, meaning)
    return expression
