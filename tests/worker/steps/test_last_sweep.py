"""A space whose code is that of its last sweep is not swept again: what won then is timed."""

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.run_result import STARTED_AT, result
from tests.worker.fixtures.worker_context import Drain
from tilewatch.configs import config_sha256
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job, Sweep
from tilewatch.db.session import session
from tilewatch.db.worker_reads import fallen_configs, steps
from tilewatch.db.worker_reads.steps import CompiledConfig, LastSweep, SweepFacts
from tilewatch.kernels import HARNESS
from tilewatch.kernels.device import Gpu, gpu_model
from tilewatch.kernels.results import RunResult
from tilewatch.kernels.toolchains.versions import MEASURING, versions
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import write_run
from tilewatch.worker.steps.measure import find_newest_due
from tilewatch.worker.submitting.submit import submit_nightly, submit_sweep

PROBLEM = "1024"
Night = Callable[[int], int]


@pytest.fixture
def night(settings: Settings, context: Context, drain: Drain) -> Night:
    """Submits and compiles the night of a day; 0 stands for a sweep that somebody asked for. Returns the sweep."""

    def submit(day: int) -> int:
        if day:
            submit_nightly(settings, gpus=("h200",), night=dt.date(2026, 11, day))
        else:
            submit_sweep(settings, tiny_repository.KERNEL, PROBLEM, gpus=("h200",))
        with session(context.database_url) as opened:
            jobs.cancel(opened, opened.scalars(select(Job.id).where(Job.state == "waiting")).all())
        drain()
        with session(context.database_url) as opened:
            newest = select(Sweep.id).where(Sweep.problem == PROBLEM).order_by(Sweep.id.desc())
            return opened.scalars(newest).first() or 0

    return submit


def write(context: Context, sweep_id: int, run: RunResult) -> None:
    with session(context.database_url) as opened:
        ids = {config_sha256(each.params): each.config_id for each in steps.list_compiled_configs(opened, sweep_id)}
        write_run.write(opened, sweep_id, run, ids)


def find(context: Context, sweep_id: int, since: dt.datetime = STARTED_AT) -> LastSweep | None:
    with session(context.database_url) as opened:
        return steps.find_last_sweep(opened, sweep_id, since)


def test_the_last_sweep_of_a_whole_space_is_found(context: Context, night: Night) -> None:
    first = night(1)
    assert find(context, first) is None
    write(context, first, result())
    second = night(2)
    last = find(context, second)
    assert last is not None
    assert last.swept_at == result().finished_at
    with session(context.database_url) as opened:
        configs = steps.list_compiled_configs(opened, second)
    assert last.tried == {each.config_id: each.content_key for each in configs}
    again = [each.params["width"] for each in configs if each.config_id in last.timed_again]
    assert sorted(again) == [128, 256], "the winner, and what tied with it"
    assert find(context, second, since=result().finished_at + dt.timedelta(seconds=1)) is None, "it is due again"
    assert find(context, night(0)) is None, "who asks for a sweep gets one"


def test_a_night_that_timed_the_winner_again_is_no_sweep(context: Context, night: Night) -> None:
    """Nor is it compared with another one to find configs that became wrong: it has no times of most."""
    sweeps = []
    for day in (1, 2, 3):
        sweeps.append(night(day))
        run = result(minute=day)
        write(context, sweeps[-1], replace(run, trials=run.trials[1:]) if day == 2 else run)
        last = find(context, night(day + 10))
        assert last is not None
        assert last.swept_at == result(minute=1 if day == 2 else day).finished_at
    with session(context.database_url) as opened:
        pairs = fallen_configs.list_newest_pairs(opened, STARTED_AT - dt.timedelta(days=1))
        compared = {each for pair in pairs if pair.problem == PROBLEM for each in (pair.before_id, pair.after_id)}
    assert sweeps[1] not in compared


def test_a_night_that_left_out_only_drawn_configs_is_a_sweep(context: Context, night: Night) -> None:
    """It stops trying them at the first that hangs."""
    sweep_id, run = night(1), result()
    with session(context.database_url) as opened:
        ids = {each.params["width"]: each.config_id for each in steps.list_compiled_configs(opened, sweep_id)}
        opened.get_one(Sweep, sweep_id).space = {"listed": [ids[128], ids[256]], "rest": 1}
    with session(context.database_url) as opened:
        configs = steps.list_compiled_configs(opened, sweep_id)
    assert [each.config_id for each in configs if each.drawn] == [ids[64]]
    assert configs[-1].drawn, "they are tried last"
    write(context, sweep_id, replace(run, trials=run.trials[1:]))
    assert find(context, night(2)) is not None


def test_each_series_is_swept_again_once_a_week_and_no_night_sweeps_all() -> None:
    days = [dt.datetime(2026, 11, day, 23, 59, tzinfo=dt.UTC) for day in range(1, 15)]
    series_on: Counter[dt.datetime] = Counter()
    for problem in range(126):
        facts = SweepFacts("watched", "k", str(problem), "h200", 1, "sha", "sm_90")
        newest = [find_newest_due(facts, day) for day in days]
        assert all(day - dt.timedelta(days=7) < due <= day for day, due in zip(days, newest, strict=True))
        dues = sorted(set(newest))
        assert {later - earlier for earlier, later in itertools.pairwise(dues)} == {dt.timedelta(days=7)}
        series_on[newest[6]] += 1
    assert len(series_on) == 7
    assert max(series_on.values()) < 126 / 3


def test_drawn_configs_are_timed_whatever_was_tried_before() -> None:
    facts = SweepFacts("watched", "k", "p", "h200", 1, "sha", "sm_90")
    drawn = CompiledConfig(4, {"tile_m": 4}, "c4", "k", drawn=True)
    sweep = SweepToMeasure("measure:1", facts, [*CONFIGS, drawn], "library", (), last_sweep=SAME)
    gpu = Gpu(0, "GPU-1", "NVIDIA H200", "580.159.04", gpu_model("h200"))
    assert [each.config_id for each in sweep.choose_configs(gpu)] == [1, 3, 4]


NOW = {**versions(MEASURING), "harness": HARNESS}
CONFIGS = [CompiledConfig(number, {"tile_m": number}, f"c{number}", "k") for number in (1, 2, 3)]
SAME = LastSweep(STARTED_AT, {**NOW, "driver": "580.95"}, {1: "c1", 2: "c2", 3: "c3"}, frozenset({1, 3}))


@pytest.mark.parametrize(
    ("last", "chosen"),
    [
        (SAME, [1, 3]),
        (None, [1, 2, 3]),
        (replace(SAME, tried={**SAME.tried, 2: "other"}), [1, 2, 3]),
        (replace(SAME, tried={**SAME.tried, 4: "c4"}), [1, 2, 3]),
        (replace(SAME, timed_again=frozenset()), [1, 2, 3]),
        (replace(SAME, toolchain={**NOW, "driver": "590.1"}), [1, 2, 3]),
        (replace(SAME, toolchain={**SAME.toolchain, "torch": "2.0"}), [1, 2, 3]),
        (replace(SAME, toolchain={**SAME.toolchain, "harness": "0"}), [1, 2, 3]),
        (replace(SAME, toolchain={**SAME.toolchain, "cuda_driver": "13.9"}), [1, 3]),
    ],
)  # fmt: skip
def test_what_did_not_change_is_timed_again_alone(last: LastSweep | None, chosen: list[int]) -> None:
    facts = SweepFacts("watched", "k", "p", "h200", 1, "sha", "sm_90")
    sweep = SweepToMeasure("measure:1", facts, CONFIGS, "library", (), last_sweep=last)
    gpu = Gpu(0, "GPU-1", "NVIDIA H200", "580.159.04", gpu_model("h200"))
    assert [each.config_id for each in sweep.choose_configs(gpu)] == chosen
