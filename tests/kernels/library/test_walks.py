"""How many blocks walk: no more than their waves of tiles need, where fewer were faster."""

import pytest

from tilewatch.kernels.catalog.loading import find
from tilewatch.kernels.library import FOLDER as LIBRARY

WIDE = {"tile_m": 128, "tile_n": 256, "num_ctas": 1, "occupancy": 1}
CLUSTERS = {"tile_m": 256, "tile_n": 256, "num_ctas": 2, "occupancy": 1}
SHARED = {"tile_m": 128, "tile_n": 128, "num_ctas": 1, "occupancy": 2}


@pytest.mark.parametrize(
    ("kernel", "problem", "config", "blocks"),
    [
        pytest.param("gemm_nt", "4096x4096x7168-bfloat16", WIDE, 128, id="512 tiles, 4 waves of 132 or of 128"),
        pytest.param("gemm_nt", "4096x4096x7168-bfloat16", CLUSTERS, 64, id="256 tiles, 4 waves of 66 or of 64"),
        pytest.param("gemm_nt", "4096x4096x7168-bfloat16", SHARED, 264, id="two to a multiprocessor: all that run"),
        pytest.param("gemm_nt", "4096x32768x512-bfloat16", WIDE, 132, id="K is short: all that run"),
        pytest.param("gemm_nt", "128x2048x4096-bfloat16", WIDE, 8, id="8 tiles"),
        pytest.param("gemm_fp8_scaled", "4096x7168x2048", WIDE, 128, id="896 tiles, 7 waves of 132 or of 128"),
        pytest.param("gemm_fp8_scaled", "4096x32768x512", WIDE, 132, id="scaled, K is short"),
        pytest.param("grouped_fp8", "4x8192x4096x4096", WIDE, 128, id="3,568 tiles, 28 waves of 132 or of 128"),
        pytest.param("grouped_fp8", "4x8192x4096x1408", WIDE, 132, id="grouped, K is short"),
    ],
)
def test_a_walk_has_as_few_blocks_as_need_no_more_waves(
    kernel: str, problem: str, config: dict[str, int], blocks: int
) -> None:
    found = find(LIBRARY, kernel).kernel
    assert found.grid(found.parse(problem), config, 132) == (blocks, 1, 1)
