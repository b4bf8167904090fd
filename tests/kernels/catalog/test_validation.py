"""What is wrong with a kernel of a library file is said of it, and what is right passes."""

import functools
import linecache
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog.loading import LibraryKernel, load
from tilewatch.kernels.catalog.validation import (
    call,
    list_configs,
    read_space,
    read_weights,
    reference_outputs,
    split_configs,
    split_space,
    validate_kernel,
    validate_problem,
)
from tilewatch.kernels.contract import MOST_CONFIGS, Array, Problem, ShortList, Space
from tilewatch.kernels.library_errors import LibraryError

X, Y = Array("x", (64,), "float32"), Array("y", (64,), "float32", output=True)
PROBLEM = Problem("64", {"n": 64})
CONFIGS = tuple({"width": width} for width in (64, 128, 256))


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> LibraryKernel:
    library = tmp_path_factory.mktemp("library")
    (library / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0"))
    loaded = load(library)["double"]
    assert isinstance(loaded, LibraryKernel)
    return loaded


def change(loaded: LibraryKernel, **fields: Any) -> LibraryKernel:
    return replace(loaded, kernel=replace(loaded.kernel, **fields))


def find_mistake(loaded: LibraryKernel, validate: Callable[[LibraryKernel], object], **fields: Any) -> str | None:
    """What is said of the kernel if these fields are changed; None if nothing is."""
    try:
        validate(change(loaded, **fields))
    except LibraryError as error:
        return str(error).removeprefix("library file double.py: kernel double: ")
    return None


EXPECTED = 'expected a name and a tuple, e.g. ("tile", (64, 128))'


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ((("tile", (64, 128)), ("stages", (2,))), None),
        ((["tile", (64, 128)],), f"`space` has the axis ['tile', (64, 128)]; {EXPECTED}"),
        ((("tile", (64,), (128,)),), f"`space` has the axis ('tile', (64,), (128,)); {EXPECTED}"),
        (((1, (64, 128)),), f"`space` has the axis (1, (64, 128)); {EXPECTED}"),
        ((("tile", [64, 128]),), f"`space` has the axis ('tile', [64, 128]); {EXPECTED}"),
        ((("tile", (64, 1.5)),), "axis 'tile' has the value 1.5, a float; expected integers"),
        ((("tile", tuple(range(MOST_CONFIGS))),), None),
        ((("tile", tuple(range(MOST_CONFIGS + 1))),), "`space` has 20,001 configs; expected 20,000 at most"),
    ],
)
def test_a_space_has_named_axes_of_integers_and_not_too_many_configs(
    double: LibraryKernel, axes: Any, sentence: str | None
) -> None:
    assert find_mistake(double, lambda loaded: read_space(loaded, "sm_90"), space=lambda _: Space(axes)) == sentence


def test_a_space_of_another_type_is_named(double: LibraryKernel) -> None:
    said = find_mistake(double, lambda loaded: read_space(loaded, "sm_90"), space=lambda _: "64, 128")
    assert said == '`space` gives a text; expected a Space, e.g. Space((("tile", (64, 128)),))'


def test_a_filter_that_fails_is_named_with_its_error(double: LibraryKernel) -> None:
    wrong = Space((("tile", (1, 0)),), only=lambda config: 1 // config["tile"] > 0)
    found = find_mistake(double, lambda loaded: list_configs(loaded, "sm_90"), space=lambda _: wrong)
    assert found == "`only` of `space` fails: ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ((X, Y), None),
        ((X, replace(X, name="y", inout=True)), None),
        ((replace(X, inout=True),), None),
        ((X, "y"), "`arrays` holds 'y', a text; expected Array"),
        ((X, replace(Y, dtype="bf16")), "array 'y' has the type 'bf16'; expected one of cuTile, e.g. bfloat16"),
        ((X, replace(Y, dtype="zzz")), "array 'y' has the type 'zzz'; expected one of cuTile, e.g. float32"),
        ((X, replace(Y, dtype="sum")), "array 'y' has the type 'sum'; expected one of cuTile, e.g. float32"),
        ((X, replace(Y, inout=True)), "array 'y' is both `output` and `inout`; expected one of them"),
        ((X, replace(X, name="z"), Y, replace(Y, name="z")), "two arrays have the same name: x, z, y, z"),
        ((X,), "no array is an `output` or `inout`, so there is nothing to check against the reference"),
        ((Y, replace(Y, name="z")), "every array is an `output`; expected at least one that is read"),
    ],
)
def test_arrays_have_types_and_names_and_are_read_and_written(
    double: LibraryKernel, arrays: Any, sentence: str | None
) -> None:
    given = {"arrays": lambda _: arrays, "reference": max}  # whose outputs are not known
    found = find_mistake(double, lambda loaded: validate_problem(loaded, PROBLEM), **given)
    assert found == sentence


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (None, None),
        ({}, None),
        ({"decode": 2, "prefill": 0.5}, None),
        ({"decode": 0}, "'decode': 0"),
        ({"decode": -1.0}, "'decode': -1.0"),
        ({"decode": float("inf")}, "'decode': inf"),
        ({"decode": float("nan")}, "'decode': nan"),
        ({"decode": 1.0, "prefill": "2"}, "'prefill': '2'"),
        ({"": 1.0}, "'': 1.0"),
        ({3: 1.0}, "3: 1.0"),
    ],
)
def test_a_weight_is_a_number_over_zero_of_a_model_with_a_name(
    double: LibraryKernel, weights: Any, sentence: str | None
) -> None:
    given = {"weights": None if weights is None else lambda _: weights}
    wanted = f"`weights` of 64 has {sentence}; expected a model and a number over 0"
    assert find_mistake(double, lambda loaded: read_weights(loaded, PROBLEM), **given) == (sentence and wanted)
    if sentence is None:
        assert read_weights(change(double, **given), PROBLEM) == (weights or {})


def test_problems_and_baselines_are_known(double: LibraryKernel) -> None:
    assert find_mistake(double, validate_kernel, baselines=("deepgemm", "copy")) is None
    assert find_mistake(double, validate_kernel, problems=(PROBLEM, 64)) == (
        "`problems` holds 64, a int; expected Problem, as `parse` returns it"
    )
    for name, hint in (("torch_sofmax", "did you mean 'torch_softmax'?"), ("mine", "there are deepgemm, ")):
        said = find_mistake(double, validate_kernel, baselines=("copy", name))
        assert said is not None
        assert said.startswith(f"there is no baseline '{name}'; {hint}")


def test_a_reference_computes_what_the_kernel_writes(double: LibraryKernel) -> None:
    arrays = (X, replace(Y, name="b"), replace(Y, name="a"))
    references = (
        lambda inputs, xp: {"b": inputs, "a": xp},
        lambda inputs, xp: {"b": inputs, "c": xp},
    )
    said = [
        find_mistake(double, lambda loaded: validate_problem(loaded, PROBLEM), arrays=lambda _: arrays, reference=each)
        for each in references
    ]
    assert said == [None, "`reference` gives b, c, but the kernel writes a, b"]


def test_a_function_that_fails_is_named_with_what_there_is(double: LibraryKernel) -> None:
    def fail(problem: Problem, config: dict[str, int]) -> int:
        return problem.sizes["m"] + config["tile"]

    said = find_mistake(double, lambda loaded: call(loaded, "constants", PROBLEM, {"width": 64}), constants=fail)
    assert said == "`constants` asks for 'm'; its axes and sizes are n, width"
    said = find_mistake(double, lambda loaded: call(loaded, "grid", PROBLEM, {"tile": 64}, 1))
    line = 1 + tiny_repository.SOURCE[: tiny_repository.SOURCE.index("grid=")].count("\n")
    assert said == f"`grid` asks for 'width' (line {line}); its axes and sizes are n, tile"
    said = find_mistake(double, lambda loaded: call(loaded, "space", "sm_90"), space=lambda arch: {"sm_100": 1}[arch])
    assert said == "`space` asks for 'sm_90'; its axes and sizes are "
    said = find_mistake(double, lambda loaded: call(loaded, "flops", PROBLEM), flops=lambda _: 1 // 0)
    assert said == "`flops` fails: ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize(
    ("listed", "of_list", "rest"),
    [((64, 256), (64, 256), (128,)), ((64, 128, 256), (64, 128, 256), ()), (None, (64, 128, 256), ())],
)
def test_a_short_list_splits_a_space(
    listed: tuple[int, ...] | None, of_list: tuple[int, ...], rest: tuple[int, ...]
) -> None:
    short_list = None if listed is None else ShortList(lambda config: config["width"] in listed, "c", (), "s", "d")
    split = split_configs(CONFIGS, short_list)
    assert [tuple(each["width"] for each in part) for part in split] == [of_list, rest]
    assert split_configs((), short_list) == ((), ()), "an architecture without configs"


def test_the_short_list_of_an_architecture_splits_its_space_alone(double: LibraryKernel) -> None:
    lists = {
        f"sm_{arch}": ShortList(lambda config, width=width: config["width"] == width, "c", (), "s", "d")
        for arch, width in ((90, 128), (100, 32))
    }
    listed, rest = split_space(change(double, short_lists=lists), "sm_90")
    assert [each["width"] for each in (*listed, *rest)] == [128, 64, 256, 96]
    assert len(split_space(change(double, short_lists=lists), "sm_120")[0]) == 4
    said = find_mistake(double, lambda loaded: split_space(loaded, "sm_100"), short_lists=lists)
    assert said == "the short list for sm_100: LibraryError: the short list has none of 4 configs"


REFERENCES = """
import functools
plain = lambda inputs, xp: {"y": inputs["x"], "z": 2}
first, second = lambda a, xp: {"y": a}, lambda b, xp: {"z": b}
twin, other = lambda a, xp: {"y": a}, lambda a, xp: {"z": a}
def returned(inputs, xp):
    if xp is None:
        return {"y": 1}
    return {"z": 2}
def beside(inputs, xp): return {"y": (lambda c, d: {"z": c})(1, 2)}
def nested(inputs, xp): return {"y": (lambda inputs, xp: {"z": inputs})(1, 2)}
def local(inputs, xp):
    doubled = 2 * inputs
    return {"y": doubled}
def called(inputs, xp): return dict(y=1)
def mixed(inputs, xp):
    return {"y": 1} if xp else {"z": 1}
def computed(inputs, xp): return {"y".strip(): 1}
def numbered(inputs, xp): return {"y": 1, 1: 2}
def nothing(inputs, xp): pass
"""


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("plain", {"y", "z"}),
        ("first", {"y"}),
        ("second", {"z"}),
        ("twin", None),
        ("other", None),
        ("returned", {"y", "z"}),
        ("beside", {"y"}),
        ("nested", {"y"}),
        ("local", {"y"}),
        ("called", None),
        ("mixed", None),
        ("computed", None),
        ("numbered", None),
        ("nothing", None),
    ],
)
def test_the_outputs_of_a_reference_are_read_from_its_source(
    tmp_path: Path, name: str, outputs: set[str] | None
) -> None:
    """No outputs are known if two functions of a line look alike, or if a result is no plain dict."""
    file = tmp_path / "references.py"
    file.write_text(REFERENCES)
    found: dict[str, Any] = {}
    exec(compile(REFERENCES, str(file), "exec"), found)  # noqa: S102
    linecache.checkcache()
    assert reference_outputs(found[name]) == outputs

    @functools.wraps(found[name])
    def wrapped(*_: object) -> dict[str, int]:
        return {"other": 1}

    assert reference_outputs(wrapped) == outputs
    assert reference_outputs(max) is None
