"""A ratio is to the first of a kernel's baselines that was measured, and the judge sees which one that is."""

from dataclasses import replace

import pytest

from tilewatch.db.worker_reads.judging import Point
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.judging.scope_judge import Launches, ScopeJudge, Series, SeriesQuestion
from tilewatch.worker.measurement_rows import Sampled, measurement_rows

OURS_US, DEEPGEMM_US, CUDNN_US = (100.0,) * 20, (90.0,) * 20, (120.0,) * 20


def kernel() -> Sampled:
    return Sampled("kernel", "kernel", 1, OURS_US, {})


def baseline(name: str, samples_us: tuple[float, ...], **detail: str) -> Sampled:
    return Sampled(name, "baseline", None, samples_us, detail)


def ours(*sampled: Sampled) -> dict[str, object]:
    return next(row for row in measurement_rows(sampled) if row["role"] == "kernel")


def test_the_first_baseline_that_was_measured_is_what_ratios_are_to() -> None:
    both = ours(kernel(), baseline("attention_cudnn", CUDNN_US), baseline("attention_flash", DEEPGEMM_US))
    assert (both["baseline"], both["ratio"]) == ("attention_cudnn", pytest.approx(1.2))
    one = ours(kernel(), baseline("attention_cudnn", (), missing="no cuDNN"), baseline("attention_flash", DEEPGEMM_US))
    assert (one["baseline"], one["ratio"]) == ("attention_flash", pytest.approx(0.9))


def test_deepgemm_is_the_main_baseline_wherever_it_was_measured() -> None:
    """A recording has the baselines of a run in an order of its own."""
    found = ours(kernel(), baseline("cublaslt", CUDNN_US), baseline("deepgemm", DEEPGEMM_US))
    assert (found["baseline"], found["ratio"]) == ("deepgemm", pytest.approx(0.9))


def test_a_copy_is_the_main_baseline_only_beside_nothing_else() -> None:
    """It moves the bytes and computes nothing, so what is beside it would look slow whatever it does."""
    both = ours(kernel(), baseline("copy", DEEPGEMM_US), baseline("torch_moe_route", CUDNN_US))
    assert (both["baseline"], both["ratio"]) == ("torch_moe_route", pytest.approx(1.2))
    alone = ours(kernel(), baseline("copy", DEEPGEMM_US), baseline("torch_moe_route", (), missing="no torch"))
    assert (alone["baseline"], alone["ratio"]) == ("copy", pytest.approx(0.9))


def test_a_baseline_of_another_version_is_never_the_main_baseline() -> None:
    """Its environment may come and go; what the ratio is to would come and go with it."""
    beside = baseline("deepgemm 0.2.5", CUDNN_US)
    found = ours(kernel(), beside, baseline("cublaslt", DEEPGEMM_US))
    assert (found["baseline"], found["ratio"]) == ("cublaslt", pytest.approx(0.9))
    assert ours(kernel(), beside)["baseline"] is None


@pytest.mark.parametrize("own_config", ["tile_table", "shipped"])
def test_the_kernel_with_another_config_is_no_baseline_and_without_one_there_is_no_ratio(own_config: str) -> None:
    found = ours(kernel(), baseline("deepgemm", (), missing="no torch"), baseline(own_config, CUDNN_US))
    assert (found["baseline"], found["ratio"]) == (None, None)


def night(number: int, ratio: float | None, baseline: str | None) -> list[Point]:
    """Three kernels, quiet but for a tenth of a per cent, of which the first is compared with this baseline."""
    steady = Point(number, number, "steady", "1024", "n1", "toolchain", 100.0, 99.9, 100.1, 0.9, "deepgemm")
    wobble = 1.0 + 0.001 * (number % 3 - 1)
    points = [replace(steady, problem=problem, time_us=100.0 * wobble) for problem in ("1024", "2048")]
    return [replace(steady, kernel="attention", time_us=100.0 * wobble, ratio=ratio, baseline=baseline), *points]


@pytest.mark.parametrize("missing", [None, 11], ids=["every night", "a night without any"])
def test_another_main_baseline_begins_a_segment_and_is_no_change_of_the_kernel(missing: int | None) -> None:
    """From night 12 on cuDNN is missing and ratios are to the next baseline, 30 % away. As after another toolchain, the
    series is compared once with the build before; no alert comes of it."""
    series = [(point.kernel, point.problem, point.host) for point in night(0, None, None)]
    judge, asked = ScopeJudge(series, Policy(), 240), list[tuple[Series, int, int]]()

    def equal(question: SeriesQuestion) -> Launches:
        asked.append((question.series, question.base, question.head))
        return Launches((100.0,) * question.launches, (100.0,) * question.launches)

    for number in range(24):
        baseline = ("attention_cudnn", 1.2) if number < 12 else ("attention_flash", 0.9)
        ratio, baseline = (None, None) if number == missing else (baseline[1], baseline[0])
        judge.add_night(number, number, night(number, ratio, baseline), {})
        judge.settle(equal)
        assert judge.alerts == {}
    assert asked == [(series[0], 11, 12 + Policy().min_history)]
    assert {judge.verdict(each).verdict for each in series} == {"unchanged"}
    points = [judge.verdict(each).history_points for each in series]
    assert points == [11, 23, 23], "of this baseline; of all nights where it stayed"
