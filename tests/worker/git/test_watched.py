"""Two real repositories that Tilewatch clones itself: what is watched, and that nothing of them mixes."""

import shutil
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.compiled_sweep import end_wait
from tests.worker.fixtures.worker_context import Drain, do_all_jobs
from tilewatch.db.lifecycle import repositories as lifecycle
from tilewatch.db.lifecycle.repositories import RepositoryRefused
from tilewatch.db.models import Commit, Job, Regression, Run, Submission, Sweep, Trial, Verdict
from tilewatch.db.page_reads import series
from tilewatch.db.session import session
from tilewatch.db.worker_reads import repositories
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.git.clones import BadAddress
from tilewatch.worker.git.commits import RepositoryError, first_parents, resolve
from tilewatch.worker.notify.alarms import find_failed_fetches
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import schedule
from tilewatch.worker.submitting.submit import submit_nightly, submit_sweep


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A repository with a kernel of the same name, which triples."""
    folder = tiny_repository.make(tmp_path / "remote" / "other")
    tiny_repository.commit(folder, "Triple numbers", factor=3)
    return folder


@pytest.fixture
def two(settings: Settings, repository: Path, other: Path) -> Settings:
    """Settings that name no repository, with two that were added: `watched` and `other`."""
    named = {name: getattr(settings, name) for name in settings.model_fields_set - {"repository"}}
    add(settings, repository)
    add(settings, other)
    return Settings(**named)


def add(settings: Settings, address: object, name: str | None = None, branch: str | None = None) -> str:
    with session(settings.connection().database_url) as opened:
        return watched.add(opened, settings, str(address), name=name, branch=branch).name


def names(settings: Settings) -> list[str]:
    return watched.list_names(settings.connection().database_url, settings)


def test_the_repository_of_the_settings_is_watched_until_another_is_added_unless_it_was_named(
    settings: Settings, two: Settings
) -> None:
    assert names(two) == ["watched", "other"]
    with session(two.connection().database_url) as opened:
        lifecycle.remove(opened, "watched")
    assert names(settings) == ["watched", "other"], "TILEWATCH_REPOSITORY names it"
    assert names(two) == ["other"]
    with session(two.connection().database_url) as opened:
        assert watched.choose(opened, settings, None).clone is None
        assert watched.choose(opened, two, None).name == "other"
        lifecycle.remove(opened, "other")
        (own,) = watched.list_watched(opened, two)
        assert own.clone is None


def test_without_a_name_several_repositories_are_listed(two: Settings) -> None:
    with pytest.raises(RepositoryError, match="so name the repository: watched, other"):
        submit_nightly(two)
    with pytest.raises(RepositoryError, match="no repository 'third' is watched; those that are: watched, other"):
        submit_nightly(two, repository="third")


def test_a_branch_is_followed_that_was_named_or_stands_in_pyproject_or_is_the_default_one(
    settings: Settings, other: Path
) -> None:
    tiny_repository.git(other, "branch", "release")
    tiny_repository.git(other, "branch", "stable")
    with session(settings.connection().database_url) as opened:
        assert watched.add(opened, settings, str(other), name="a", branch=None).branch == "main"
    (other / "pyproject.toml").write_text('[tool.tilewatch]\nbranch = "release"\n')
    tiny_repository.commit(other, "Follow the release", factor=3)
    with session(settings.connection().database_url) as opened:
        assert watched.add(opened, settings, str(other), name="b", branch=None).branch == "release"
        assert watched.add(opened, settings, str(other), name="c", branch="stable").branch == "stable"
        lifecycle.remove(opened, "c")  # as on another node, so that this one keeps its clone
        again = watched.add(opened, settings, str(other), name="c", branch=None)
        assert again.branch == "release", "as the remote's default branch says, and not the one that the clone followed"
        with pytest.raises(RepositoryError, match="d has no branch 'nosuch'"):
            watched.add(opened, settings, str(other), name="d", branch="nosuch")
        assert repositories.find_repository(opened, "d") is None


@pytest.mark.parametrize(
    "address",
    [
        "https://me:secret@example.org/kernels.git",
        "https://secret@example.org/kernels.git",
        "https://example.org/kernels.git?token=secret",
        "ssh://git:secret@example.org/kernels.git",
        "me:secret@example.org/kernels.git",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(settings: Settings, address: str) -> None:
    with pytest.raises(BadAddress, match="give it without") as raised:
        add(settings, address)
    assert "secret" not in str(raised.value)
    assert not settings.clones.exists()


@pytest.mark.parametrize("address", ["nowhere", "--upload-pack=touch x", "ext::sh -c touch% x"])
def test_what_is_no_address_is_refused(settings: Settings, address: str) -> None:
    with pytest.raises(BadAddress, match="is neither a folder here nor an address"):
        add(settings, address)


def test_a_repository_that_cannot_be_cloned_is_not_added(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match=r"gone cannot be fetched: .*does not appear to be a git repository"):
        add(settings, f"file://{tmp_path}/gone")
    with session(settings.connection().database_url) as opened:
        assert repositories.list_repositories(opened) == []


def test_a_name_is_of_one_repository_for_ever(two: Settings, other: Path, repository: Path) -> None:
    tiny_repository.git(other, "branch", "release")
    with pytest.raises(
        RepositoryRefused, match=r"other is watched already, .*; `tilewatch submit nightly --repository other`"
    ):
        add(two, other, branch="release")
    with session(two.connection().database_url) as opened:
        clone = watched.choose(opened, two, "other").clone
    assert clone is not None
    assert tiny_repository.git(clone.folder, "symbolic-ref", "HEAD").strip() == "refs/heads/main", "it is as it was"
    with session(two.connection().database_url) as opened:
        lifecycle.remove(opened, "other")
    with pytest.raises(RepositoryRefused, match="the name other belongs to"):
        add(two, repository, name="other")
    assert [folder.name for folder in two.clones.glob("other-*.git")] == [clone.folder.name], "nothing was cloned"
    assert add(two, other, branch="main") == "other"


def test_equal_kernels_of_two_repositories_at_one_commit_do_not_mix(two: Settings, context: Context) -> None:
    """`fork` has the very commit of `watched`, so commits, submissions and jobs differ by their repository alone."""
    fork = context.clones.parent / "fork"
    shutil.copytree(two.clones.parent.parent / "watched", fork)
    add(two, fork)
    sentences = schedule.submit(two)
    assert [sentence.partition(" on ")[0].rpartition(" of ")[2] for sentence in sentences] == [
        "watched",
        "other",
        "fork",
    ]
    with session(context.database_url) as opened:
        shas = dict(opened.execute(select(Commit.repository, Commit.sha)).all())
        assert shas["watched"] == shas["fork"] != shas["other"]
        assert set(opened.scalars(select(Job.payload["repository"].astext).where(Job.kind == "compile"))) == set(shas)
        assert opened.scalar(select(func.count(Submission.id))) == 3
    assert all("was submitted before" in sentence for sentence in schedule.submit(two))


def test_runs_trends_and_verdicts_are_of_one_repository(two: Settings, context: Context, drain: Drain) -> None:
    for name in ("watched", "other"):
        submit_sweep(two, tiny_repository.KERNEL, "1024", repository=name, gpus=("sim",))
    drain()
    with session(context.database_url) as opened:
        assert opened.scalar(select(func.count(Job.id)).where(Job.state != "done")) == 0
        found = {(row.repository, row.kernel) for row in series.list_series(opened)}
        assert found == {("watched", "double"), ("other", "double")}
        assert opened.scalar(select(func.count(Verdict.run_id))) == opened.scalar(select(func.count(Run.id))) == 2
        points = {name: series.list_points(opened, name, "double", "1024", "sim") for name in ("watched", "other")}
        assert {len({point.run_id for point in each}) for each in points.values()} == {1}
        assert opened.scalars(select(Regression)).all() == []


def test_another_node_clones_from_the_address_in_the_database(two: Settings, context: Context, tmp_path: Path) -> None:
    submit_sweep(two, tiny_repository.KERNEL, "1024", repository="other", gpus=("sim",))
    shutil.rmtree(two.home)
    node = Context.of(two.model_copy(update={"home": tmp_path / "node", "repository": tmp_path / "none"}))
    do_all_jobs(node)
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(Job.state))) == {"done"}
        assert opened.scalar(select(func.count(Trial.config_id)).where(Trial.status == "timed")) == 3
    assert [folder.name[:6] for folder in node.clones.glob("*.git")] == ["other-"]


def test_a_commit_that_came_later_is_fetched_by_the_worker_that_lacks_it(
    two: Settings, other: Path, tmp_path: Path
) -> None:
    node = Context.of(two.model_copy(update={"home": tmp_path / "node"}))
    first = tiny_repository.git(other, "rev-parse", "HEAD").strip()
    watched.library_at(node, "other", first, "library")
    later = tiny_repository.commit(other, "Four times", factor=4)
    assert "* 4.0" in (watched.library_at(node, "other", later, "library") / "double.py").read_text()
    with pytest.raises(RepositoryError, match="other has no commit"):
        watched.library_at(node, "other", "0" * 40, "library")


def test_a_checkout_of_a_commit_that_a_fork_shares_does_not_stand_in_for_the_clone_of_the_fork(
    two: Settings, tmp_path: Path
) -> None:
    fork = Path(shutil.copytree(two.clones.parent.parent / "watched", tmp_path / "fork"))
    add(two, fork)
    node = Context.of(two.model_copy(update={"home": tmp_path / "node"}))
    sha = tiny_repository.git(fork, "rev-parse", "HEAD").strip()
    of_watched = watched.library_at(node, "watched", sha, "library")
    assert watched.library_at(node, "fork", sha, "library") == of_watched
    assert {folder.name.split("-")[0] for folder in node.clones.glob("*.git")} == {"watched", "fork"}


def test_a_job_waits_while_its_repository_cannot_be_reached(
    two: Settings, context: Context, other: Path, tmp_path: Path
) -> None:
    submit_sweep(two, tiny_repository.KERNEL, "1024", repository="other", gpus=("sim",))
    away = other.rename(tmp_path / "away")
    node = Context.of(two.model_copy(update={"home": tmp_path / "node"}))
    with session(context.database_url) as opened:
        (planning,) = opened.scalars(select(Job.id).where(Job.kind == "compile"))
    run_job.run(planning, "compiler#1", node)  # it plans from the database alone
    with session(context.database_url) as opened:
        (batch,) = opened.scalars(select(Job.id).where(Job.kind == "compile", Job.state == "queued"))
    with pytest.raises(NotNow, match="other cannot be fetched"):
        run_job.run(batch, "compiler#1", node)
    with session(context.database_url) as opened:
        assert (opened.get_one(Job, batch).state, opened.get_one(Job, batch).failure) == ("queued", None)
    away.rename(other)
    end_wait(context, batch)
    run_job.run(batch, "compiler#1", node)
    with session(context.database_url) as opened:
        assert opened.get_one(Job, batch).state == "done"


def test_a_night_without_a_fetch_measures_what_was_fetched_last_and_says_so(
    two: Settings, context: Context, other: Path, tmp_path: Path
) -> None:
    away = other.rename(tmp_path / "away")
    sentence = next(each for each in schedule.submit(two) if " of other " in each)
    assert "the clone is as it was: other cannot be fetched" in sentence
    with session(context.database_url) as opened:
        failing = repositories.find_repository(opened, "other")
        assert failing is not None
        assert failing.failing_since is not None
        fine = repositories.find_repository(opened, "watched")
        assert fine is not None
        assert fine.failure is None
    away.rename(other)
    schedule.submit(two)
    with session(context.database_url) as opened:
        assert [row.failure for row in repositories.list_repositories(opened)] == [None, None]


def test_a_branch_that_is_gone_is_said_and_found_again(two: Settings, context: Context, other: Path) -> None:
    tiny_repository.git(other, "branch", "--move", "main", "trunk")
    gone = (
        "other has no branch 'main'; its default branch is 'trunk', which "
        f"`tilewatch watch add {other} --name other --branch trunk` follows, with all that was measured; if it is "
        "watched already, `tilewatch watch remove other` comes first"
    )
    assert schedule.submit(two)[1] == f"no nightly was submitted for other: {gone}"
    with session(context.database_url) as opened:
        rows = repositories.list_repositories(opened)
        assert [row.failure for row in rows] == [None, gone]
    (alarm,) = find_failed_fetches(rows)
    assert "and there are none while the branch 'main' is gone" in alarm.detail
    tiny_repository.git(other, "branch", "main", "trunk")
    assert schedule.submit(two)[1].startswith("submitted the nightly of ")
    with session(context.database_url) as opened:
        assert [row.failure for row in repositories.list_repositories(opened)] == [None, None]


def test_a_commit_stays_readable_when_the_followed_branch_is_gone(two: Settings, context: Context, other: Path) -> None:
    sha = resolve(other, "HEAD").sha
    tiny_repository.git(other, "branch", "--move", "main", "trunk")
    schedule.submit(two)
    assert (watched.library_at(context, "other", sha, two.library) / "double.py").is_file()


def test_a_library_that_does_not_load_hinders_no_other_repository(two: Settings, repository: Path) -> None:
    tiny_repository.git(repository, "rm", "-r", "--quiet", "library")
    tiny_repository.git(repository, "commit", "--quiet", "--message", "Remove it")
    broken, fine = schedule.submit(two)
    assert broken.startswith("no nightly was submitted for watched: commit ")
    assert "of other" in fine


def test_a_removed_repository_keeps_its_history_and_gets_no_jobs(two: Settings, context: Context, drain: Drain) -> None:
    submit_sweep(two, tiny_repository.KERNEL, "1024", repository="other", gpus=("sim",))
    drain()
    submit_nightly(two, repository="other")
    with session(context.database_url) as opened:
        assert lifecycle.remove(opened, "other") == 1
    assert len(schedule.submit(two)) == 1
    with session(context.database_url) as opened:
        assert [row.repository for row in series.list_series(opened)] == ["other"]
        assert set(opened.scalars(select(Job.state).where(Job.payload["repository"].astext == "other"))) <= {
            "done",
            "cancelled",
        }
        assert opened.scalar(select(func.count(Sweep.id)).where(Sweep.repository == "other")) == 3
    with pytest.raises(RepositoryError, match="other is not watched any more"):
        watched.library_at(context, "other", "0" * 40, "library")


def test_what_no_branch_has_is_fetched_by_its_name_and_kept_apart(two: Settings, other: Path, context: Context) -> None:
    tiny_repository.git(other, "switch", "--quiet", "--detach")
    sha = tiny_repository.commit(other, "Five times", factor=5)
    tiny_repository.git(other, "update-ref", "refs/pull/12/head", sha)
    tiny_repository.git(other, "switch", "--quiet", "main")
    submitted = submit_nightly(two, repository="other", commit="pull/12/head")
    assert "kept apart as 'other (branch pull/12/head)'" in submitted.sentence
    with session(context.database_url) as opened:
        assert opened.scalar(select(Commit.repository).where(Commit.sha == sha)) == "other (branch pull/12/head)"
    with pytest.raises(RepositoryError, match="other has no commit 'pull/13/head'"):
        submit_nightly(two, repository="other", commit="pull/13/head")


def test_a_commit_says_where_its_watch_files_lie(two: Settings, context: Context, drain: Drain, other: Path) -> None:
    before = tiny_repository.git(other, "rev-parse", "HEAD").strip()
    tiny_repository.git(other, "mv", "library", "watch")
    (other / "pyproject.toml").write_text('[tool.tilewatch]\nwatch = "watch"\n')
    tiny_repository.git(other, "add", ".")
    tiny_repository.git(other, "commit", "--quiet", "--message", "Move the watch files")
    submit_sweep(two, tiny_repository.KERNEL, "1024", repository="other", gpus=("sim",))
    submit_sweep(two, tiny_repository.KERNEL, "1024", repository="other", commit=before, gpus=("sim",))
    drain()
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(Job.state))) == {"done"}
        assert opened.scalar(select(func.count(Run.id))) == 2


@pytest.mark.usefixtures("two")
def test_the_judge_reads_the_history_of_the_repository_that_a_night_is_of(
    settings: Settings, context: Context, other: Path
) -> None:
    sha = tiny_repository.git(other, "rev-parse", "HEAD").strip()
    with session(context.database_url) as opened:
        clone = watched.find_history(opened, context, "other")
        assert clone is not None
        assert clone.parent == settings.clones
        assert len(first_parents(clone, sha, 10)) == 2
        assert watched.find_history(opened, context, "other (branch faster)") is None
        assert watched.find_history(opened, context, "elsewhere") is None
        lifecycle.remove(opened, "watched")
        mine = watched.list_watched(opened, settings)[0]
        assert (mine.name, mine.folder) == ("watched", settings.repository), "no clone: its owner fetches it"
