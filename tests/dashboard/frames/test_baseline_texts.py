"""What a rival chose, in words."""

import pandas as pd
import pytest

from tilewatch.dashboard.frames.baseline_texts import describe_choice, list_missing, name_lines, version_name

PRINTED = (
    "GemmDesc(gemm_type=0, m=320, n=32576, k=7168, num_sms=132): GemmConfig(layout=Layout(swap_ab=0, block_m=128, "
    "block_n=192, block_k=128, cluster_m=2, cluster_n=1), storage_config=StorageConfig(load_block_m=64, "
    "swizzle_a_mode=128, swizzle_b_mode=128, swizzle_cd_mode=64), pipeline_config=PipelineConfig(num_stages=4))"
)


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        pytest.param(
            {"chose": [PRINTED], "kernels": ["gemm"]},
            "block_m=128 block_n=192 block_k=128 num_stages=4 cluster_m=2 cluster_n=1 swap_ab=0 swizzle_a_mode=128 "
            "swizzle_b_mode=128 swizzle_cd_mode=64",
            id="DeepGEMM prints its settings",
        ),
        pytest.param(
            {"chose": [], "kernels": ["_ZN9deep_gemm14transpose_fp32ILj512EEEvPKfPfj", "nvjet_sm90_128x160_128x5"]},
            "transpose_fp32, nvjet_sm90_128x160_128x5",
            id="kernels by their names",
        ),
        pytest.param({"kernels": ["_Z6reduceILi4EEvPf"]}, "reduce", id="a kernel outside of a namespace"),
        pytest.param(
            {"kernels": ["copy", "gemm_a", "gemm_b", "gemm_a"]},
            "copy, 2\N{NO-BREAK SPACE}x\N{NO-BREAK SPACE}gemm_a, gemm_b",
            id="one often",
        ),
        pytest.param({}, "", id="nothing stored"),
        pytest.param({"chose": None, "kernels": None}, "", id="nothing known"),
        pytest.param(
            {"chose": ["other=1"], "kernels": ["_ZN", "7", "_Z12abcdefghijklrest"]}, "_ZN, 7, abcdefghijkl", id="odd"
        ),
    ],
)
def test_the_choice_of_a_rival(detail: dict[str, list[str]], words: str) -> None:
    assert describe_choice(None, detail) == words


def test_the_choice_of_a_kernel_is_its_config() -> None:
    assert describe_choice({"tile_m": 64, "num_ctas": 2}, {"chose": [PRINTED]}) == "tile_m=64 num_ctas=2"


def test_a_missing_baseline_has_the_first_sentence_of_its_reason() -> None:
    why = "OSError: undefined symbol: c10"
    missing = {"deepgemm": f"{why}. This could be because of many things.", "deepgemm_as_called": why, "copy": "no."}
    assert list_missing({"missing": missing}) == [
        f"deepgemm and deepgemm_as_called could not run: {why}.",
        "copy could not run: no.",
    ]
    assert list_missing({}) == []


@pytest.mark.parametrize(
    ("implementation", "detail", "name"),
    [
        ("deepgemm", {"version": "0.2.5+cu130"}, "deepgemm 0.2.5"),
        ("deepgemm", {"version": "0.2.5"}, "deepgemm 0.2.5"),
        ("deepgemm", {}, "deepgemm"),
        ("deepgemm", {"version": None}, "deepgemm"),
        ("deepgemm 0.1.0", {"version": "0.2.5"}, "deepgemm 0.1.0"),
    ],
)
def test_a_baseline_has_the_name_of_its_version(implementation: str, detail: dict[str, str], name: str) -> None:
    assert version_name(implementation, detail) == name


def test_a_version_has_a_line_of_its_own_where_a_run_timed_it_twice() -> None:
    points = pd.DataFrame(
        [
            (1, "gemm", "kernel", {"version": "7"}, "gemm"),
            (1, "deepgemm", "baseline", {"version": "0.2.5+cu130"}, "deepgemm 0.2.5"),
            (1, "deepgemm 0.2.5", "baseline", {}, "deepgemm 0.2.5, environment"),
            (1, "deepgemm 0.1.0", "baseline", {}, "deepgemm 0.1.0"),
            (2, "deepgemm 0.2.5", "baseline", {}, "deepgemm 0.2.5"),
            (2, "deepgemm", "baseline", {}, "deepgemm"),
        ],
        columns=["run_id", "implementation", "role", "detail", "line"],
        index=range(5, 11),
    )
    for shown in (points, points[points["role"] == "kernel"], points[points["implementation"] == "deepgemm"]):
        assert name_lines(shown).to_dict() == shown["line"].to_dict()
    assert name_lines(points[:0]).empty
