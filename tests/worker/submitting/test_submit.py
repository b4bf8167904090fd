"""Submitting: what it leaves in Postgres and Redis, and the bad input that leaves nothing."""

import datetime as dt
from dataclasses import replace

import pytest
import redis
from sqlalchemy import delete, func, select, update

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.made_run import make_run
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.models import (
    Base,
    Check,
    Commit,
    GpuModel,
    Job,
    Run,
    Submission,
    Sweep,
    ToolchainReport,
    Trial,
    Worker,
)
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.kernels import device
from tilewatch.kernels.catalog.catalog import UnknownKernel
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.device import UnknownGpu
from tilewatch.kernels.library_errors import NoConfigs
from tilewatch.worker.context import Context
from tilewatch.worker.git.clones import Clone
from tilewatch.worker.git.commits import RepositoryError
from tilewatch.worker.git.watched import WatchedRepository
from tilewatch.worker.settings import EVERY_KERNEL, Settings
from tilewatch.worker.submitting import submit
from tilewatch.worker.submitting.submit import NothingToSubmit, Source, submit_nightly, submit_sweep
from tilewatch.worker.submitting.submit_check import CheckAsked, submit_check
from tilewatch.worker.submitting.submit_toolchains import ToolchainsAsked, submit_toolchains

NIGHT = dt.date(2026, 11, 1)


def counts(settings: Settings) -> dict[str, int]:
    with session(settings.connection().database_url) as opened:
        return {
            table.name: opened.execute(select(func.count()).select_from(table)).scalar_one()
            for table in Base.metadata.sorted_tables
        }


def messages(settings: Settings, queue: str) -> int:
    with redis.Redis.from_url(settings.connection().broker_url) as client:
        waiting: int = client.llen(queue)
        return waiting


def test_a_nightly_becomes_sweeps_trials_jobs_and_messages(settings: Settings) -> None:
    submitted = submit_nightly(settings, night=NIGHT)
    assert submitted.created
    with session(settings.connection().database_url) as opened:
        submission = opened.scalars(select(Submission)).one()
        assert (submission.reason, submission.night, submission.gpu_model) == ("nightly", NIGHT, "h200")
        sweeps = opened.scalars(select(Sweep).order_by(Sweep.problem)).all()
        assert [sweep.problem for sweep in sweeps] == list(tiny_repository.PROBLEMS)
        assert set(sweeps[0].space) == {"axes", "rate", "tile_table"}
        assert sweeps[0].space["rate"] == {"type": "tf32", "tflops": 494.7}
        assert opened.scalar(select(func.count(Trial.config_id))) == tiny_repository.CONFIGS * len(
            tiny_repository.PROBLEMS
        )
        job = opened.scalars(select(Job)).one()
        assert (job.kind, job.queue, job.state) == ("compile", "compile", "queued")
        assert job.sent_at is not None
    assert messages(settings, "compile") == 1


def test_a_checkout_that_nobody_chose_gives_way_to_what_somebody_adds(settings: Settings) -> None:
    submit_nightly(settings)
    settings.__pydantic_fields_set__.discard("repository")
    tiny_repository.commit(settings.repository, "Another commit", factor=3)
    submit_nightly(settings)
    with session(settings.connection().database_url) as opened:
        priorities = opened.scalars(select(Job.priority).order_by(Job.id)).all()
    assert (priorities[0], priorities[-1]) == (Priority.NIGHTLY, Priority.BACKFILL)


def test_a_night_is_submitted_once(settings: Settings) -> None:
    first = submit_nightly(settings, night=NIGHT)
    before = counts(settings)
    second = submit_nightly(settings, night=NIGHT)
    assert not second.created
    assert second.submission_ids == first.submission_ids
    assert "was submitted before" in second.sentence
    assert counts(settings) == before
    assert messages(settings, "compile") == 1


def test_a_manual_sweep_is_a_new_submission_each_time(settings: Settings) -> None:
    first = submit_sweep(settings, "double", "1024")
    second = submit_sweep(settings, "double", "1024")
    assert first.created
    assert second.created
    assert first.submission_ids != second.submission_ids


def test_a_gpu_model_without_a_worker_gets_static_facts_only_and_the_sentence_says_so(settings: Settings) -> None:
    submitted = submit_nightly(settings, gpus=("b200",), night=NIGHT)
    assert "static facts only for b200" in submitted.sentence
    with session(settings.connection().database_url) as opened:
        assert not opened.scalars(select(Submission)).one().measure
        assert opened.scalars(select(Job.kind)).all() == ["compile"]


def test_an_older_commit_can_be_submitted(settings: Settings) -> None:
    tiny_repository.commit(settings.repository, "Triple numbers", factor=3)
    submit_nightly(settings, commit="HEAD~1", night=NIGHT)
    with session(settings.connection().database_url) as opened:
        commit = opened.scalars(select(Commit)).one()
    assert (commit.position, commit.subject) == (1, "Double numbers")


@pytest.mark.parametrize(
    ("kernel", "problem", "options", "error", "words"),
    [
        ("duoble", "1024", {}, UnknownKernel, "nearest: double"),
        ("double", "63", {}, BadProblem, "'63' is not a problem of double"),
        ("double", "1024", {"gpus": ("h201",)}, UnknownGpu, "nearest: h20, h200"),
        ("double", "1024", {"commit": "nosuch"}, RepositoryError, "no commit 'nosuch'"),
    ],
)
def test_bad_input_is_a_sentence_and_writes_nothing(
    settings: Settings, kernel: str, problem: str, options: dict, error: type[Exception], words: str
) -> None:
    before = counts(settings)
    with pytest.raises(error, match=words):
        submit_sweep(settings, kernel, problem, **options)
    assert counts(settings) == before
    assert messages(settings, "compile") == 0


def test_nothing_watched_and_no_gpu_is_said(settings: Settings) -> None:
    with pytest.raises(NothingToSubmit, match="name a GPU model"):
        submit_nightly(settings.model_copy(update={"watch": ()}))


def test_a_file_that_does_not_load_costs_its_own_kernels_and_the_sentence_says_so(settings: Settings) -> None:
    (settings.repository / "library" / "broken.py").write_text("import tilegym\n")
    tiny_repository.commit(settings.repository, "Add a file that needs a package", factor=3)
    submitted = submit_nightly(settings, night=NIGHT)
    assert submitted.created
    assert "; left out: library file broken.py does not load: ModuleNotFoundError" in submitted.sentence
    with session(settings.connection().database_url) as opened:
        assert len(opened.scalars(select(Sweep)).all()) == len(tiny_repository.PROBLEMS)


def test_a_gpu_model_without_a_config_gets_no_submission(settings: Settings) -> None:
    """It had no sweep, so it never ended and its night was late for ever."""
    only_of(settings, "sm_100")
    submitted = submit_nightly(settings, gpus=("b200", "h200"), night=NIGHT)
    assert "on b200;" in submitted.sentence
    assert "; left out: h200, for which no kernel has a config" in submitted.sentence
    with session(settings.connection().database_url) as opened:
        assert opened.scalars(select(Submission.gpu_model)).all() == ["b200"]


@pytest.mark.parametrize("broken", ["import tilegym\n", "def broken(:\n"], ids=("package", "syntax"))
def test_a_broken_file_and_a_gpu_model_without_a_config_cost_that_model_alone(settings: Settings, broken: str) -> None:
    """What is raised where no kernel is left refused all GPU models."""
    (settings.repository / "library" / "broken.py").write_text(broken)
    only_of(settings, "sm_100")
    submitted = submit_nightly(settings, gpus=("h200", "b200"), night=NIGHT)
    assert "on b200;" in submitted.sentence
    assert "; left out: h200, for which no kernel is left: library file broken.py does not load" in submitted.sentence
    with session(settings.connection().database_url) as opened:
        assert opened.scalars(select(Submission.gpu_model)).all() == ["b200"]


def test_a_sweep_is_submitted_for_the_gpu_models_that_have_a_config(settings: Settings) -> None:
    only_of(settings, "sm_100")
    submitted = submit_sweep(settings, "double", "1024", gpus=("h200", "b200"))
    assert "; left out: h200, for which no kernel is left: kernel double has no config for sm_90" in submitted.sentence
    with pytest.raises(NoConfigs, match=r"^kernel double has no config for sm_90$"):
        submit_sweep(settings, "double", "1024", gpus=("h200",))


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        ((EVERY_KERNEL,), "no kernel in the library's suite has a config for h200"),
        (("double", "add"), "of double, add "),
    ],
)
def test_a_night_without_any_config_is_refused_and_the_setting_is_named_if_there_is_one(
    settings: Settings, kernels: tuple[str, ...], words: str
) -> None:
    only_of(settings, "sm_100")
    with pytest.raises(NothingToSubmit, match=words) as raised:
        submit_nightly(settings.model_copy(update={"kernels": kernels}), gpus=("h200",), night=NIGHT)
    assert ("TILEWATCH_KERNELS" in str(raised.value)) == (kernels != (EVERY_KERNEL,))


@pytest.fixture
def retired(settings: Settings) -> Settings:
    """Settings that watch no GPU model, with a worker of an H200, and one of a B200 that nobody has seen for long."""
    with session(settings.connection().database_url) as opened:
        for slug in ("h200", "b200"):
            fact_writes.add_gpu_model(opened, **device.gpu_model(slug).stored)
            fact_writes.write_heartbeat(opened, slug, kind="gpu", host=slug, gpu_model=slug, toolchain={})
        gone_at = func.now() - steps.RETIRED_AFTER - dt.timedelta(hours=1)
        opened.execute(update(Worker).where(Worker.name == "b200").values(seen_at=gone_at))
    return settings.model_copy(update={"watch": ()})


def test_nothing_waits_for_a_gpu_model_that_is_gone_unless_it_is_named(retired: Settings) -> None:
    head = tiny_repository.commit(retired.repository, "Triple numbers", factor=3)
    assert " on h200" in submit_nightly(retired, night=NIGHT).sentence
    asked = CheckAsked("HEAD~1", "HEAD")
    assert submit_check(retired, "ada", asked).gpu_models == ("h200",)
    assert submit_check(retired, "ada", replace(asked, gpus=("b200",))).gpu_models == ("b200",)
    compared = submit_toolchains(retired, ToolchainsAsked(("installed", "next")))
    assert compared.sentence.endswith(f" at {head[:10]} on h200")
    with session(retired.connection().database_url) as opened:
        assert opened.scalars(select(Submission.gpu_model)).all() == ["h200"]


def test_a_watched_gpu_model_that_is_gone_gets_static_facts_until_it_is_back(retired: Settings) -> None:
    sentence = submit_nightly(retired.model_copy(update={"watch": ("b200",)}), night=NIGHT).sentence
    assert "on b200, h200; static facts only for b200, without a GPU worker" in sentence
    with session(retired.connection().database_url) as opened:
        opened.execute(update(Worker).values(seen_at=func.now()))
    assert "on b200, h200" in (again := submit_nightly(retired, night=NIGHT + dt.timedelta(days=1)).sentence)
    assert "static" not in again


def test_a_gpu_model_that_was_measured_lately_is_not_gone_while_its_worker_restarts(
    retired: Settings, context: Context, drain: Drain
) -> None:
    run_id = make_run(retired, context, drain)
    with session(context.database_url) as opened:
        opened.execute(delete(Worker))
        opened.execute(update(Run).where(Run.id == run_id).values(finished_at=func.now()))
    assert " on h200" in submit_nightly(retired, night=NIGHT).sentence
    with session(context.database_url) as opened:
        opened.execute(update(Run).values(finished_at=func.now() - steps.RETIRED_AFTER - dt.timedelta(hours=1)))
    with pytest.raises(NothingToSubmit, match="no GPU worker was here lately"):
        submit_nightly(retired, night=NIGHT)


@pytest.mark.parametrize(
    ("is_added", "is_named", "kernels", "priority", "listed"),
    [
        (True, False, ("double",), Priority.NIGHTLY, None),
        (False, True, ("double",), Priority.NIGHTLY, ("double",)),
        (False, False, (EVERY_KERNEL,), Priority.BACKFILL, None),
    ],
)
def test_what_somebody_added_is_submitted_whole_and_before_what_nobody_chose(
    settings: Settings,
    is_added: bool,
    is_named: bool,
    kernels: tuple[str, ...],
    priority: Priority,
    listed: tuple[str, ...] | None,
) -> None:
    settings = settings.model_copy(update={"kernels": kernels})
    if not is_named:
        settings.__pydantic_fields_set__.discard("repository")
    clone = Clone("named", "https://example.org/named.git", settings.clones) if is_added else None
    source = Source(WatchedRepository("named", settings.repository, "main", clone), None, "library")
    assert submit._choose_priority(settings, source) == priority
    assert source.list_kernels(settings) == listed
    assert source.words == (" of named" if is_added else "")


@pytest.mark.parametrize(("removed", "words"), [(0, ""), (2, "; 2 measured commits left main, which was rewritten")])
def test_measured_commits_that_left_the_branch_are_counted(settings: Settings, removed: int, words: str) -> None:
    source = WatchedRepository("named", settings.repository, "main")
    assert submit._describe_rewrite(source, removed) == words


def test_a_named_kernel_is_swept_once_for_each_model_whatever_the_setting_lists(settings: Settings) -> None:
    few = settings.model_copy(update={"kernels": ("add",)})
    submitted = submit_sweep(few, "double", "1024", gpus=("h200", "sim", "h200"), once="a request")
    assert len(submitted.submission_ids) == 2
    assert submitted.sentence.startswith("submitted a sweep of double on 1024 for ")
    assert submitted.sentence.endswith(" on h200, sim; static facts only for h200, without a GPU worker")
    again = submit_sweep(few, "double", "1024", gpus=("h200", "sim"), once="a request")
    assert (again.created, again.submission_ids) == (False, submitted.submission_ids)
    assert again.sentence.endswith(" was submitted before, for h200, sim")
    wide = submit_sweep(few, "double", "1024", gpus=("h200",), wide=True)
    assert wide.sentence.startswith("submitted a wide sweep of double on 1024 for ")
    with session(settings.connection().database_url) as opened:
        rows = opened.execute(select(Submission.gpu_model, Submission.measure, Submission.reason, Submission.night))
        wanted = [("h200", False, "manual", None), ("sim", True, "manual", None)]
        assert sorted(map(tuple, rows))[1:] == wanted
        assert set(opened.scalars(select(Sweep.problem))) == {"1024"}
        assert set(opened.scalars(select(Job.priority))) == {Priority.MANUAL}


def test_a_check_is_submitted_once_with_all_that_was_asked(settings: Settings) -> None:
    base = tiny_repository.git(settings.repository, "rev-parse", "HEAD").strip()
    head = tiny_repository.commit(settings.repository, "Triple numbers", factor=3)
    asked = CheckAsked("HEAD~1", "HEAD", kernel="double", gpus=("sim",), fail_over=0.02)
    submitted = submit_check(settings, "ada", asked)
    assert (submitted.created, submitted.gpu_models, submitted.new_check_ids) == (True, ("sim",), submitted.check_ids)
    between = f"{base[:10]}..{head[:10]}"
    assert submitted.sentence == f"submitted the check of {between} (Triple numbers) on sim"
    with session(settings.connection().database_url) as opened:
        check, job = opened.scalars(select(Check)).one(), opened.scalars(select(Job)).one()
    assert (check.base_sha, check.head_sha, check.head_subject) == (base, head, "Triple numbers")
    assert (check.repository, check.gpu_model, check.kernel) == ("watched", "sim", "double")
    assert (check.fail_over, check.who) == (0.02, "ada")
    assert (job.key, job.kind, job.queue) == (f"check:{check.id}:prepare", "prepare_check", "compile")
    assert (job.subject, job.check_id) == (f"check {check.id}: {between} on sim", check.id)
    assert (job.payload["repository"], job.payload["library"]) == ("watched", "library")
    assert (job.priority, job.sent_at is None) == (Priority.MANUAL, False)
    again = submit_check(settings, "grace", asked)
    assert (again.created, again.check_ids, again.new_check_ids) == (False, submitted.check_ids, ())
    assert again.sentence == f"found, submitted before, the check of {between} (Triple numbers) on sim"
    assert messages(settings, "compile") == 1


def test_a_comparison_of_toolchains_names_all_that_was_asked(settings: Settings) -> None:
    settings = settings.model_copy(update={"kernels": ("add",)})
    asked = ToolchainsAsked(("installed", "next"), gpus=("h200", "b200", "h200"), archs=("sm_120", "sm_90"))
    first = submit_toolchains(settings, asked)
    head = tiny_repository.git(settings.repository, "rev-parse", "HEAD").strip()
    words = f"the comparison of installed with next at {head[:10]} on h200, b200"
    assert first.sentence == f"submitted {words}"
    assert submit_toolchains(settings, asked).sentence == f"found, being made already, {words}"
    assert messages(settings, "compile") == 1
    with session(settings.connection().database_url) as opened:
        assert set(opened.scalars(select(GpuModel.slug))) == {"h200", "b200"}
        fact_writes.add_gpu_model(opened, **device.SIMULATED.stored)
        fact_writes.write_heartbeat(opened, "sim", kind="gpu", host="a", gpu_model="sim", toolchain={})
        job, report = opened.scalars(select(Job)).one(), opened.scalars(select(ToolchainReport)).one()
    assert (report.id, report.job_id, report.toolchains) == (first.report_id, job.id, ["installed", "next"])
    assert (job.key, job.kind) == (f"toolchains:{report.id}:compile", "compile_toolchains")
    assert (job.queue, job.priority, job.sent_at is None) == ("compile", Priority.MANUAL, False)
    assert job.subject == f"report {report.id}: installed and next, compiling"
    wanted = {
        "report_id": report.id,
        "toolchains": ["installed", "next"],
        "sha": head,
        "library": "library",
        "gpus": ["h200", "b200"],
        "archs": ["sm_90", "sm_100", "sm_120"],
        "minutes": 10.0,
        "retunes": True,
        "fail_over": 0.01,
        "kernels": ["add"],
    }
    assert {name: job.payload.get(name) for name in wanted} == wanted
    others = [replace(asked, minutes=5.0), replace(asked, retunes=False), replace(asked, kernels=("double",))]
    others += [replace(asked, fail_over=0.02), replace(asked, gpus=("h200",)), replace(asked, archs=())]
    reports = [submit_toolchains(settings, each).report_id for each in others]
    assert len({first.report_id, *reports}) == 7
    watched = settings.model_copy(update={"watch": ("b200", "h200", "gb200")})
    alone = submit_toolchains(watched, ToolchainsAsked(("installed", "next"), kernels=("double",)))
    assert alone.sentence.endswith(" on no GPU: the compilers alone")
    with session(settings.connection().database_url) as opened:
        last = opened.scalars(select(Job.payload).order_by(Job.id.desc())).first()
    assert last is not None
    assert (last["archs"], last["gpus"], last["kernels"]) == (["sm_100", "sm_90"], [], ["double"])


def only_of(settings: Settings, arch: str) -> None:
    """Commits a library whose only kernel has configs for one architecture."""
    tiny_repository.commit(settings.repository, "Change the space", factor=3)
    file = settings.repository / "library" / "double.py"
    file.write_text(file.read_text().replace("(64, 128, 256, 96)", f'(64,) if arch == "{arch}" else ()'))
    tiny_repository.git(settings.repository, "commit", "--quiet", "--all", "--message", "Need one architecture")
