"""Where did it move: over GPU models and over shapes, from made pairs."""

from typing import Any

import pandas as pd

from tilewatch.dashboard.charts import changes_by_shape

ARCHS = {"h100": "sm_90", "h200": "sm_90", "b200": "sm_100"}


def pair(gpu_model: str, change: float, problem: str = "128x256x512", **other: Any) -> dict[str, Any]:
    return {
        "kernel": "gemm_fp8",
        "problem": problem,
        "gpu_model": gpu_model,
        "gpu_name": f"NVIDIA {gpu_model.upper()}",
        "arch": ARCHS[gpu_model],
        "change": change,
        "finding": ("faster" if change < 0 else "slower") if abs(change) > 0.01 else "within noise",
        **other,
    }


def reading(*pairs: dict[str, Any]) -> str:
    return str(changes_by_shape.list_moved(pd.DataFrame(pairs)).iloc[0]["where"])


def test_a_change_on_every_gpu_model_is_the_algorithm() -> None:
    assert reading(pair("h100", -0.1), pair("h200", -0.1), pair("b200", -0.1)) == "everywhere: the algorithm"


def test_a_change_on_all_of_one_architecture_is_its_code_generation() -> None:
    assert reading(pair("h100", -0.1), pair("h200", -0.1), pair("b200", 0.0)) == "sm_90 alone: its code generation"


def test_a_change_on_one_gpu_model_of_an_architecture_is_not_its_code() -> None:
    words = reading(pair("h100", -0.1), pair("h200", 0.0), pair("b200", 0.0))
    assert words == "h100 alone, not all of sm_90: its node, its GPU or noise"


def test_one_gpu_model_can_tell_nothing_of_architectures() -> None:
    assert reading(pair("h100", -0.1)) == "measured on one GPU model only"


def test_slower_comes_before_faster_and_the_worst_first() -> None:
    table = changes_by_shape.list_moved(
        pd.DataFrame([pair("h100", -0.3), pair("h100", 0.05, "1x1x1"), pair("h100", 0.2, "2x2x2"), pair("b200", 0.0)])
    )
    assert table["problem"].tolist() == ["2x2x2", "1x1x1", "128x256x512"]
    assert table.iloc[2]["b200"] == "≈ +0.0 %"


def test_a_problem_stands_at_its_n_and_m_as_large_as_its_k() -> None:
    pairs = [pair("h100", -0.1), pair("h200", 0.1), pair("h200", 0.3), pair("h100", 0.0, "64x64x65536")]
    marks = changes_by_shape.shape_map(pd.DataFrame(pairs)).data[0]
    assert (list(marks.x), list(marks.y)) == ([256, 64], [128, 64])
    assert marks.marker.size[1] > marks.marker.size[0]
    assert marks.text[0] == "+10.0 %"
    assert "NVIDIA H100: -10.0 %" in marks.customdata[0]


def test_a_difference_that_is_not_judged_is_named_and_has_the_colour_of_none() -> None:
    pairs = pd.DataFrame([pair("h100", 0.1, finding="not judged yet"), pair("h200", 0.0)])
    marks = changes_by_shape.shape_map(pairs).data[0]
    assert (list(marks.marker.color), marks.text[0]) == ([0.0], "+5.0 %")
    assert "NVIDIA H100: +10.0 % (not judged yet)" in marks.customdata[0]
    assert changes_by_shape.list_moved(pairs).iloc[0]["h100"] == "+10.0 % not judged yet"


def test_only_problems_that_are_a_shape_have_a_place_whatever_their_type_is() -> None:
    problems = ("long", "1x16x16x16384x128", "16384x1024", "64x128x256", "64x128x256-bfloat16")
    pairs = pd.DataFrame([pair("h100", 0.1, problem) for problem in problems])
    assert changes_by_shape.keep_shaped(pairs)["problem"].tolist() == ["64x128x256", "64x128x256-bfloat16"]
    assert changes_by_shape.keep_shaped(pairs[:3]).empty


def test_the_axes_of_the_shapes_have_whole_numbers_and_their_colours_percent() -> None:
    figure = changes_by_shape.shape_map(pd.DataFrame([pair("h100", -0.1, "320x32576x7168")]))
    assert (figure.layout.xaxis.tickformat, figure.layout.yaxis.tickformat) == ("d", "d")
    assert list(figure.data[0].marker.colorbar.ticktext) == ["≤ -10 %", "-5 %", "0 %", "+5 %", "≥ +10 %"]


def test_two_sizes_that_nearly_coincide_have_one_tick_and_both_their_marks() -> None:
    problems = ("64x512x512", "320x32576x7168", "64x32768x512", "64x24576x1536")
    figure = changes_by_shape.shape_map(pd.DataFrame([pair("h100", -0.1, problem) for problem in problems]))
    assert list(figure.layout.xaxis.tickvals) == [512, 24576, 32576]
    assert set(figure.data[0].x) == {512, 24576, 32576, 32768}


def test_the_words_of_marks_are_where_no_other_mark_is_near() -> None:
    places = {
        "4096x512x64": "bottom center",  # neither side is near, and no mark is to its left
        "128x512x64": "top center",
        "64x512x64": "bottom center",
        "64x600x64": "top center",  # not beside those of the mark to its left
    }
    marks = changes_by_shape.shape_map(pd.DataFrame([pair("h100", 0.1, problem) for problem in places])).data[0]
    found = dict(zip((f"{m}x{n}x64" for m, n in zip(marks.y, marks.x, strict=True)), marks.textposition, strict=True))
    assert found == places
