"""What is planned and said of an operator of a watch file, from what its host code launched."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest
from cuda.tile.compilation import CallingConvention, KernelSignature, ScalarConstraint

from tilewatch.kernels.catalog.operator_plans import describe_operator, plan_operator
from tilewatch.kernels.catalog.share import SHORT_LISTS_ALONE, WIDE, Shares, Tried, make_key
from tilewatch.kernels.contract import Problem, ShortList
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.watching.device_array import DeviceArray

PROBLEM = Problem("8x64", {"rows": 8, "cols": 64})


KEPT = ({"tile": 256}, {"tile": 64})
NIGHT = Shares("day", {("scaled", "8x64"): Tried(list(map(make_key, KEPT)), (), KEPT, "hash", has_changed=False)})
"""Both configs outside of the short list were tried, and won."""


@ct.kernel
def scale(x: int, tile: ct.Constant[int]) -> None:
    pass


def make_array(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, item_bytes: int) -> DeviceArray:
    return DeviceArray(0, shape, strides, dtype, item_bytes, 0, 0)


def make_operator(
    tiles: Sequence[int] = (64, 128, 256),
    arrays: Sequence[DeviceArray] = (),
    short_lists: Mapping[str, ShortList] | None = None,
) -> Any:
    """An operator that launches a kernel for each tile, and ships the last one."""
    signature = KernelSignature([ScalarConstraint(ct.int32), 64], CallingConvention.cutile_python_v1(), symbol="k")
    traced = SimpleNamespace(
        configs=[{"tile": tile} for tile in tiles],
        arrays=arrays,
        axes=[("tile", tiles)],
        element_bytes=2,
        bytes_moved=1234,
        case=SimpleNamespace(flops=7, work=("rows", 8)),
        launches=lambda config: (SimpleNamespace(kernel=scale, signature=signature, tile=config["tile"]),),
        code_key=lambda source, launches: f"{source} {launches[0].tile}",
        find_shipped=lambda launched: {"tile": launched[-1][0].tile},
    )
    return SimpleNamespace(
        kernel=SimpleNamespace(name="scaled", baselines=("copy",)),
        project=SimpleNamespace(root=Path(__file__).parents[1]),
        trace=lambda problem: traced if problem is PROBLEM else None,
        list_launches=lambda found, config: found.launches(config),
        short_lists=short_lists or {},
        source_sha256="hash",
    )


def test_a_plan_has_the_configs_with_their_code_and_what_the_host_code_ships() -> None:
    arrays = [make_array((8, 64), (64, 1), dtype, 2) for dtype in ("float16", "bfloat16", "float16")]
    assert plan_operator(make_operator(arrays=arrays), PROBLEM, "sm_90", SHORT_LISTS_ALONE) == {
        **{"kernel": "scaled", "problem": "8x64", "arch": "sm_90", "source_sha256": "hash", "element_bytes": 2},
        **{"sizes": {"rows": 8, "cols": 64}, "dtypes": ["bfloat16", "float16"], "axes": [("tile", (64, 128, 256))]},
        **{"flops": 7, "bytes": 1234, "work": ("rows", 8), "baselines": ("copy",), "drawn": 0, "rest": 0},
        "trials": [{"config": {"tile": tile}, "code_key": f"hash {tile}"} for tile in (64, 128, 256)],
        "ships": {"tile": 256},
    }


@pytest.mark.parametrize(("tiles", "ships"), [((64,), None), ((64, 128), {"tile": 128}), ((), None)])
def test_what_has_no_choice_ships_no_config(tiles: tuple[int, ...], ships: Mapping[str, int] | None) -> None:
    assert plan_operator(make_operator(tiles), PROBLEM, "sm_90", SHORT_LISTS_ALONE)["ships"] == ships


@pytest.mark.parametrize(
    ("arch", "shares", "tiles", "drawn"),
    [
        ("sm_90", SHORT_LISTS_ALONE, [128], 0),
        ("sm_90", WIDE, [128, 64, 256], 2),
        ("sm_90", NIGHT, [128, 256, 64], 2),
        ("sm_100", SHORT_LISTS_ALONE, [64, 128, 256], 0),
    ],
)
def test_configs_outside_of_the_short_list_are_tried_if_they_are_drawn(
    arch: str, shares: Shares, tiles: list[int], drawn: int
) -> None:
    lists = {"sm_90": ShortList(lambda config: config["tile"] == 128, "c", (), "s", "d")}
    plan = plan_operator(make_operator(short_lists=lists), PROBLEM, arch, shares)
    assert [each["config"]["tile"] for each in plan["trials"]] == tiles
    assert [each["code_key"] for each in plan["trials"]] == [f"hash {tile}" for tile in tiles]
    assert (plan["drawn"], plan["rest"]) == (drawn, 2 if arch == "sm_90" else 0)


def test_a_short_list_without_any_config_of_the_operator_is_a_mistake() -> None:
    lists = {"sm_90": ShortList(lambda _: False, "c", (), "s", "d")}
    with pytest.raises(LibraryError, match="the short list has none of 3 configs"):
        plan_operator(make_operator(short_lists=lists), PROBLEM, "sm_90", SHORT_LISTS_ALONE)


def test_a_config_is_described_by_its_first_kernel() -> None:
    found = describe_operator(make_operator(), PROBLEM, {"tile": 64}, "sm_90")
    source = found.pop("source")
    assert source == Path(__file__).read_text()
    assert source.splitlines()[found.pop("line") - 1] == "@ct.kernel"
    assert found == {
        **{"kernel": "scaled", "problem": "8x64", "arch": "sm_90", "file": "catalog/test_operator_plans.py"},
        **{"entry": "scale", "config": {"tile": 64}, "sizes": {"rows": 8, "cols": 64}, "arrays": []},
        **{"constants": {"tile": 64}, "element_bytes": 2, "grid_follows_gpu": None},
    }


@pytest.mark.parametrize(
    ("shape", "strides", "item_bytes", "is_aligned"),
    [
        ((3,), (1,), 4, True),
        ((8, 63), (64, 1), 2, True),  # rows of 128 bytes, of which 126 are used
        ((8, 64), (63, 1), 2, False),
        ((8, 63), (63, 1), 2, False),
        ((8, 4), (4, 1), 4, True),
        ((2, 8, 3), (32, 3, 1), 4, False),
        ((2, 3, 8), (25, 8, 1), 4, True),
        ((8, 17), (17, 1), 1, False),
        ((8, 16), (16, 1), 1, True),
    ],
)
def test_rows_of_an_array_are_aligned_if_each_starts_at_a_multiple_of_16_bytes(
    shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int, is_aligned: bool
) -> None:
    operator = make_operator(arrays=[make_array(shape, strides, "float", item_bytes)])
    (array,) = describe_operator(operator, PROBLEM, {"tile": 64}, "sm_90")["arrays"]
    assert array == ("array 0", shape, "float", is_aligned)
