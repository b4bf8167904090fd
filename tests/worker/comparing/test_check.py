"""A check from its submission to its end, on the simulated GPU, with the real compiler, Postgres and Redis."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from sqlalchemy import func, select, update

from tests.worker.fixtures import compiled_sweep, git_history, tiny_repository
from tests.worker.fixtures.git_history import ADD, BASE, CAST, NARROW, WORDS
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.actions import JobSelection, NoSuchWork, retry
from tilewatch.db.lifecycle.jobs import ClaimedJob, Priority
from tilewatch.db.models import Action, Commit, Config, Job, Measurement, Replay, Run, Submission, Sweep, Verdict
from tilewatch.db.page_reads import checks
from tilewatch.db.page_reads.checks import CheckStory, find_check, list_checks
from tilewatch.db.session import session
from tilewatch.kernels import device
from tilewatch.kernels.comparing.verdict import Design, judge
from tilewatch.kernels.measuring.pair_bench import Launched, LaunchResult, PairWork
from tilewatch.worker import run_job
from tilewatch.worker.comparing import check_report
from tilewatch.worker.context import Context
from tilewatch.worker.git.commits import RepositoryError
from tilewatch.worker.gpu.simulated import SimulatedBench
from tilewatch.worker.notify.outbox import check_text
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly
from tilewatch.worker.submitting.submit_check import CheckAsked, NoGpuForCheck, submit_check

NIGHTLY_TABLES = (Submission, Commit, Run, Measurement, Verdict, Replay)


@pytest.fixture
def shas(settings: Settings) -> dict[str, str]:
    """Two changes of the code and one of words, each on the one before; every config compiles but at BASE."""
    shutil.rmtree(settings.repository)
    return git_history.make(settings.repository, NARROW, ADD, WORDS, CAST)


def submit(settings: Settings, shas: dict[str, str], base: str, head: str, **how: object) -> int:
    done = submit_check(settings, "ada", CheckAsked(shas[base], shas[head], gpus=("sim",), **how))  # type: ignore[arg-type]
    return done.check_ids[0]


def read(context: Context, check_id: int) -> CheckStory:
    with session(context.database_url) as opened:
        story = find_check(opened, check_id)
    assert story is not None
    return story


def test_changed_code_is_timed_and_judged_and_touches_no_night(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    check_id = submit(settings, shas, NARROW, ADD)
    assert read(context, check_id).check.state == "being prepared"
    drain()
    story = read(context, check_id)
    assert [(each.kernel, each.problem) for each in story.operators] == [("double", "1024"), ("double", "2048")]
    for each in story.operators:
        verdict = judge(each.base_us, each.head_us, Design(operators=2))
        assert verdict.is_final
        assert (each.kind, each.change, each.low) == (verdict.kind, verdict.change, verdict.low)
        assert each.is_over == verdict.is_over
        assert each.config_source == "shipped"
        assert each.gpu_uuid is not None
        assert each.gpu_s > 0
    over = any(each.is_over for each in story.operators)
    assert story.check.exit_code == (1 if over else 0)
    assert story.check.changed == 2
    with session(context.database_url) as opened:
        for table in NIGHTLY_TABLES:
            assert opened.scalar(select(func.count()).select_from(table)) == 0, table


def test_an_operator_that_times_itself_says_so_wherever_its_check_is_shown(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = SimulatedBench.launch_each

    def launch_alone(self: SimulatedBench, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        for work, result in launch(self, works):
            assert isinstance(result, Launched)
            yield work, replace(result, not_apart="it reads a counter")

    monkeypatch.setattr(SimulatedBench, "launch_each", launch_alone)
    check_id = submit(settings, shas, NARROW, ADD)
    drain()
    story = read(context, check_id)
    assert all("(not measured apart: it reads a counter)" in each.sentence for each in story.operators), "on its page"
    written = check_report.read_json(story, "https://example.org/1")
    assert {each["not_apart"] for each in written["outcomes"]} == {"it reads a counter"}
    assert "(not measured apart: it reads a counter)" in check_text(story).body, "in comments of a forge"


def test_unchanged_code_is_identical_and_takes_no_gpu(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    check_id = submit(settings, shas, ADD, WORDS)
    assert drain() == 1
    story = read(context, check_id)
    assert {each.kind for each in story.operators} == {"identical"}
    assert (story.check.exit_code, story.check.gpu_s) == (0, 0.0)
    with session(context.database_url) as opened:
        assert opened.scalars(select(Job.kind)).all() == ["prepare_check"]


def test_the_config_is_the_one_that_won_last(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    submit_nightly(settings, commit=shas[NARROW], gpus=("sim",))
    drain()
    check_id = submit(settings, shas, NARROW, ADD)
    drain()
    with session(context.database_url) as opened:
        won = (
            select(Sweep.problem, Config.params)
            .join(Run, Run.sweep_id == Sweep.id)
            .join(Measurement, Measurement.run_id == Run.id)
            .join(Config, Config.id == Measurement.config_id)
            .where(Measurement.role == "kernel")
        )
        winners = dict(opened.execute(won).all())  # type: ignore[arg-type]
    story = read(context, check_id)
    assert {each.config_source for each in story.operators} == {"recording"}
    assert {each.problem: each.base_config for each in story.operators} == winners
    assert {each.problem: each.head_config for each in story.operators} == winners


def test_a_check_that_existed_before_is_not_among_the_new_ones(settings: Settings, shas: dict[str, str]) -> None:
    """An action is charged for the new ones alone."""
    first = submit_check(settings, "ada", CheckAsked(shas[NARROW], shas[ADD], gpus=("sim",)))
    with session(settings.connection().database_url) as opened:
        fact_writes.add_gpu_model(opened, **device.gpu_model("h200").stored)
        fact_writes.write_heartbeat(opened, "gpu", kind="gpu", host="n", gpu_model="h200", toolchain={})
    both = submit_check(settings, "ada", CheckAsked(shas[NARROW], shas[ADD], gpus=("sim", "h200")))
    assert first.new_check_ids == first.check_ids == both.check_ids[:1]
    assert (both.created, both.new_check_ids) == (True, both.check_ids[1:])


def test_a_config_that_ships_and_does_not_compile_is_no_answer(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    """At BASE the library would take the width 96, which no tile can have."""
    check_id = submit(settings, shas, BASE, BASE)
    drain()
    assert read(context, check_id).check.exit_code == 0, "equal sources need no config"
    (settings.repository / "library" / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "3.0"))
    tiny_repository.git(settings.repository, "add", ".")
    tiny_repository.git(settings.repository, "commit", "--quiet", "--message", "Triple")
    check_id = submit_check(settings, "ada", CheckAsked(shas[BASE], "HEAD", gpus=("sim",))).check_ids[0]
    drain()
    story = read(context, check_id)
    assert story.check.exit_code == 2
    assert {each.kind for each in story.operators} == {"failed"}
    assert all(
        each.reason.startswith("no config of it has won here, and the one that ships") for each in story.operators
    )


def test_an_equal_check_is_found_again_and_a_failed_one_is_tried_again(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    first = submit(settings, shas, NARROW, ADD)
    assert submit(settings, shas, NARROW, ADD) == first
    assert submit(settings, shas, NARROW, ADD, fail_over=0.02) != first
    with session(context.database_url) as opened:
        of_check = opened.scalars(select(Job.id).where(Job.check_id == first)).all()
        with pytest.raises(NoSuchWork, match=f"job {of_check[0]} is not one of failed"):
            retry(opened, JobSelection.of(of_check[0], None), "ada")
        jobs.cancel(opened, of_check)
    reconcile(context.database_url, context.broker_url)
    ended = read(context, first).check
    assert (ended.exit_code, ended.failure) == (2, "its job was cancelled")
    with session(context.database_url) as opened:
        for job_id in opened.scalars(select(Job.id).where(Job.check_id == first)):
            with pytest.raises(NoSuchWork, match=f"job {job_id} is of check {first}, which ends with it"):
                retry(opened, JobSelection.of(job_id, None), "ada")
        assert opened.scalars(select(Action)).all() == [], "it was not queued, and nothing says that it was"
    again = submit(settings, shas, NARROW, ADD)
    assert again != first
    drain()
    assert read(context, again).check.exit_code in (0, 1)
    assert submit(settings, shas, NARROW, ADD) == again


def test_a_launch_that_is_cancelled_leaves_the_others(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    check_id = submit(settings, shas, NARROW, ADD)
    _do_next(context, "prepare_check")
    with session(context.database_url) as opened:
        last = opened.scalars(select(Job.id).where(Job.kind == "check").order_by(Job.id.desc())).first()
        assert last is not None
        jobs.cancel(opened, [last])
    drain()
    reconcile(context.database_url, context.broker_url)
    story = read(context, check_id)
    answered, cancelled = story.operators
    assert answered.base_us
    assert (cancelled.kind, cancelled.reason) == ("failed", "its job was cancelled")
    assert story.check.exit_code == (1 if answered.is_over else 2)


def test_a_side_without_a_library_ends_the_check_with_a_sentence(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    elsewhere = settings.model_copy(update={"library": "nowhere"})
    check_id = submit(elsewhere, shas, NARROW, ADD)
    drain()
    ended = read(context, check_id).check
    assert ended.exit_code == 2
    assert ended.failure is not None
    assert ended.failure.endswith("names the folder of watch files")


def test_a_kernel_that_neither_side_has_ends_the_check_with_a_sentence(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    check_id = submit(settings, shas, NARROW, ADD, kernel="triple")
    drain()
    ended = read(context, check_id).check
    assert ended.exit_code == 2
    assert "triple" in str(ended.failure)


def test_a_check_of_no_kernel_could_not_tell(
    settings: Settings, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    """With a misspelt TILEWATCH_KERNELS every pull request was "fine", and no operator was compared."""
    check_id = submit(settings.model_copy(update={"kernels": ("duoble",)}), shas, NARROW, ADD)
    drain()
    ended = read(context, check_id).check
    assert (ended.exit_code, ended.operators) == (2, 0)
    assert str(ended.failure).endswith("there is no kernel to compare: neither commit has duoble (TILEWATCH_KERNELS)")


def test_what_cannot_be_submitted(settings: Settings) -> None:
    with pytest.raises(RepositoryError, match="no commit 'nowhere'"):
        submit_check(settings, "ada", CheckAsked("nowhere", "HEAD", gpus=("sim",)))
    with pytest.raises(NoGpuForCheck, match="no GPU worker of h200 was ever here"):
        submit_check(settings, "ada", CheckAsked("HEAD", "HEAD", gpus=("h200",)))
    with pytest.raises(NoGpuForCheck, match="start one"):
        submit_check(settings, "ada", CheckAsked("HEAD", "HEAD"))


def test_checks_go_after_replays_and_before_sweeps_each_in_its_order(
    settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    sweep = compiled_sweep.ready_sweep(settings, context)
    first = submit(settings, shas, NARROW, ADD)
    second = submit(settings, shas, NARROW, CAST)
    with session(context.database_url) as opened:  # the second one is prepared first
        earlier = opened.scalars(select(Job).where(Job.check_id == first)).one()
        earlier.state = "waiting"
    _do_next(context, "prepare_check")
    with session(context.database_url) as opened:
        opened.execute(update(Job).where(Job.check_id == first).values(state="queued"))
    _do_next(context, "prepare_check")
    with session(context.database_url) as opened:
        jobs.add(
            opened, key="replay", kind="confirm", queue="gpu.sim", subject="", payload={}, priority=Priority.BISECT
        )
    claimed = _claim_all(context, sweep)
    assert [(job.kind, job.check_id) for job in claimed] == [
        ("confirm", None),
        ("check", first),
        ("check", first),
        ("check", second),
        ("check", second),
        ("measure", None),
    ]


def test_newest_checks_come_first_and_no_open_one_is_left_out(
    settings: Settings, context: Context, shas: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "NEWEST", 0)
    first = submit(settings, shas, NARROW, ADD)
    second = submit(settings, shas, NARROW, CAST)
    with session(context.database_url) as opened:
        assert [each.id for each in list_checks(opened)] == [second, first]
        assert [each.id for each in list_checks(opened, 1)] == [second]


def _do_next(context: Context, kind: str) -> None:
    with session(context.database_url) as opened:
        job_id = opened.scalars(select(Job.id).where(Job.kind == kind, Job.state == "queued")).first()
    assert job_id is not None
    run_job.run(job_id, "tester#1", context)


def _claim_all(context: Context, job_id: int) -> list[ClaimedJob]:
    claimed = []
    with session(context.database_url) as opened:
        opened.execute(update(Job).where(Job.kind == "measure", Job.state == "waiting").values(state="cancelled"))
        while (job := jobs.claim(opened, job_id, "gpu0@n#1", 60)) is not None:
            claimed.append(job)
    return claimed
