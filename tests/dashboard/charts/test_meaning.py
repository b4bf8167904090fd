"""Units and colours mean the same on every figure: us, plus is faster for speed, teal is good, orange-red is bad."""

import colorsys
import datetime as dt
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.dashboard.fixtures.snapshots import pair, series_row
from tilewatch import dashboard
from tilewatch.baselines import BY_NAME
from tilewatch.dashboard.charts import colours, evidence, hover, marks, search_space
from tilewatch.dashboard.charts.sorted_changes import draw_sorted_changes
from tilewatch.dashboard.frames import metrics
from tilewatch.dashboard.text import count_decimals, rate_text, time_text
from tilewatch.dashboard.widgets import badges
from tilewatch.db.page_reads.evidence import SamplesRow
from tilewatch.db.page_reads.replays import ReplayRow

CONFIG = Path(dashboard.__file__).parent / ".streamlit" / "config.toml"
NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
METRICS = {metric.key: metric for metric in metrics.METRICS}
POINTS = pd.DataFrame(
    {
        "median_us": [100.0],
        "low_us": [80.0],
        "high_us": [125.0],
        "flops": [10**11],
        "bytes": [10**8],
        "work": [["tokens", 4096]],
        "rate": [{"type": "float8", "tflops": 2000.0}],
        "operator": ["gemm_fp8 320x32576x7168"],
        "fp8_tflops": [2000.0],
        "bandwidth_gbps": [4000.0],
    }
)


def is_teal(colour: str) -> bool:
    return 0.4 < hue(colour) < 0.55


def is_orange_red(colour: str) -> bool:
    return hue(colour) < 0.07


def hue(colour: str) -> float:
    return colorsys.rgb_to_hsv(*(part / 255 for part in bytes.fromhex(colour.removeprefix("#"))))[0]


def style_colour(style: str) -> str:
    return style.removeprefix("color: ")


def test_good_is_teal_and_bad_is_orange_red_wherever_a_colour_says_so() -> None:
    assert is_teal(colours.BETTER)
    assert is_orange_red(colours.WORSE)
    assert is_teal(colours.VERDICTS["improvement"])
    assert is_orange_red(colours.VERDICTS["regression"])
    slowest, fastest = colours.SLOWER_TO_FASTER[0][1], colours.SLOWER_TO_FASTER[-1][1]
    assert is_orange_red(slowest)
    assert is_teal(fastest)
    good, bad = colours.GOOD_TO_BAD[0][1], colours.GOOD_TO_BAD[-1][1]
    assert is_teal(good)
    assert is_orange_red(bad)


def test_words_of_states_and_changes_are_coloured_by_what_they_mean() -> None:
    assert is_orange_red(style_colour(badges.word_colour("regression")))
    assert is_teal(style_colour(badges.word_colour("improvement")))
    assert is_orange_red(style_colour(badges.word_colour("failed")))
    assert is_orange_red(style_colour(badges.change_colour("slower")))
    assert is_teal(style_colour(badges.change_colour("faster")))
    for finding in ("not judged yet", "not confirmed", "identical code", "within noise", ""):
        assert badges.change_colour(finding) == ""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_are_readable_on_both_backgrounds_of_their_theme(theme: str) -> None:
    """4.5 is what WCAG 2 asks of words (AA). Markdown and tables have one colour for one meaning."""
    themes = tomllib.loads(CONFIG.read_text())["theme"]
    of_markdown = {name: themes[theme][f"{name}TextColor"] for name in colours.TEXT[theme]}
    assert of_markdown == colours.TEXT[theme]
    for word in (themes[theme]["textColor"], themes[theme]["primaryColor"], *of_markdown.values()):
        for ground in ("backgroundColor", "secondaryBackgroundColor"):
            assert colours.contrast(word, themes[theme][ground]) >= 4.5, f"{word} on {ground}"


def test_a_table_has_the_words_of_the_theme_that_a_visitor_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of one theme have a contrast of 2.4 to 3.5 on the other's background."""
    for theme in ("light", "dark"):
        monkeypatch.setattr(badges.st, "context", SimpleNamespace(theme=SimpleNamespace(type=theme)))
        assert style_colour(badges.word_colour("regression")) == colours.TEXT[theme]["red"]
        assert style_colour(badges.change_colour("faster")) == colours.TEXT[theme]["green"]


def test_a_regression_points_down_and_an_improvement_up() -> None:
    assert colours.VERDICT_MARKS == {"regression": "triangle-down-open", "improvement": "triangle-up-open"}
    level = {"regression_id": 7, "state": "new", "good_position": 1, "bad_position": 2}
    levels = [{**level, "direction": "regression", "size": 0.085}, {**level, "direction": "improvement", "size": -0.05}]
    slower, faster = marks.level_changes(pd.DataFrame(levels))
    assert slower.words.startswith("▼ +8.5 % time")
    assert faster.words.startswith("▲ -5.0 % time")
    assert is_orange_red(slower.colour)
    assert is_teal(faster.colour)


def test_a_lower_speed_is_orange_red_among_the_differences_and_a_higher_one_teal() -> None:
    before = [series_row(number, 1.0, problem=f"{number}x1x1") for number in (1, 2, 3)]
    after = [
        series_row(10 + number, ratio, problem=f"{number}x1x1") for number, ratio in ((1, 0.8), (2, 1.25), (3, 1.001))
    ]
    points = draw_sorted_changes(pair(before, after).assign(where="h200"), "speed").data[0]
    colour = {name.split()[1]: colour for name, colour in zip(points.y, points.marker.color, strict=True)}
    assert is_orange_red(colour["1x1x1"])
    assert is_teal(colour["2x1x1"])
    assert colour["3x1x1"] == colours.UNCERTAIN


def test_a_launch_of_a_replay_is_orange_red_when_the_new_cubin_is_slower() -> None:
    row = ReplayRow(
        axis="commit",
        good_sha="a" * 40,
        bad_sha="b" * 40,
        good_code_sha256="a",
        bad_code_sha256="b",
        good_toolchain=None,
        bad_toolchain=None,
        good_us=[100.0, 100.0, 100.0],
        bad_us=[104.0, 96.0, 100.0],
        failure=None,
        host="n1",
        gpu_uuid="GPU-1",
        origin="measured",
        at=NOON,
    )
    slower, faster, equal = evidence.replay(row.good_us, row.bad_us).data
    assert is_orange_red(slower.line.color)
    assert is_teal(faster.line.color)
    assert equal.line.color == colours.UNCERTAIN
    assert (list(slower.x), list(slower.y)) == (["old cubin", "new cubin"], [100.0, 104.0])
    assert "us, one launch" in slower.hovertemplate


def test_times_are_written_in_us() -> None:
    assert time_text(1234.56) == "1,234.6 us"
    assert METRICS["time_us"].write(98.76) == "98.8 us"
    assert METRICS["time_us"].axis == "median time, us"


def test_a_hover_of_a_series_has_its_time_in_us_and_its_interval_the_right_way_round() -> None:
    (row,) = pair([series_row(1, 1.0)], [series_row(2, 0.8)]).to_dict("records")
    lines = hover.series_lines(row)
    assert "median 125.0 us (123.8 us to 126.2 us)" in lines
    assert "0.80x DeepGEMM (0.792 to 0.808)" in lines
    assert "ours +25.0 % time, DeepGEMM +0.0 % time" in lines, "whose time changed"
    assert any(
        line.startswith("+25.0 % time, slower beside the baseline since 0000000000 (+22.0 % to +28.0 %)")
        for line in lines
    )


def test_a_hover_of_a_trend_has_its_time_in_us() -> None:
    about: dict[str, Any] = {
        **{"run_id": 1, "sha": "a" * 40, "subject": "Tile", "author": None, "committed_at": NOON},
        **{"implementation": "gemm", "baseline": "deepgemm", "value": 0.9, "low": 0.8, "high": 1.0, "role": "kernel"},
        **{"median_us": 100.0, "samples": 21, "params": {}, "origin": "measured"},
        **{"machine": "n1", "device_name": "H200"},
        **{"toolchain": {}, "quarantined": False, "measured_at": NOON, "verdict": None, "reason": None},
    }
    template, _ = hover.points_hover(pd.DataFrame([about]), METRICS["ratio"])
    assert "0.900x DeepGEMM</b> (95 %: 0.800x to 1.000x)<br>median 100.0 us of 21 samples" in template


def test_hovers_of_a_sweep_and_of_raw_samples_are_in_us() -> None:
    both = search_space.pair_trials(
        pd.DataFrame([{"config_id": 1, "outcome": "timed", "median_us": 100.0, "failure": None, "param.tile_m": 64}]),
        pd.DataFrame([{"config_id": 1, "outcome": "timed", "median_us": 110.0, "failure": None, "param.tile_m": 64}]),
    )
    (words,) = search_space.shift_figure(both, []).data[0].customdata
    assert words.endswith("100.0 → 110.0 us, +10.0 %")
    row = SamplesRow(9.05, 9.0, 9.1, None, None, None, None, "gemm", "kernel", {}, {}, 1, [9.0, 9.1], [11.0])
    kept, throttled = evidence.samples([row]).data
    assert kept.hovertemplate == "round %{x}: %{y:,.2f} us"
    assert (list(throttled.x), list(throttled.y), throttled.marker.symbol) == ([3], [11.0], "x")
    assert evidence.distribution(row, None).data[0].hovertemplate == "%{x} us: %{y:.0f} %"


def test_the_clock_is_in_mhz_and_the_power_in_watts() -> None:
    readings = [{"when": "before", "unix_s": 5.0, "sm_clock_mhz": 1980, "power_w": 600, "temperature_c": 40}]
    clock, power = evidence.telemetry(readings).data
    assert (list(clock.y), clock.hovertemplate) == ([1980], "%{y:,.0f} MHz, %{customdata}")
    assert (list(power.y), power.hovertemplate) == ([600], "%{y:,.0f} W, %{customdata}")


@pytest.mark.parametrize(
    ("metric", "value", "low", "high"),
    [
        ("time_us", 100.0, 80.0, 125.0),
        ("tflops", 1000.0, 800.0, 1250.0),
        ("gbps", 1000.0, 800.0, 1250.0),
        ("own", 40.96e6, 32.768e6, 51.2e6),
        ("roofline", 50.0, 40.0, 62.5),
    ],
)
def test_a_metric_has_its_unit_and_the_lower_end_of_its_interval_is_the_lower(
    metric: str, value: float, low: float, high: float
) -> None:
    """100 GFLOP in 100 us are 1000 TFLOP/s; at 2000 TFLOP/s they take 50 us, and 100 MB at 4000 GB/s take 25 us.
    4,096 tokens in 100 us are 40.96 million a second."""
    (row,) = METRICS[metric].values(POINTS).to_dict("records")
    assert row == {name: pytest.approx(number) for name, number in (("value", value), ("low", low), ("high", high))}


@pytest.mark.parametrize(("flops", "written"), [(0, "1,000 GB/s"), (10**9, "1,000 GB/s"), (10**11, "1,000 TFLOP/s")])
def test_a_kernel_that_the_memory_limits_is_told_by_what_it_moves(flops: int, written: str) -> None:
    """At 10 operations per byte its TFLOP/s would be a 10 beside the 1,000 of a product."""
    assert rate_text(flops, 10**8, 100.0) == written


def test_a_low_rate_is_not_written_as_zero() -> None:
    assert (rate_text(0, 32_768, 163.0), rate_text(0, 999_500, 100.0)) == ("0.20 GB/s", "9.99 GB/s")
    assert (count_decimals([10.0, 4_800.0]), count_decimals([0.2, 4_800.0]), count_decimals([])) == (0, 2, 0)


def test_a_kernel_that_moves_bytes_is_held_against_the_memory_s_bandwidth() -> None:
    """800 MB at 4000 GB/s take 200 us, which is longer than computing."""
    points = POINTS.assign(bytes=8 * 10**8, median_us=400.0)
    assert METRICS["roofline"].values(points)["value"].tolist() == [pytest.approx(50.0)]


@pytest.mark.parametrize(
    "together",
    [
        ("deepgemm", "deepgemm_as_called", "cublaslt"),
        ("cublas", "cublas_per_group", "deepgemm"),
        ("attention_cudnn", "attention_flash"),
        *(("copy", name) for name in BY_NAME if name.startswith("torch_")),
    ],
    ids=" ".join,
)
def test_the_baselines_of_one_kernel_have_a_colour_each(together: tuple[str, ...]) -> None:
    assert len({colours.colour_of(name, "baseline") for name in together}) == len(together)


@pytest.mark.parametrize(
    ("key", "text", "unit"),
    [
        ("ratio", "1.234x", "time"),
        ("time_us", "1.2 us", "us"),
        ("tflops", "1.23 TFLOP/s", "TFLOP/s"),
        ("gbps", "1.23 GB/s", "GB/s"),
        ("own", "1.23 per s", "per second"),
        ("roofline", "1.2 %", "%"),
        ("registers", "1", "registers"),
        ("stack_bytes", "1 B", "bytes"),
        ("shared_bytes", "1 B", "bytes"),
        ("code_bytes", "1 B", "bytes"),
        ("compile_s", "1.2 s", ", s"),
    ],
)
def test_a_metric_is_written_in_the_unit_of_its_axis(key: str, text: str, unit: str) -> None:
    metric = METRICS[key]
    assert metric.write(1.234) == text
    assert unit in metric.axis


def test_every_metric_that_is_not_a_counter_has_its_unit_tested() -> None:
    assert {key for key, metric in METRICS.items() if not metric.label.startswith("Counter: ")} == {
        "ratio",
        "time_us",
        "tflops",
        "gbps",
        "own",
        "roofline",
        "registers",
        "stack_bytes",
        "shared_bytes",
        "code_bytes",
        "compile_s",
    }
