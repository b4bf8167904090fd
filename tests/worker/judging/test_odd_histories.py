"""Replays and bisections over a rewritten history and a foxtrot merge ask for the commits that lead to a change."""

from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from tests.worker.fixtures import git_history, odd_histories
from tests.worker.fixtures.git_history import ADD, BASE, CAST, NAME, WORDS
from tests.worker.fixtures.nights import submit_night
from tests.worker.fixtures.tiny_repository import git
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db.lifecycle import actions
from tilewatch.db.models import Action, Commit, Job, Regression, Replay
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.judging import judge
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import submit_requests

TICKS = 8


@pytest.fixture
def watched(tmp_path: Path, database_url: str, broker_url: str, known_cubins: str) -> Settings:
    """Settings for a repository that a test makes."""
    made = settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url, known_cubins)
    return made.model_copy(update={"sim_seed": git_history.SIM_SEED})


def do_night(settings: Settings, sha: str, number: int) -> None:
    submit_night(settings, sha, number)
    do_all_jobs(Context.of(settings))


def read_range(settings: Settings) -> tuple[str, str]:
    """The subjects of the commits between which the regression came."""
    with session(settings.connection().database_url) as opened:
        (found,) = opened.scalars(select(Regression).where(Regression.direction == "regression"))
        subjects = {commit.id: commit.subject for commit in opened.scalars(select(Commit))}
        return subjects[found.good_commit_id], subjects[found.bad_commit_id]


def bisect(settings: Settings, good: str, bad: str) -> str:
    """Widens the regression to these commits, forgets what the judge found by itself, and bisects; the outcome."""
    database_url = settings.connection().database_url
    with session(database_url) as opened:
        ids = {commit.sha: commit.id for commit in opened.scalars(select(Commit))}
        number = opened.scalars(select(Regression.id).where(Regression.direction == "regression")).one()
        wide = {"good_commit_id": ids[good], "bad_commit_id": ids[bad]}
        opened.execute(update(Regression).where(Regression.id == number).values(**wide))
        opened.execute(delete(Replay))
        opened.execute(delete(Job).where(Job.kind.in_(("prepare", "confirm"))))
        actions.bisect(opened, number, "ada")
    for _ in range(TICKS):
        if submit_requests.carry_out(settings):
            break
        do_all_jobs(Context.of(settings))
    with session(database_url) as opened:
        return str(opened.scalars(select(Action.outcome)).one())


def test_a_change_after_a_rewrite_is_found_among_the_commits_that_replaced_the_old_ones(watched: Settings) -> None:
    judge.forget()
    shas = git_history.make(watched.repository, ADD, WORDS)
    do_night(watched, shas[ADD], 0)
    do_night(watched, shas[WORDS], 1)
    git(watched.repository, "reset", "--quiet", "--hard", shas[ADD])
    cast, name = (git_history.commit_change(watched.repository, subject) for subject in (CAST, NAME))
    do_night(watched, name, 2)
    assert read_range(watched) == (WORDS, CAST), "the night before, which left the branch, and who did it"
    assert bisect(watched, shas[ADD], name) == f"the first bad commit is {cast[:10]}"
    assert read_range(watched) == (ADD, CAST), "nothing that left the branch lies between the two"


def test_a_change_after_a_foxtrot_merge_is_not_blamed_on_what_was_merged_first(watched: Settings) -> None:
    """The side commit has the slow code of the first commit, and is none that leads from the last good one."""
    judge.forget()
    folder = watched.repository
    shas = git_history.make(folder, ADD, WORDS)
    do_night(watched, shas[ADD], 0)
    do_night(watched, shas[WORDS], 1)
    git(folder, "switch", "--quiet", "--create", "side", shas[BASE])
    odd_histories.add(folder, "Side")
    git(folder, "merge", "--quiet", "--no-ff", "--message", "Merge main", "main")
    git(folder, "branch", "--force", "main", "side")
    git(folder, "switch", "--quiet", "main")
    cast = git_history.commit_change(folder, CAST)
    name = git_history.commit_change(folder, NAME)
    do_night(watched, name, 2)
    good, bad = read_range(watched)
    assert good in (WORDS, "Merge main")
    assert bad == CAST
    assert bisect(watched, shas[WORDS], name) == f"the first bad commit is {cast[:10]}"
    assert read_range(watched) == ("Merge main", CAST)
