"""What each step of tuning was worth, from made trials."""

import pandas as pd

from tilewatch.dashboard.charts.step_by_step import STEPS, Bar, draw, find_bar, tabulate

AXES = [[name, []] for name in ("tile_m", "tile_n", "tile_k", "num_ctas", "group_size_m")]
SWEEP = pd.Series({"axes": AXES})


def trials(*rows: tuple[int, float | None]) -> pd.DataFrame:
    """Of each: the group of rows and the time."""
    tiles = {"param.tile_m": 128, "param.tile_n": 128, "param.tile_k": 128, "param.num_ctas": 1}
    return pd.DataFrame([{**tiles, "param.group_size_m": group, "median_us": time_us} for group, time_us in rows])


def test_a_step_is_the_fastest_timed_config_with_its_values() -> None:
    swept = trials((1, 50.0), (8, None), (8, 30.0), (8, 20.0))
    row_by_row, swizzled = (find_bar(step, swept, SWEEP) for step in STEPS[:2])
    assert row_by_row is not None
    assert swizzled is not None
    assert (row_by_row.time_us, swizzled.time_us) == (50.0, 20.0)
    assert swizzled.config["group_size_m"] == 8
    assert find_bar(STEPS[1], trials((1, 50.0)), SWEEP) is None
    assert find_bar(STEPS[3], swept, SWEEP) is None, "a space without occupancy has no config of that step"


def test_the_guides_tiles_are_a_step_where_they_were_timed() -> None:
    swept = trials((8, 20.0))
    assert find_bar(STEPS[2], swept, SWEEP) is None
    guides = {"param.tile_m": 512, "param.tile_n": 512, "param.tile_k": 512, "param.num_ctas": 8}
    bar = find_bar(STEPS[2], pd.concat([swept, trials((8, 130.0)).assign(**guides)]), SWEEP)
    assert bar is not None
    assert (bar.time_us, bar.config["num_ctas"]) == (130.0, 8)


def test_a_steps_worth_is_against_the_step_above_it_and_a_rival_has_none() -> None:
    bars = [
        Bar("tiles", "gemm_tiled", 100.0, {}, SWEEP),
        Bar("hints", "gemm_nt_fp8", 75.0, {}, SWEEP),
        Bar("DeepGEMM", "deepgemm", 150.0, {}, SWEEP),
    ]
    table = tabulate(bars)
    assert table["worth"].tolist() == ["", "-25.0 %", ""]
    assert table["DeepGEMM's time / its"].tolist() == ["1.50", "2.00", "1.00"]
    (trace,) = draw(bars).data
    assert list(trace.x) == [100.0, 75.0, 150.0]
    assert list(trace.marker.pattern.shape) == ["", "", "/"]
