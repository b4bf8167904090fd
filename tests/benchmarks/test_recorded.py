"""The tables of the documents are those that the recordings give: a changed recording or a mistyped figure shows."""

import re
from pathlib import Path

import pytest

from benchmarks import recorded
from benchmarks.recorded import Recorded, list_baseline_ratios

ROOT = Path(__file__).parents[2]
TABLE = re.compile(r"<!-- python -m benchmarks\.recorded (\w+) -->\n\n((?:\|.*\n)+)")
SHOWN_IN = {
    "README.md": {"winners"},
    "docs/develop/kernel-times.md": {"ratios", "h100"},
}


@pytest.mark.parametrize(("document", "names"), SHOWN_IN.items())
def test_a_document_shows_the_table_of_the_recording(document: str, names: set[str]) -> None:
    shown = dict(TABLE.findall((ROOT / document).read_text()))
    assert shown.keys() == names
    for name, table in shown.items():
        assert table == recorded.TABLES[name]() + "\n", f"paste it anew: python -m benchmarks.recorded {name}"


def test_the_readme_names_the_recording_of_its_table() -> None:
    assert recorded.H200[0].exists()
    assert str(recorded.H200[0].relative_to(ROOT)) in (ROOT / "README.md").read_text()


def test_a_rival_s_row_has_the_mean_and_the_worst_of_its_problems_and_a_row_for_each_type() -> None:
    def run(kernel: str, problem: str, **ratios: float) -> Recorded:
        return Recorded(kernel, problem, 1, 10.0, (10.0,), ratios, (10.0,))

    found = list_baseline_ratios(
        [
            run("gemm_nn", "1024-float16", cublas=0.5, tile_table=3.0),
            run("gemm_nn", "2048-float16", cublas=2.0),
            run("gemm_nn", "2048-tf32", cublas=0.7),
        ]
    )
    assert [(each.kernel, each.baseline, each.mean, each.worst) for each in found] == [
        ("gemm_nn float16", "cublas", pytest.approx(1.0), ("1024-float16", 0.5)),
        ("gemm_nn tf32", "cublas", pytest.approx(0.7), ("2048-tf32", 0.7)),
    ]


def test_two_launches_are_compared_by_the_sum_of_equally_many_parts() -> None:
    def run(kernel: str, parts: str, winner_us: float, **ratios: float) -> Recorded:
        return Recorded(kernel, f"{recorded.ONE_TOKEN}{parts}", 1, winner_us, (), ratios, ())

    runs = [
        run("attention_decode", "", 100.0, attention_cudnn=0.5),
        *(run("attention_decode_parts", "-16", 30.0), run("attention_decode_join", "-16", 10.0)),
        *(run("attention_decode_parts", "-64", 25.0), run("attention_decode_join", "-64", 20.0)),
    ]
    assert recorded.compare_two_launches(runs) == pytest.approx(50.0 / 40.0)


def test_a_gradient_is_compared_by_the_sum_of_both_launches_where_there_are_two() -> None:
    def run(kernel: str, problem: str, winner_us: float, **ratios: float) -> Recorded:
        return Recorded(kernel, problem, 1, winner_us, (), ratios, ())

    one_launch = run(recorded.GRADIENT, "b", 100.0, attention_cudnn_backward=0.5)
    second = run(recorded.GRADIENT, "a", 90.0, attention_cudnn_backward=0.8)
    assert recorded.compare_gradients([one_launch, second, run(recorded.DELTA, "a", 10.0)]) == [pytest.approx(0.72)]


def test_a_ratio_is_the_rival_s_time_over_ours() -> None:
    (run,) = [
        each
        for each in recorded.read_runs(recorded.H200[0])
        if (each.kernel, each.problem) == ("gemm_tutorial", "1024x1024x1024-float16")
    ]
    assert run.ratios["cublas"] < 0.02, "the tutorial's kernel takes a hundred times cuBLAS's time"
    assert run.winner_us > 500


def test_kernels_of_a_later_file_stand_in_for_the_night_s() -> None:
    """Of 2857088b: some of the kernels, older, and none that the night has not."""
    night, later = recorded.H200[0], recorded.RECORDINGS / "h200-2857088b.jsonl.gz"
    alone, both = recorded.read_suite((night,)), recorded.read_suite((night, later))
    again = {run.kernel for run in recorded.read_runs(later)}
    assert alone == recorded.read_runs(night)
    assert [run for run in both if run.kernel not in again] == [run for run in alone if run.kernel not in again]
    assert {run.kernel for run in both} == {run.kernel for run in alone}
    assert [run for run in both if run.kernel == "mla_decode"] == [
        run for run in recorded.read_runs(later) if run.kernel == "mla_decode"
    ]


def test_a_value_that_never_won_is_shown_as_far_from_a_winner_as_it_was() -> None:
    rows = [line.split(" | ") for line in recorded.format_values().splitlines()[2:]]
    nearest = {(kernel.strip("| `"), axis, value): float(ratio.strip(" |")) for kernel, axis, value, ratio in rows}
    assert nearest["gemm_fp8_scaled", "latency", "4"] == 1.0
    assert nearest["gemm_fp8_scaled", "steps", "8"] > 1.01
    assert not any(axis == "num_ctas" for kernel, axis, _ in nearest if kernel == "gemm_fp8_scaled"), "it has one value"
