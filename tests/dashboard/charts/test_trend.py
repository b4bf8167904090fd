"""Figures from made frames: what is on them, without a browser."""

import datetime as dt
import re
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from tilewatch.dashboard.charts import colours, evidence, hover, marks, trend_lines
from tilewatch.dashboard.charts import trend as charts
from tilewatch.dashboard.frames.explanation import RooflinePoint
from tilewatch.dashboard.frames.metrics import METRICS, axis_title

OF_KEY = {metric.key: metric for metric in METRICS}
RATIO, TIME, TFLOPS, OWN, ROOFLINE = (OF_KEY[key] for key in ("ratio", "time_us", "tflops", "own", "roofline"))
NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def point(position: int, **other: Any) -> dict[str, Any]:
    return {
        "run_id": position,
        "sha": f"{position:08x}" + "0" * 32,
        "position": position,
        "subject": "Load <B> through TMA",
        "author": "Kim & Co",
        "committed_at": NOON,
        "left_branch_at": None,
        "origin": "measured",
        "machine": "node-1",
        "measured_at": NOON,
        "device_name": "NVIDIA H200",
        "toolchain": {"driver": "580.82"},
        "toolchain_sha256": "a",
        "implementation": "gemm_fp8",
        "role": "kernel",
        "params": {"tile_m": 64},
        "samples": 21,
        "median_us": 100.0,
        "low_us": 99.0,
        "high_us": 102.0,
        "ratio": 0.9,
        "ratio_low": 0.89,
        "ratio_high": 0.92,
        "baseline": "deepgemm",
        "detail": {},
        "flops": 10**11,
        "bytes": 10**8,
        "work": ["tokens", 4096],
        "rate": None,
        "operator": "gemm_fp8 320x32576x7168",
        "fp8_tflops": 2000.0,
        "bandwidth_gbps": 4000.0,
        "verdict": None,
        "reason": None,
        "quarantined": False,
        "registers": 168,
        **other,
    }


def baseline(position: int, name: str = "deepgemm", **other: Any) -> dict[str, Any]:
    return point(position, implementation=name, role="baseline", params=None, **{"ratio": 1.0, **other})


def frame(*points: dict[str, Any]) -> pd.DataFrame:
    texts = {name: pd.Series([each[name] for each in points], dtype=object) for name in ("verdict", "reason")}
    return pd.DataFrame(points).assign(**texts)


def trend(*points: dict[str, Any], metric: Any = RATIO, **more: Any) -> Any:
    found = frame(*points)
    lines = [*marks.toolchain_changes(found), *marks.node_changes(found)]
    return go.Figure(charts.trend(found, metric, marks=lines, **more))


def hover_text(trace: Any, place: int) -> str:
    """The hover text of a point: the template with the point's own words in their places."""
    words = trace.customdata[place]
    return re.sub(r"%{customdata\[(\d+)\]}", lambda found: str(words[int(found[1])]), trace.hovertemplate)


def named(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def test_a_trend_runs_in_the_order_of_its_rows_and_not_in_time() -> None:
    figure = trend(point(1, measured_at=NOON), point(2, measured_at=NOON - dt.timedelta(days=9)))
    assert list(figure.layout.xaxis.categoryarray) == ["0000000100", "0000000200"]
    assert list(named(figure, "gemm_fp8").x) == ["0000000100", "0000000200"]


def test_the_interval_reaches_from_its_low_to_its_high_end() -> None:
    bar = named(trend(point(1)), "gemm_fp8").error_y
    assert (list(bar.array), list(bar.arrayminus)) == (pytest.approx([0.02]), pytest.approx([0.01]))


def test_more_tflops_are_less_time_so_the_ends_of_the_interval_change_places() -> None:
    values = TFLOPS.values(pd.DataFrame([point(1)])).iloc[0]
    assert values["value"] == pytest.approx(1000)
    assert values["low"] == pytest.approx(1000 * 100 / 102)
    assert values["high"] == pytest.approx(1000 * 100 / 99)


@pytest.mark.parametrize(("flops", "moved", "percent"), [(10**11, 10**8, 50.0), (10**9, 2 * 10**8, 50.0)])
def test_the_roofline_is_the_longer_of_computing_and_moving(flops: int, moved: int, percent: float) -> None:
    """10^11 FLOP take 50 us at 2000 TFLOP/s; 2 x 10^8 bytes take 50 us at 4000 GB/s; both ran in 100 us."""
    values = ROOFLINE.values(pd.DataFrame([point(1, flops=flops, bytes=moved)]))
    assert values.iloc[0]["value"] == pytest.approx(percent)


@pytest.mark.parametrize(
    ("rate", "operator", "percent"),
    [
        ({"type": "float16", "tflops": 1000.0}, "gemm_fp8 1x1", 100.0),
        (None, "gemm_nt 1x1-bfloat16", 100.0),
        (None, "gemm_nn 1x1-tf32", 200.0),
        (None, "attention 1x1", None),
    ],
)
def test_the_roofline_is_of_the_type_as_stored_or_else_as_named(
    rate: Any, operator: str, percent: float | None
) -> None:
    """10^11 FLOP take 100 us at 1000 TFLOP/s; sweeps of before 2026-11-22 have no stored rate."""
    values = ROOFLINE.values(pd.DataFrame([point(1, rate=rate, operator=operator)]))["value"]
    assert values.isna().all() if percent is None else values.tolist() == [pytest.approx(percent)]


def test_where_memory_bounds_a_problem_its_type_does_not_matter() -> None:
    values = ROOFLINE.values(pd.DataFrame([point(1, operator="softmax 1x1", flops=10**9, bytes=2 * 10**8)]))
    assert values["value"].tolist() == [pytest.approx(50.0)]


def test_an_owner_s_rate_names_its_unit_on_the_axis_where_it_has_one() -> None:
    assert axis_title(OWN, pd.DataFrame([point(1), point(2)])) == "tokens/s (median time)"
    mixed = pd.DataFrame([point(1), point(2, work=["images", 1])])
    assert axis_title(OWN, mixed) == OWN.axis


def test_a_problem_without_stated_work_has_no_owner_s_rate() -> None:
    assert OWN.values(pd.DataFrame([point(1, work=None)]))["value"].isna().all()


def test_a_gpu_without_datasheet_rates_has_no_roofline() -> None:
    values = ROOFLINE.values(pd.DataFrame([point(1, fp8_tflops=None)]))
    assert values["value"].isna().all()


@pytest.mark.parametrize("tflops", [None, 1979.0])
def test_a_roofline_of_one_point_with_a_known_bandwidth_has_its_limit(tflops: float | None) -> None:
    figure = evidence.roofline([RooflinePoint("one", 10**9, 10**7, 100.0)], tflops, 4800.0)
    limit, measured = figure.data
    assert (limit.x[0], limit.x[-1]) == (50.0, 200.0 if tflops is None else pytest.approx(2 * 1979.0e3 / 4800.0))
    assert list(measured.x) == [100.0]


def test_many_points_have_a_band_instead_of_bars_and_their_baselines_no_marks() -> None:
    line = [
        each for i in range(trend_lines.PLAIN + 1) for each in (point(i), baseline(i, ratio_low=0.98, ratio_high=1.01))
    ]
    figure = trend(*line)
    kernel, rival = named(figure, "gemm_fp8"), named(figure, "deepgemm")
    assert (kernel.mode, rival.mode) == ("lines+markers", "lines")
    assert kernel.error_y.array is None
    band = named(figure, "gemm_fp8, 95 %")
    half = len(band.x) // 2
    assert list(band.x[:half]) == list(band.x[half:][::-1]) == list(kernel.x)
    assert (set(band.y[:half]), set(band.y[half:])) == ({0.92}, {0.89})
    assert (band.hoverinfo, band.showlegend, band.legendgroup) == ("skip", False, kernel.legendgroup)


def test_no_number_goes_to_the_browser_as_bytes_which_plotly_draws_twice() -> None:
    few = trend(point(0), baseline(0), point(1, verdict="regression", reason="slower"))
    line = [each for i in range(trend_lines.PLAIN + 1) for each in (point(i), baseline(i))]
    for figure in (few, trend(*line)):
        assert '"bdata"' not in figure.to_json()


def test_of_many_marks_only_some_are_drawn_unless_one_of_them_is_a_warning() -> None:
    line = [point(i) for i in range(trend_lines.PLAIN + 1)]
    assert trend(*line).data[1].marker.maxdisplayed == trend_lines.MOST_MARKS
    assert trend(*line[:-1], point(trend_lines.PLAIN, quarantined=True)).data[1].marker.maxdisplayed is None
    assert trend(*line[:3]).data[0].marker.maxdisplayed is None


def test_a_point_without_an_interval_is_left_out_of_the_band_and_a_line_without_any_has_none() -> None:
    line = [point(i, ratio_low=None if i == 3 else 0.89) for i in range(trend_lines.PLAIN + 1)]
    assert "0000000300" not in named(trend(*line), "gemm_fp8, 95 %").x
    registers = next(metric for metric in METRICS if metric.key == "registers")
    assert [trace.name for trace in trend(*line, metric=registers).data] == ["gemm_fp8"]


def test_a_point_of_a_quarantined_gpu_keeps_its_mark_among_many_of_a_baseline() -> None:
    ill = 7
    line = [each for i in range(trend_lines.PLAIN + 1) for each in (point(i), baseline(i, quarantined=i == ill))]
    marked = named(trend(*line), "deepgemm")
    assert marked.mode == "lines+markers"
    assert [place for place, symbol in enumerate(marked.marker.symbol) if symbol == trend_lines.QUARANTINED] == [ill]


def test_every_point_carries_its_run_and_only_the_words_that_others_do_not_share() -> None:
    template, carried = hover.points_hover(frame(point(1), point(2)).assign(value=0.9, low=0.8, high=1.0), RATIO)
    assert [list(each) for each in carried] == [
        [1, "0000000100 Load &lt;B&gt; through TMA, Kim &amp; Co, 2026-11-20"],
        [2, "0000000200 Load &lt;B&gt; through TMA, Kim &amp; Co, 2026-11-20"],
    ]
    assert "0.900x DeepGEMM</b> (95 %: 0.800x to 1.000x)<br>median 100.0 us of 21 samples" in template


def test_a_commit_cannot_write_a_place_into_the_template() -> None:
    template, _ = hover.points_hover(
        frame(point(1, subject="Read %{customdata[0]}")).assign(value=1, low=1, high=1), RATIO
    )
    assert "Read %&#123;customdata[0]}" in template


def test_recorded_points_look_different_and_say_so_in_the_legend() -> None:
    figure = trend(point(1), point(1, origin="recorded", machine="lab-7"))
    here, recorded = named(figure, "gemm_fp8"), named(figure, "gemm_fp8, recorded on lab-7")
    assert here.marker.symbol != recorded.marker.symbol
    assert here.line.dash != recorded.line.dash
    assert here.line.color == recorded.line.color


def test_recordings_of_several_machines_share_a_row_of_the_legend() -> None:
    lines = [point(i, origin="recorded", machine=f"node-{i}, NVIDIA H200") for i in range(3)]
    drawn = [trace for trace in trend(*lines).data if trace.name == "gemm_fp8, recorded on 3 machines"]
    assert [trace.showlegend for trace in drawn] == [None, False, False]


def test_an_implementation_keeps_its_colour_whatever_is_beside_it() -> None:
    alone = named(trend(baseline(1, "cublaslt")), "cublaslt")
    among = named(trend(baseline(1, "triton"), point(1), baseline(1), baseline(1, "cublaslt")), "cublaslt")
    assert alone.line.color == among.line.color


def test_each_version_of_a_baseline_has_a_line_of_its_own() -> None:
    """The environment's version goes on as the installed one at commit 3: it is one line, and then has its colour."""
    old, new = {"detail": {"version": "0.1.0"}}, {"detail": {"version": "0.2.5"}}
    environment = [baseline(i, "deepgemm 0.2.5", **new) for i in (1, 2)]
    figure = trend(baseline(1, **old), baseline(2, **old), *environment, baseline(3, **new), point(1), point(2))
    assert [trace.name for trace in figure.data] == ["deepgemm 0.1.0", "deepgemm 0.2.5", "gemm_fp8"]
    assert len(named(figure, "deepgemm 0.2.5").x) == 3
    before = trend(baseline(1, **old), environment[0])
    colour = {trace.name: trace.line.color for trace in before.data}
    assert colour["deepgemm 0.1.0"] == named(figure, "deepgemm 0.2.5").line.color == colours.BASELINES["deepgemm"]
    assert colour["deepgemm 0.2.5"] != colours.BASELINES["deepgemm"]


def test_the_installed_version_in_an_environment_too_is_a_line_beside_it() -> None:
    torch = {"detail": {"version": "2.11.0+cu130"}}
    figure = trend(baseline(1, "cublaslt", **torch), baseline(1, "cublaslt torch 2.11.0", **torch))
    assert [trace.name for trace in figure.data] == ["cublaslt torch 2.11.0", "cublaslt torch 2.11.0, environment"]


def test_a_change_of_the_toolchain_is_a_line_between_its_two_commits() -> None:
    newer = {"toolchain": {"driver": "590.11"}, "toolchain_sha256": "b"}
    figure = trend(point(1), point(2), point(3, **newer), metric=TIME)
    assert [line.x0 for line in figure.layout.shapes] == [1.5]
    assert [note.text for note in figure.layout.annotations] == ["driver 580.82 → 590.11"]


def test_another_machine_with_another_driver_is_not_a_change_of_the_toolchain() -> None:
    elsewhere = {"machine": "node-2", "toolchain": {"driver": "590.11"}, "toolchain_sha256": "b"}
    assert not list(marks.toolchain_changes(frame(point(1), point(2, **elsewhere))))


def test_a_single_point_stands_in_a_range_of_its_own_size() -> None:
    figure = trend(point(1), metric=TIME)
    low, high = figure.layout.yaxis.range
    assert 90 < low < 99
    assert 102 < high < 110
    assert list(figure.layout.xaxis.range) == [-0.5, 0.5]


def test_the_axis_says_which_way_is_faster() -> None:
    assert trend(point(1)).layout.yaxis.title.text == "DeepGEMM's time / this time<br>(over 1: faster than DeepGEMM)"


def test_a_ratio_names_the_baseline_that_it_is_to() -> None:
    figure = trend(point(1, baseline="attention_cudnn"), baseline(1, "attention_cudnn", baseline="attention_cudnn"))
    assert figure.layout.yaxis.title.text == "cuDNN's time / this time<br>(over 1: faster than cuDNN)"
    assert "0.900x cuDNN" in hover_text(figure.data[0], 0)
    assert not any("DeepGEMM" in hover_text(trace, 0) for trace in figure.data)


def test_another_main_baseline_is_a_line_and_no_name_on_the_axis() -> None:
    both = frame(point(1), point(2, baseline="copy"))
    (mark,) = marks.baseline_changes(both)
    assert (mark.before, mark.after, mark.words) == (1, 2, "ratio to DeepGEMM → a copy")
    assert go.Figure(charts.trend(both, RATIO)).layout.yaxis.title.text.startswith("the main baseline's time")


def test_a_judged_regression_wears_a_mark_and_its_reason() -> None:
    figure = trend(point(1), point(2, verdict="regression", reason="9 % slower"))
    assert list(named(figure, "regression").x) == ["0000000200"]
    kernel = named(figure, "gemm_fp8")
    assert hover_text(kernel, 1).endswith("<br>regression: 9 % slower<extra></extra>")
    assert "regression" not in hover_text(kernel, 0)


def test_the_hover_shortens_a_long_subject() -> None:
    text = hover_text(named(trend(point(1, subject="Raise the tile" + 30 * " and the next")), "gemm_fp8"), 0)
    assert "Raise the tile and the next and" in text
    assert 3 < text.count(" and the next") < 6
    assert "…, " in text


def test_the_hover_names_commit_date_machine_and_driver_and_no_markup_of_a_subject() -> None:
    words = hover_text(named(trend(point(1)), "gemm_fp8"), 0)
    for part in (
        "0000000100",
        "Load &lt;B&gt; through TMA, Kim &amp; Co, 2026-11-20",
        "measured 2026-11-20 12:00 UTC",
        "node-1",
        "driver 580.82",
        "0.900x",
    ):
        assert part in words


def test_the_hover_of_a_baseline_names_its_commit_without_the_subject() -> None:
    words = hover_text(named(trend(point(1), baseline(1, "cublas")), "cublas"), 0)
    assert "0000000100, 2026-11-20" in words
    assert "Load" not in words
    assert "config" not in words


@pytest.mark.parametrize(
    ("machine", "said"),
    [("node-1, NVIDIA B200", "on node-1, NVIDIA B200, driver"), ("node-1", "on node-1, NVIDIA B200, driver")],
)
def test_the_hover_names_a_gpu_once(machine: str, said: str) -> None:
    words = hover_text(named(trend(point(1, machine=machine, device_name="NVIDIA B200")), "gemm_fp8"), 0)
    assert said in words
    assert words.count("NVIDIA B200") == 1


def test_points_without_a_ratio_are_left_out_of_the_ratio() -> None:
    figure = trend(point(1, ratio=None, ratio_low=None, ratio_high=None), point(2))
    assert list(named(figure, "gemm_fp8").x) == ["0000000200"]


def test_a_series_that_moved_to_another_machine_has_a_dotted_line() -> None:
    figure = trend(point(1), point(2), point(3, machine="node-2"), metric=TIME)
    assert [(line.x0, line.line.dash) for line in figure.layout.shapes] == [(1.5, "dot")]
    assert [note.text for note in figure.layout.annotations] == ["node-1 → node-2"]


def test_runs_that_go_back_and_forth_between_machines_have_no_line() -> None:
    points = [point(i, machine=f"node-{i % 2}") for i in range(2 * marks.MOST_NODE_CHANGES)]
    assert not marks.node_changes(frame(*points))


def test_a_confirmed_change_begins_a_level_in_the_colour_of_its_direction() -> None:
    level = {"regression_id": 7, "direction": "regression", "state": "new", "size": 0.085}
    level |= {"good_position": 1, "bad_position": 2}
    figure = go.Figure(charts.trend(frame(point(1), point(2)), TIME, marks=marks.level_changes(pd.DataFrame([level]))))
    assert figure.layout.shapes[0].line.color == colours.WORSE
    assert figure.layout.annotations[0].text == "▼ +8.5 % time #7"


def test_a_rewrite_is_enclosed_by_two_marks_of_its_own_dash() -> None:
    """Commits 2 and 3 left the branch, and 4 replaced them."""
    points = frame(*(point(number, left_branch_at=NOON if number in (2, 3) else None) for number in (1, 2, 3, 4)))
    lines = marks.rewrites(points)
    assert [(each.before, each.after, each.words) for each in lines] == [
        (1, 2, "before the rewrite"),
        (3, 4, "history rewritten"),
    ]
    figure = go.Figure(charts.trend(points, TIME, marks=lines))
    assert [(shape.x0, shape.line.dash) for shape in figure.layout.shapes] == [(0.5, "longdash"), (2.5, "longdash")]
    assert [each.text for each in figure.layout.annotations] == ["before the rewrite", "history rewritten"]
    assert marks.rewrites(frame(point(1), point(2))) == []


def test_a_mark_outside_of_the_commits_in_view_is_left_out() -> None:
    for outside in (marks.Mark(0, 1, "driver 1 → 2"), marks.Mark(2, 3, "driver 1 → 2")):
        assert not charts.trend(frame(point(1), point(2)), TIME, marks=[outside])["layout"]["shapes"]


def test_a_change_at_a_commit_that_this_series_did_not_measure_lies_between_those_that_it_did() -> None:
    figure = go.Figure(charts.trend(frame(point(1), point(9)), TIME, marks=[marks.Mark(1, 5, "▲")]))
    (line,) = figure.layout.shapes
    assert line.x0 == line.x1 == 0.5


def test_no_kernel_has_the_colour_of_a_baseline_while_others_are_free() -> None:
    names = [f"gemm_fp8 320x32576x7168 on {model}" for model in ("h100", "h200", "b200", "gb200", "a100")]
    figure = go.Figure(charts.trends({name: frame(point(1)) for name in names}, TIME))
    assert not {trace.line.color for trace in figure.data} & set(colours.BASELINES.values())


def test_along_dates_the_points_stand_at_their_commits_dates() -> None:
    figure = trend(point(1), point(2, committed_at=NOON + dt.timedelta(days=3)), along="dates")
    assert figure.layout.xaxis.type == "date"
    assert (figure.data[0].x[1] - figure.data[0].x[0]).days == 3


def test_simulated_and_quarantined_points_look_different() -> None:
    figure = trend(point(1), point(2, quarantined=True), point(2, origin="simulated"))
    assert list(named(figure, "gemm_fp8").marker.symbol) == ["circle", "x-open"]
    assert named(figure, "gemm_fp8, simulated on node-1").marker.symbol == "square-open"
    assert [", while this GPU was quarantined" in hover_text(named(figure, "gemm_fp8"), place) for place in (0, 1)] == [
        False,
        True,
    ]


def test_a_static_fact_is_a_trend_without_intervals_and_without_baselines() -> None:
    registers = next(metric for metric in METRICS if metric.key == "registers")
    figure = trend(point(1), baseline(1, registers=None), metric=registers)
    assert [trace.name for trace in figure.data] == ["gemm_fp8"]
    assert list(figure.data[0].y) == [168]
    assert "95 %" not in hover_text(figure.data[0], 0)


def test_a_few_series_share_their_commits_and_show_kernels_alone() -> None:
    a, b = frame(point(1), baseline(1)), frame(point(2, ratio=1.1), point(1, ratio=1.2))
    figure = go.Figure(charts.trends({"gemm on h200": a, "gemm on b200": b}, RATIO))
    assert {trace.name for trace in figure.data} == {"gemm on h200", "gemm on b200"}
    assert list(figure.layout.xaxis.categoryarray) == ["0000000100", "0000000200"]


def test_a_branch_stands_beside_the_main_line_in_a_look_of_its_own() -> None:
    branch = frame(
        point(2, sha="beef" + "0" * 36, ratio=1.5, ratio_low=1.4, ratio_high=1.6, verdict="regression", reason="slower")
    )
    figure = trend(point(1), point(2), point(3), branches={"faster": branch})
    main, beside = named(figure, "gemm_fp8"), named(figure, "branch faster")
    assert list(main.x) == ["0000000100", "0000000200", "0000000300"], "its line passes the branch by"
    assert list(beside.x) == ["beef000000"]
    assert (beside.marker.symbol, beside.marker.color) == (trend_lines.BRANCH, beside.line.color)
    assert beside.marker.color != main.line.color
    assert list(figure.layout.xaxis.categoryarray)[1:3] in (
        ["0000000200", "beef000000"],
        ["beef000000", "0000000200"],
    )
    assert figure.layout.yaxis.range[1] > 1.6
    assert [trace.name for trace in figure.data] == ["gemm_fp8", "branch faster"], "a branch has no verdict"


def test_another_toolchain_stands_at_the_same_commit_and_is_called_so() -> None:
    figure = trend(point(1), point(2), branches={"under next": frame(point(2, ratio=1.2))})
    assert list(named(figure, "under next").x) == ["0000000200"]
    assert list(figure.layout.xaxis.categoryarray) == ["0000000100", "0000000200"]


def test_a_few_branches_have_colours_that_differ() -> None:
    names = [f"branch-{number}" for number in range(len(colours.OTHERS))]
    figure = trend(point(1), branches={name: frame(point(2)) for name in names})
    assert {named(figure, f"branch {name}").line.color for name in names} == set(colours.OTHERS)


def test_eight_series_in_one_chart_have_colours_that_differ() -> None:
    figure = go.Figure(charts.trends({f"gemm on gpu{i}": frame(point(1)) for i in range(8)}, RATIO))
    assert len({trace.line.color for trace in figure.data}) == 8


WHOLE = {"xaxis": {"type": "category", "range": [0, 9]}, "yaxis": {"range": [0, 1]}, "height": 500}


@pytest.mark.parametrize(
    ("asked", "x", "y"),
    [
        ("a1,-0.5,2,0.83,1e-7", [-0.5, 2.0], [0.83, 1e-7]),
        ("a1,2026-11-18 03:00,2026-11-20,1,2", ["2026-11-18 03:00", "2026-11-20"], [1.0, 2.0]),
        ("b2,-0.5,2,0.83,1", [0, 9], [0, 1]),  # of another chart
        ("a1,-0.5,2,0.83", [0, 9], [0, 1]),
        ("a1,-0.5,2,nan,1", [0, 9], [0, 1]),
        ("a1,-0.5,2,1,Infinity", [0, 9], [0, 1]),
        ("", [0, 9], [0, 1]),
    ],
)
def test_an_address_names_a_part_of_one_figure_and_all_else_is_drawn_as_in_the_whole_one(
    asked: str, x: list[object], y: list[object]
) -> None:
    drawn = charts.zoom({"data": [1], "layout": WHOLE}, "a1", asked)
    axes = {"xaxis": {"type": "category", "range": x}, "yaxis": {"range": y}}
    assert drawn == {"data": [1], "layout": {**axes, "height": 500, "meta": "a1"}}
    assert WHOLE["xaxis"] == {"type": "category", "range": [0, 9]}, "the cached figure is not changed"
