"""What is said of one config: its source, its arrays and how it is launched."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cuda.tile as ct
import numpy as np
import pytest

from tilewatch.kernels.catalog import loading
from tilewatch.kernels.catalog.description import describe, read_description
from tilewatch.kernels.catalog.loading import LibraryKernel, load
from tilewatch.kernels.contract import Array
from tilewatch.kernels.library_errors import LibraryError

FOREIGN = Path(__file__).parents[1] / "fixtures" / "foreign_library"
SOURCE = (FOREIGN / "launched.py").read_text()
CONFIG = {"tile": 16}


@pytest.fixture(autouse=True)
def fresh_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another library with a file `launched.py` may have been loaded since, whose module replaced this one's."""
    monkeypatch.setattr(loading, "_libraries", {})


def change(**fields: Any) -> LibraryKernel:
    """A kernel with an array, a scalar, a constant and an output."""
    loaded = load(FOREIGN)["offset_rows"]
    assert isinstance(loaded, LibraryKernel)
    return replace(loaded, kernel=replace(loaded.kernel, **fields))


def describe_kernel(arch: str = "sm_90", **fields: Any) -> dict[str, Any]:
    loaded = change(**fields)
    return describe(loaded, loaded.kernel.parse("40x24"), CONFIG, arch)


def test_a_config_is_described_with_the_source_of_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another module than a library file's may have the kernel too."""
    monkeypatch.setattr(ct, "theirs", change().kernel.entry, raising=False)
    found = read_description(describe_kernel())
    assert (found.kernel, found.problem, found.arch) == ("offset_rows", "40x24", "sm_90")
    assert (found.file, found.source, found.entry) == ("launched.py", SOURCE, "offset_rows")
    assert SOURCE.splitlines()[found.line - 1 : found.line + 1] == [
        "@ct.kernel",
        "def offset_rows(x, offset, tile: ConstInt, y):",
    ]
    assert (found.config, found.sizes) == (CONFIG, {"rows": 40, "columns": 24})
    assert (found.constants, found.element_bytes) == ({"tile": 16}, 4)
    assert [(each.name, each.shape, each.dtype) for each in found.arrays] == [
        ("x", (40, 24), "float32"),
        ("y", (40, 24), "float32"),
    ]
    assert found.grid_follows_gpu is False


@pytest.mark.parametrize(
    ("shape", "dtype", "is_aligned"),
    [
        ((3,), "float32", True),
        ((3, 4), "float32", True),
        ((4, 3), "float32", False),
        ((2, 3, 8), "float16", True),
        ((8, 16, 3), "float16", False),
        ((3, 17), "uint8", False),
        ((3, 16), "float8_e4m3fn", True),
    ],
)
def test_rows_are_aligned_if_each_starts_at_a_multiple_of_16_bytes(
    shape: tuple[int, ...], dtype: str, is_aligned: bool
) -> None:
    arrays = (Array("x", shape, dtype), Array("y", (40, 24), "float32", output=True))
    found = read_description(describe_kernel(arrays=lambda _: arrays))
    assert [each.aligned_rows for each in found.arrays] == [is_aligned, True]


def grid(count: Callable[[int], int]) -> Callable[..., tuple[int, int, int]]:
    return lambda _, __, sm_count: (count(sm_count), 1, 1)


@pytest.mark.parametrize(
    ("count", "follows"), [(lambda _: 40, False), (lambda sms: min(sms, 40), True), (lambda sms: min(sms, 2), True)]
)
def test_a_persistent_grid_follows_the_gpu(count: Callable[[int], int], follows: bool) -> None:
    assert describe_kernel(grid=grid(count))["grid_follows_gpu"] is follows


@pytest.mark.parametrize(("arch", "blocks"), [("sm_90", 132), ("sm_100", 148), ("sm_120", 170), ("sm_77", 1 << 20)])
def test_a_grid_is_that_of_the_gpu_that_stands_for_an_architecture(arch: str, blocks: int) -> None:
    """An H200, a B200 and an RTX 5090; of an architecture without a GPU, more than any has."""
    assert describe_kernel(arch, grid=grid(lambda sms: sms))["launch"]["grid"] == [blocks, 1, 1]


def test_a_launch_has_the_values_of_inputs_that_the_file_gives_and_its_scalars_but_no_constants() -> None:
    arrays = (Array("x", (2, 2), "float32", fill="given"), Array("y", (2, 2), "float32", output=True))
    given = {"x": np.ones((2, 2), np.float32)}
    x, offset, y = describe_kernel(arrays=lambda _: arrays, given=lambda _: given)["launch"]["arguments"]
    assert (x["name"], x["written"], x["values"]["dtype"]) == ("x", False, "float32")
    assert offset == {"name": "offset", "value": 3.0, "dtype": "float32"}
    assert (y["name"], y["written"], y["values"]) == ("y", True, None)


def test_a_kernel_without_a_name_in_its_file_cannot_be_described() -> None:
    with pytest.raises(LibraryError, match="the kernel's entry is not bound to a name in its library file"):
        describe_kernel(entry=ct.kernel(lambda x, offset, tile, y: None))  # noqa: ARG005
