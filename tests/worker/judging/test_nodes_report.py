"""Reports on two nodes from nights that the simulated GPU measured on them."""

import datetime as dt
from collections.abc import Callable

import pytest
from sqlalchemy import select, update

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import do_all_jobs
from tilewatch.db.lifecycle.toolchain_reports import JudgedReport, write_report
from tilewatch.db.models import Measurement, Run
from tilewatch.db.page_reads.toolchain_reports import find_report, list_reports
from tilewatch.db.session import session
from tilewatch.kernels.device import SIMULATED
from tilewatch.worker.context import Context
from tilewatch.worker.judging.nodes_report import NodesAsked, NothingInCommon, make_report
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly

Measure = Callable[..., None]
ASKED = NodesAsked("lab-1", "lab-2", SIMULATED)


@pytest.fixture
def measure(settings: Settings) -> Measure:
    """Measures a night on a node."""

    def measure_on(node: str, night: int, driver: str) -> None:
        of_node = settings.model_copy(update={"sim_node": node, "sim_driver": driver})
        submit_nightly(of_node, night=dt.date(2026, 11, night), gpus=("sim",))
        do_all_jobs(Context.of(of_node))

    return measure_on


def slow_down(context: Context, node: str) -> None:
    """Makes what a node measured 5 % slower, and leaves its canaries alone: as a driver would."""
    with session(context.database_url) as opened:
        of_node = Measurement.run_id.in_(select(Run.id).where(Run.host == node))
        opened.execute(update(Measurement).where(of_node).values(median_us=Measurement.median_us * 1.05))


def report(context: Context, asked: NodesAsked = ASKED) -> JudgedReport:
    with session(context.database_url) as opened:
        return make_report(opened, asked)


def test_with_equal_canaries_what_is_slower_is_not_safe_and_the_words_claim_no_more(
    context: Context, measure: Measure
) -> None:
    measure("lab-1", 1, "580.1")
    measure("lab-2", 2, "590.2")
    slow_down(context, "lab-2")
    made = report(context)
    assert (made.answer["safety"], made.answer["exit_code"]) == ("not safe", 1)
    words = made.answer["answer"]
    assert words.startswith(
        "Of 2 series with identical machine code on lab-1 (driver 580.1) and lab-2 (driver 590.2), 2 "
    )
    assert " are as fast, so the GPUs themselves differ by less than 1 %. Two nodes differ in more than their" in words
    with session(context.database_url) as opened:
        assert [write_report(opened, made), write_report(opened, made)] == ["added", "unchanged"]
        (row,) = list_reports(opened)
        story = find_report(opened, row.id)
    assert story is not None
    assert story.compilers == ("driver 580.1", "driver 590.2")
    assert [each.problem for each in story.operators] != []
    assert {each.kernel for each in story.operators} == {tiny_repository.KERNEL}
    assert all(each.frozen is not None and each.frozen.kind == "slower" for each in story.operators)


def test_where_the_canaries_are_slower_too_nothing_is_said_of_the_driver(context: Context, measure: Measure) -> None:
    measure("lab-1", 1, "580.1")
    measure("lab-2", 2, "590.2")
    slow_down(context, "lab-2")
    with session(context.database_url) as opened:
        for run in opened.scalars(select(Run).where(Run.host == "lab-2")):
            run.telemetry = [
                {name: value * 1.05 if name.startswith("canary_") else value for name, value in reading.items()}
                for reading in run.telemetry
            ]
    made = report(context)
    assert (made.answer["safety"], made.answer["exit_code"]) == ("unknown", 2)
    assert "differ too: GPU, clock or cooling differ, so nothing can be said of the driver." in made.answer["answer"]


def test_two_periods_of_one_node_are_parted_by_a_day(context: Context, measure: Measure) -> None:
    measure("lab-1", 1, "580.1")
    now = dt.datetime.now(dt.UTC)
    with session(context.database_url) as opened:
        opened.execute(update(Run).values(finished_at=now - dt.timedelta(days=9)))
    measure("lab-1", 2, "580.1")
    parted = now - dt.timedelta(days=1)
    made = report(context, NodesAsked("lab-1", "lab-1", SIMULATED, parted, parted))
    assert made.answer["safety"] == "safe"
    assert made.a == f"lab-1 before {parted:%Y-%m-%d}"
    assert {each["frozen"]["launches"] for each in made.answer["operators"]} == {1}
    assert made.answer["answer"].endswith("Both have the same driver, so this is no comparison of drivers.")


def test_nodes_without_a_common_series_are_an_error_in_a_sentence(context: Context, measure: Measure) -> None:
    measure("lab-1", 1, "580.1")
    with pytest.raises(NothingInCommon, match=r"on lab-1 \(2 runs\) and on lab-2 \(0 runs\)"):
        report(context)
