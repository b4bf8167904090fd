"""Submitting: what it leaves in Postgres and Redis, and the bad input that leaves nothing."""

import datetime as dt

import pytest
import redis
from sqlalchemy import func, select

from tests.worker.fixtures import tiny_repository
from tilewatch.db.lifecycle.jobs import Priority
from tilewatch.db.models import Base, Commit, Job, Submission, Sweep, Trial
from tilewatch.db.session import session
from tilewatch.kernels.catalog.catalog import UnknownKernel
from tilewatch.kernels.contract import BadProblem
from tilewatch.kernels.device import UnknownGpu
from tilewatch.worker.git.commits import RepositoryError
from tilewatch.worker.settings import EVERY_KERNEL, Settings
from tilewatch.worker.submitting.submit import NothingToSubmit, submit_nightly, submit_sweep

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


def only_of(settings: Settings, arch: str) -> None:
    """Commits a library whose only kernel has configs for one architecture."""
    tiny_repository.commit(settings.repository, "Change the space", factor=3)
    file = settings.repository / "library" / "double.py"
    file.write_text(file.read_text().replace("(64, 128, 256, 96)", f'(64,) if arch == "{arch}" else ()'))
    tiny_repository.git(settings.repository, "commit", "--quiet", "--all", "--message", "Need one architecture")
