"""The benchmark of nights reads what a night leaves, and misses a bound where a night does not keep to it."""

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks import bounds, neighbours, night
from benchmarks.bounds import Figure
from benchmarks.night import Night
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import Drain
from tilewatch.kernels.results import Measured
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly


@pytest.fixture
def nights(settings: Settings, context: Context, drain: Drain) -> list[Night]:
    """Two nights of a tiny library on a simulated GPU; the second one is of a commit that changes no kernel."""
    found = []
    for day in (1, 2):
        started = time.time()
        submit_nightly(settings, gpus=("sim",), night=dt.date(2026, 11, day))
        drain()
        found.append(night.read_night(context.database_url, started, 1))
        tiny_repository.git(settings.repository, "commit", "--quiet", "--allow-empty", "--message", "Change no kernel")
    return found


def list_missed(figures: Sequence[Figure]) -> list[str]:
    return [each.what for each in figures if each.is_met is False]


def test_two_nights_are_read_and_compared(nights: list[Night], context: Context) -> None:
    first, second = nights
    assert (first.series, second.series, first.failures) == (2, 2, ())
    assert (first.changed, second.changed) == (0, 0)
    assert first.cpu_s > 0 == second.cpu_s, "the second one compiles nothing"
    assert first.launches_s > 0
    assert 0 <= first.compiled_s <= first.measured_s <= first.judged_s
    assert first.ratios.keys() == second.ratios.keys() == {"double 1024", "double 2048"}
    assert list_missed(list(night.compare(first, second))) == []
    assert list_missed(list(night.describe(first, 0, is_whole=False))) == []
    lines = [f"{each.what}: {each.value}" for each in night.describe_cost(nights, "2 cores, no GPU")]
    assert [line.split(":")[1] for line in lines] == [
        " a first nightly, 2 problems",
        " a nightly of a commit that changes no kernel, 2 problems",
    ]
    assert [each.kernel for each in neighbours.list_won(context.database_url)] == ["double", "double"]


def test_a_night_on_some_gpus_has_their_share_of_the_cores() -> None:
    assert night.select_cores(range(32), 1, 2) == range(16)
    assert night.select_cores(range(32), 2, 2) == range(32)
    assert night.select_cores([0], 1, 8) == [0]
    assert night.select_cores([0, 1], 0, 0) == [0, 1]


NIGHT = Night(
    series=126, compiled_s=100.0, measured_s=170.0, judged_s=175.0, counted_s=200.0,
    phases_s={"sweep": 300.0, "rounds": 220.0, "prepare": 40.0}, launches_s=50.0, measuring_span_s=160.0, gpus=4,
    failures=(), swept=4717, changed=0, ratios={f"series {number}": 1.0 for number in range(100)}, cpu_s=2760.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("worse", "number", "missed"),
    [
        (NIGHT, 0, []),
        (replace(NIGHT, series=127), 0, []),
        (replace(NIGHT, judged_s=180.0), 0, []),
        (replace(NIGHT, judged_s=181.0), 0, ["first night on 4 GPUs: last verdict after"]),
        (replace(NIGHT, judged_s=91.0), 1, ["second night on 4 GPUs: last verdict after"]),
        (replace(NIGHT, phases_s={"sweep": 400.0}), 0, ["first night on 4 GPUs: share in sweeps and rounds"]),
        (replace(NIGHT, failures=("a job",)), 0, ["first night on 4 GPUs: jobs that failed"]),
        (replace(NIGHT, gpus=1, judged_s=480.0), 0, []),
        (replace(NIGHT, gpus=1, judged_s=481.0), 0, ["first night on 1 GPU: last verdict after"]),
        (replace(NIGHT, gpus=1, judged_s=301.0), 1, ["second night on 1 GPU: last verdict after"]),
        (replace(NIGHT, gpus=1, phases_s={"rounds": 135.0}), 0, ["first night on 1 GPU: share in sweeps and rounds"]),
        (replace(NIGHT, gpus=2, judged_s=2000.0), 0, []),
    ],
)
def test_a_night_that_does_not_keep_to_its_machines_bounds_misses_them(
    worse: Night, number: int, missed: list[str]
) -> None:
    figures = list(night.describe(worse, number, is_whole=True))
    assert list_missed(figures) == missed
    assert bounds.report(figures) == bool(missed)
    assert list_missed(list(night.describe(replace(worse, failures=()), number, is_whole=False))) == []


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_night_that_measured_too_few_series_misses_all_bounds_of_its_machine(gpus: int) -> None:
    figures = list(night.describe(replace(NIGHT, series=125, gpus=gpus, judged_s=1.0), 0, is_whole=True))
    assert [each.partition(": ")[2] for each in list_missed(list(map(bounds.require_cases, figures)))] == [
        "series measured",
        "last verdict after",
        "share in sweeps and rounds",
    ]


@pytest.mark.parametrize(
    ("second", "missed"),
    [
        (NIGHT, []),
        (replace(NIGHT, changed=1), ["second night: series called changed"]),
        (replace(NIGHT, ratios={**NIGHT.ratios, **{f"series {n}": 1.02 for n in range(9)}}), []),
        (
            replace(NIGHT, ratios={**NIGHT.ratios, **{f"series {n}": 0.98 for n in range(11)}}),
            ["ratio of two nights, 90th percentile apart"],
        ),
        (
            replace(NIGHT, ratios={}),
            ["second night: series with a ratio in both", "ratio of two nights, 90th percentile apart"],
        ),
    ],
)
def test_two_nights_that_differ_miss_a_bound(second: Night, missed: list[str]) -> None:
    assert list_missed(list(night.compare(NIGHT, second))) == missed


@pytest.mark.parametrize(
    ("differences", "missed"),
    [
        ([0.001, -0.001] * 15, []),
        ([0.001, -0.001] * 14, ["neighbours: series alone and beside"]),
        ([0.0015] * 30, ["neighbours: mean difference"]),
        ([0.0] * 29 + [-0.006], ["neighbours: worst difference"]),
    ],
)
def test_neighbours_that_cost_accuracy_miss_a_bound(differences: list[float], missed: list[str]) -> None:
    assert list_missed(list(neighbours.describe(differences, 5))) == missed
    assert list_missed(list(neighbours.describe([0.0] * 30, 0))) == ["neighbours: series measured beside them"]


def test_passes_are_compared_by_the_mean_of_each_series() -> None:
    alone, beside = [[1.0, 2.0, 1.0], [1.0, 4.0, 1.0]], [[1.1, 3.0, "hung"], [1.3, 3.0, 1.0]]
    assert neighbours.compare(alone, beside) == pytest.approx([0.2, 0.0]), "the third series hung in a pass"


def test_the_ratio_of_a_run_is_to_its_main_baseline() -> None:
    class Run:
        measurements = (
            Measured("gemm", "kernel", (100.0, 100.0)),
            Measured("copy", "baseline", (10.0, 10.0)),
            Measured("cublas", "baseline", (90.0, 90.0)),
        )

    assert neighbours.find_ratio(Run()) == pytest.approx(0.9)  # type: ignore[arg-type]
