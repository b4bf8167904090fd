"""The tile sizes that configs of many authors name, and how such tiles cover a problem."""

import pytest

from tilewatch.mechanisms.tiles import count_loaded, count_read_together, find_padded_share, list_tiles, read_sizes


@pytest.mark.parametrize(
    ("problem", "sizes"),
    [
        ("320x32576x7168", (320, 32576, 7168)),
        ("64x1024", (64, 1024)),
        ("64x1024-bfloat16", (64, 1024)),
        ("64x1024:bf16", (64, 1024)),
        ("64x1024 bf16", ()),
        ("64x1024-", ()),
        ("1024", ()),
        ("x1024", ()),
        ("64x1024x", ()),
        ("a64x1024", ()),
        ("-", ()),
    ],
)
def test_sizes_are_read_from_the_name_of_a_problem(problem: str, sizes: tuple[int, ...]) -> None:
    assert read_sizes(problem) == sizes


def test_tiles_are_the_parameters_that_give_a_side_or_a_cluster() -> None:
    sides = {"tile_m": 1, "TILE_SIZE_N": 2, "Block_K": 3, "block_size_rows": 4, "num_ctas": 5}
    assert list_tiles({**sides, "num_worker_warps": 6, "my_tile_m": 7, "tile": 8, "group_size_m": 9}) == sides


@pytest.mark.parametrize(
    ("params", "loaded"),
    [
        ({"tile_m": 64, "tile_n": 128, "tile_k": 8}, 1 / 64 + 1 / 128),
        ({"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 8}, 1 / 64 + 1 / 128),
        ({"tile_m": 64, "tile_n": 128}, None),
        ({"tile_m": 64, "tile_k": 8}, None),
        ({"tile_n": 128, "tile_k": 8}, None),
        ({"tile_m": 0, "tile_n": 128, "tile_k": 8}, None),
        ({"tile_m": 1, "tile_n": 1, "tile_k": 1}, 2.0),
    ],
)
def test_a_tile_loads_one_row_and_one_column_for_each_step(params: dict[str, int], loaded: float | None) -> None:
    assert count_loaded(params) == loaded


@pytest.mark.parametrize("name", ["group", "group_m", "group_size", "GROUP_SIZE_M"])
@pytest.mark.parametrize(
    ("group", "sizes", "rows"),
    [(8, (4096, 4096, 64), 8), (8, (192, 4096, 64), 3), (8, (193, 4096, 64), 4), (8, (192, 64), 8)],
)
def test_blocks_read_the_rows_of_their_group_and_the_columns_beside_them(
    name: str, group: int, sizes: tuple[int, ...], rows: int
) -> None:
    """132 blocks at once, in a group of no more rows of tiles than the problem has."""
    tiles = {"tile_m": 64, "tile_n": 128}
    assert count_read_together({**tiles, name: group}, sizes) == rows * 64 + 132 / rows * 128
    for left_out in (*tiles, name):
        known = {key: value for key, value in {**tiles, name: group}.items() if key != left_out}
        assert count_read_together(known, sizes) is None
    assert count_read_together({**tiles, f"{name}_n": group}, sizes) is None


@pytest.mark.parametrize(
    ("params", "sizes", "share"),
    [
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64}, (128, 128, 128), 1.0),
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64}, (96, 128, 128), 128 / 96),
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64}, (96, 96, 65), (128 / 96) ** 2 * 128 / 65),
        ({"tile_m": 64, "tile_n": 64}, (96, 128, 128), None),
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64}, (96, 0, 128), None),
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64}, (96,), None),
        ({"tile_m": 64, "tile_n": 64, "tile_k": 64}, (), None),
        ({"tile_rows": 64}, (96, 1000), 128 / 96),
        ({"tile_columns": 512}, (96, 1000), 1.024),
        ({"tile_rows": 64, "tile_columns": 512}, (96, 1000), 128 / 96 * 1.024),
        ({"tile_m": 64}, (96, 1000), None),
        ({"tile_rows": 64}, (96, 0), None),
    ],
)
def test_padding_is_the_work_of_whole_tiles_over_that_of_the_problem(
    params: dict[str, int], sizes: tuple[int, ...], share: float | None
) -> None:
    found = find_padded_share(params, sizes)
    assert found == (None if share is None else pytest.approx(share))
