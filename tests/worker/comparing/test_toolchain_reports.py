"""A comparison of two toolchains from its submission to its report, on the simulated GPU, with the real compiler."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from sqlalchemy import func, select, update

from tests.kernels.fixtures.second_toolchain import count_compiles, make_toolchain
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.lifecycle import actions, jobs, quarantine
from tilewatch.db.models import Job, Measurement, Run, Submission, Verdict
from tilewatch.db.page_reads.toolchain_reports import ReportRow, ReportStory, find_report, list_reports
from tilewatch.db.session import session
from tilewatch.errors import ExpectedError
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.comparing.timing_order import MOST_DEATHS
from tilewatch.kernels.comparing.toolchains.time_sides import ToolchainTimer
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.pair_bench import LaunchFailed, LaunchResult, NoCupti, PairWork
from tilewatch.kernels.results import Params
from tilewatch.worker import run_job
from tilewatch.worker.cli.toolchains.submit import wait_and_print
from tilewatch.worker.comparing.check import NO_CUPTI
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.gpu.simulated import SimulatedBench, SimulatedGpu
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import submit_requests
from tilewatch.worker.submitting.submit import BadToolchainName, NothingToSubmit
from tilewatch.worker.submitting.submit_toolchains import ToolchainsAsked, submit_toolchains

UNOPTIMISED = (
    'for each; do shift; case "$each" in --opt-level*|-O*) ;; *) set -- "$@" "$each" ;; esac; done\n'
    'exec "$TILEIRAS" "$@" -O0'
)


@pytest.fixture(autouse=True)
def _every_config_compiles(settings: Settings) -> None:
    file = settings.repository / "library" / "double.py"
    file.write_text(file.read_text().replace("(64, 128, 256, 96)", "(64, 128, 256)"))
    tiny_repository.git(settings.repository, "commit", "--quiet", "--all", "--message", "Leave a width out")


def read(context: Context, report_id: int) -> ReportStory:
    with session(context.database_url) as opened:
        story = find_report(opened, report_id)
    assert story is not None
    return story


def read_row(context: Context) -> ReportRow:
    with session(context.database_url) as opened:
        return list_reports(opened)[0]


def test_other_code_is_timed_and_re_tuned_and_touches_no_night(
    settings: Settings, context: Context, drain: Drain, capsys: pytest.CaptureFixture[str]
) -> None:
    make_toolchain(settings.toolchains, "next", script=UNOPTIMISED)
    asked = ToolchainsAsked(("installed", "next"), gpus=("sim",), minutes=0.5)
    submitted = submit_toolchains(settings, asked)
    assert read_row(context).state == "being compared"
    assert submit_toolchains(settings, asked).report_id == submitted.report_id, "it is under way"
    drain()
    story = read(context, submitted.report_id)
    assert [(each.kernel, each.problem, each.gpu_model) for each in story.operators] == [
        (tiny_repository.KERNEL, problem, "sim") for problem in tiny_repository.PROBLEMS
    ]
    assert {each.static for each in story.operators} == {"changed"}
    assert all(each.frozen is not None and each.frozen.launches > 1 for each in story.operators)
    worse = [each for each in story.operators if each.safety in ("not safe", "safe if re-tuned")]
    assert worse, "true_us makes one of them slower under next"
    assert all("re-tuned" in each.reason and "not re-tuned" not in each.reason for each in worse)
    assert (story.exit_code, story.report.state) == (1, story.report.safety)
    (ladder,) = story.ladders[:1]
    assert ladder.blamed == ("compiler",), "its cuda-tile has another version and equal files"
    assert abs(ladder.shares["cuda-tile"][0]) < 0.5, "of some 50 points"
    capsys.readouterr()
    with pytest.raises(typer.Exit) as ended:
        wait_and_print(context.database_url, submitted.report_id, "LINK")
    assert ended.value.exit_code == 1
    assert capsys.readouterr().out == f"{story.sentence}\n"
    assert "+next" in story.compilers[1]
    assert "+next" not in story.compilers[0]
    with session(context.database_url) as opened:
        for table in (Submission, Run, Measurement, Verdict):
            assert opened.scalar(select(func.count()).select_from(table)) == 0, table


def test_a_comparison_whose_last_job_was_cancelled_is_no_success(
    settings: Settings, context: Context, drain: Drain
) -> None:
    """What the other GPU models had said until then ended the command with 0."""
    make_toolchain(settings.toolchains, "next")
    submitted = submit_toolchains(settings, ToolchainsAsked(("installed", "next"), gpus=("sim",), minutes=0.5))
    drain()
    story = read(context, submitted.report_id)
    assert story.exit_code == 0
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(state="cancelled"))
    with pytest.raises(ExpectedError, match="the comparison failed: its job is cancelled"):
        wait_and_print(context.database_url, submitted.report_id, "LINK")


def test_only_an_equal_comparison_is_one_that_is_under_way(settings: Settings) -> None:
    """Whoever asked for another architecture got the report of the first one."""
    asked = ToolchainsAsked(("installed", "next"), gpus=("sim",))
    others = (
        {"archs": ("sm_120",)},
        {"minutes": 5.0},
        {"retunes": False},
        {"fail_over": 0.02},
        {"kernels": ("double",)},
    )
    reports = [submit_toolchains(settings, replace(asked, **other)).report_id for other in ({}, *others)]
    assert len(set(reports)) == len(reports)
    assert submit_toolchains(settings, asked).report_id == reports[0]


def test_launches_of_a_gpu_that_fell_ill_meanwhile_leave_the_report(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch_each = SimulatedBench.launch_each

    def fall_ill_meanwhile(bench: SimulatedBench, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        yield from launch_each(bench, works)
        gpu = SimulatedGpu(context.simulation).own_gpu()
        ill = {"gpu_model": "sim", "host": "n", "kind": "xid", "reason": "Xid 79", "evidence": {}}
        with session(context.database_url) as opened:
            quarantine.begin(opened, gpu_uuid=gpu.uuid, **ill)

    monkeypatch.setattr(SimulatedBench, "launch_each", fall_ill_meanwhile)
    make_toolchain(settings.toolchains, "next", script=UNOPTIMISED)
    submitted = submit_toolchains(settings, ToolchainsAsked(("installed", "next"), gpus=("sim",), minutes=0.05))
    with pytest.raises(NotNow, match="Xid 79"):
        drain()
    story = read(context, submitted.report_id)
    assert {each.static for each in story.operators} == {"changed"}, "the compilers' half stays"
    assert {each.frozen for each in story.operators} == {None}


@pytest.mark.parametrize(
    ("owner", "method", "error"),
    [
        (SimulatedBench, "launch_each", NoCupti("no CUPTI here")),
        (ToolchainTimer, "retune", BuildError("next is damaged here")),
        (ToolchainTimer, "climb", LibraryError("a library that is gone")),
        (ToolchainTimer, "retune", TypeError("a bug")),
        (SimulatedGpu, "open_bench", RuntimeError("no process")),
    ],
)
def test_after_a_gpu_model_that_cannot_be_used_the_next_one_is_timed(
    settings: Settings,
    context: Context,
    drain: Drain,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    error: Exception,
) -> None:
    """The comparison ended with the first GPU model's failure."""

    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(owner, method, fail)
    make_toolchain(settings.toolchains, "next", script=UNOPTIMISED)
    submitted = submit_toolchains(settings, ToolchainsAsked(("installed", "next"), gpus=("sim", "h200"), minutes=0.5))
    with pytest.raises(NotNow, match="GPU"):  # there is no H200 here
        drain()
    with session(context.database_url) as opened:
        timing = opened.execute(select(Job.queue, Job.state).where(Job.kind == "time_toolchains"))
        assert {job.queue: job.state for job in timing} == {"gpu.sim": "done", "gpu.h200": "queued"}
    on_sim = [each for each in read(context, submitted.report_id).operators if each.gpu_model == "sim"]
    assert len(on_sim) == len(tiny_repository.PROBLEMS)
    if owner is not ToolchainTimer:
        failure = NO_CUPTI if isinstance(error, NoCupti) else f"RuntimeError: {error}"
        assert {(each.safety, each.reason) for each in on_sim} == {("unknown", f"could not be compared: {failure}")}
    else:
        assert all(each.frozen is not None for each in on_sim), "what was timed before counts"


@pytest.mark.parametrize("deaths", [MOST_DEATHS, 100], ids=("passes", "stays"))
def test_a_failure_that_may_pass_is_tried_again_in_one_more_job(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """A hang that had passed was the report's answer for good."""
    launch_each, left = SimulatedBench.launch_each, [deaths]
    hung = LaunchFailed("something ended the GPU process: it hung", is_of_head=False, is_final=False)

    def hang(bench: SimulatedBench, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        for work, result in launch_each(bench, works):
            if work.problem == tiny_repository.PROBLEMS[0] and left[0]:
                left[0] -= 1
                yield work, hung
            else:
                yield work, result

    monkeypatch.setattr(SimulatedBench, "launch_each", hang)
    make_toolchain(settings.toolchains, "next", script=UNOPTIMISED)
    asked = ToolchainsAsked(("installed", "next"), gpus=("sim",), minutes=0.5, retunes=False)
    submitted = submit_toolchains(settings, asked)
    drain()
    first, second = read(context, submitted.report_id).operators
    assert (first.frozen is not None) == (deaths == MOST_DEATHS)
    assert second.frozen is not None
    with session(context.database_url) as opened:
        assert opened.scalars(select(Job.state).where(Job.kind == "time_toolchains")).all() == ["done", "done"]


def test_a_sweep_that_stopped_is_repeated_in_one_more_job(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hang during the re-tuning was its result for good."""
    race, raced = SimulatedBench.race, list[str]()

    def hang_first(bench: SimulatedBench, library: Path, kernel: str, problem: str, *rest: Any) -> tuple[Params, ...]:
        raced.append(problem)
        if raced.count(problem) == 1:
            raise MeasureFailed("racing double stopped: no answer within 30 s")
        return race(bench, library, kernel, problem, *rest)

    monkeypatch.setattr(SimulatedBench, "race", hang_first)
    make_toolchain(settings.toolchains, "next", script=UNOPTIMISED)
    submitted = submit_toolchains(settings, ToolchainsAsked(("installed", "next"), gpus=("sim",), minutes=0.5))
    drain()
    assert raced, "true_us makes one of the problems slower under next"
    assert {raced.count(problem) for problem in raced} == {2}
    assert not [each for each in read(context, submitted.report_id).operators if "stopped" in each.reason]


def test_equal_toolchains_are_safe_and_take_no_gpu(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SWITCH, "off")  # the runs are counted in a file outside of it
    made = make_toolchain(settings.toolchains, "same")
    submitted = submit_toolchains(settings, ToolchainsAsked(("installed", "same"), gpus=("sim",)))
    drain()
    story = read(context, submitted.report_id)
    assert (story.report.safety, story.exit_code) == ("safe", 0)
    assert {each.static for each in story.operators} == {"identical"}
    assert (story.frozen, story.gpus) == ((), ())
    assert count_compiles(made) > 0


def test_without_a_toolchain_the_job_waits_for_a_worker_that_has_it(settings: Settings, context: Context) -> None:
    submit_toolchains(settings, ToolchainsAsked(("installed", "new"), gpus=("sim",)))
    with session(context.database_url) as opened:
        (waiting,) = jobs.list_unsent(opened, -1)
    with pytest.raises(NotNow, match="no toolchain is named new"):
        run_job.run(waiting.id, "tester", context)
    with session(context.database_url) as opened:
        assert opened.scalars(select(Job.state)).one() == "queued"


def test_a_name_that_no_toolchain_can_have_is_refused(settings: Settings) -> None:
    with pytest.raises(BadToolchainName, match=r"'\.\./other' is not a name of a toolchain"):
        submit_toolchains(settings, ToolchainsAsked(("installed", "../other")))


def test_without_an_architecture_nothing_is_submitted(settings: Settings) -> None:
    """The job ended in a traceback: no pool has 0 threads."""
    with pytest.raises(NothingToSubmit, match="name a GPU model or an architecture"):
        submit_toolchains(settings.model_copy(update={"watch": ()}), ToolchainsAsked(("installed", "next")))


def test_what_the_judge_asks_for_is_submitted_once(settings: Settings, context: Context) -> None:
    (name,) = watched.list_names(context.database_url, settings)
    wanted = {
        "toolchains": ["cuda-tileiras-13.4.92", "installed"],
        "repository": name,
        "commit": "HEAD",
        "gpus": ["sim"],
    }
    with session(context.database_url) as opened:
        for _ in range(2):
            actions.ask(opened, "tilewatch", "toolchains", wanted, "a regression")
    (sentence,) = submit_requests.carry_out(settings)
    assert "submitted the comparison of cuda-tileiras-13.4.92 with installed at " in sentence
    assert read_row(context).state == "being compared"
