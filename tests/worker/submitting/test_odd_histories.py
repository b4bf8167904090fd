"""Nights over histories that Git allows and nobody expects: none loses its place or hinders another repository."""

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select, update

from tests.worker.fixtures import odd_histories, tiny_repository
from tests.worker.fixtures.tiny_repository import git
from tilewatch.db.lifecycle import repositories
from tilewatch.db.models import Alarm, Commit, Submission
from tilewatch.db.session import session
from tilewatch.db.worker_reads.repositories import list_rewrites
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.git import watched
from tilewatch.worker.git.clones import FetchFailed
from tilewatch.worker.notify.outbox import Outbox
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.senders import Log
from tilewatch.worker.notify.update_alarms import update_alarms
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import schedule
from tilewatch.worker.submitting.submit import submit_backfill, submit_nightly


def stored(settings: Settings) -> dict[str, tuple[str, int, bool]]:
    """Repository, position, and whether it left its branch, of each commit on record, by sha."""
    with session(settings.connection().database_url) as opened:
        return {
            row.sha: (row.repository, row.position, row.left_branch_at is not None)
            for row in opened.scalars(select(Commit))
        }


def night(settings: Settings, number: int, commit: str = "HEAD") -> str:
    return submit_nightly(settings, commit=commit, night=dt.date(2026, 11, number), gpus=("h200",)).sentence


def test_a_tag_with_the_branchs_name_keeps_no_commit_off_the_main_line(settings: Settings) -> None:
    first = git(settings.repository, "rev-parse", "HEAD").strip()
    second = odd_histories.add(settings.repository, "Two")
    git(settings.repository, "tag", "main", first)
    followed = settings.model_copy(update={"branch": "main"})
    assert "kept apart" not in night(followed, 1)
    assert stored(settings) == {second: ("watched", 2, False)}
    assert "kept apart" not in night(followed, 2, "main"), "the branch is meant, not the tag"
    assert set(stored(settings)) == {second}


def test_a_tag_with_the_branchs_name_of_a_repository_that_was_added(settings: Settings, tmp_path: Path) -> None:
    shas = odd_histories.make(tmp_path / "tagged", "Two")
    git(tmp_path / "tagged", "tag", "main", shas[0])
    added = add(settings, tmp_path / "tagged")
    assert added.branch == "main"
    sentence = submit_nightly(settings, repository="tagged", gpus=("h200",)).sentence
    assert "kept apart" not in sentence
    assert stored(settings)[shas[1]] == ("tagged", 2, False)


def test_a_backfill_means_branches_where_tags_have_their_names(settings: Settings) -> None:
    first = git(settings.repository, "rev-parse", "HEAD").strip()
    git(settings.repository, "branch", "old")
    second = odd_histories.add(settings.repository, "Two")
    git(settings.repository, "tag", "main", first)
    git(settings.repository, "tag", "old", second)
    assert [each.created for each in submit_backfill(settings, "old..main", gpus=("h200",))] == [True]
    assert stored(settings) == {second: ("watched", 2, False)}


@pytest.mark.parametrize(
    "date",
    [
        "1764288000 +051800",
        "1764288000 -9999",
        "99999999999999 +0000",
        "18446744073709551615 +0000",
        "0 +0000",
        "-1 +0000",
        "1764288000",
        "yesterday",
        "1764288000 +0000 +0000",
    ],
)
def test_a_date_is_decoration(settings: Settings, date: str) -> None:
    sha = odd_histories.date_oddly(settings.repository, date)
    later = odd_histories.add(settings.repository, "Two", committed_at="1000000000 +0000")
    assert night(settings, 1, sha).startswith("submitted")
    assert night(settings, 2).startswith("submitted")
    assert [stored(settings)[each][1] for each in (sha, later)] == [1, 2]
    with session(settings.connection().database_url) as opened:
        dates = list(opened.scalars(select(Commit.committed_at)))
    assert all(dt.datetime(1970, 1, 1, tzinfo=dt.UTC) <= each <= dt.datetime.now(dt.UTC) for each in dates)


def test_a_foxtrot_merge_is_the_newest_and_moves_no_older_commit(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "foxtrot"
    five = odd_histories.make(folder, *(f"Main {number}" for number in (2, 3, 4, 5)))
    own = settings.model_copy(update={"repository": folder})
    for number, sha in enumerate(five, 1):
        night(own, number, sha)
    git(folder, "switch", "--quiet", "--create", "side", five[0])
    side = odd_histories.add(folder, "Side")
    git(folder, "merge", "--quiet", "--no-ff", "--message", "Merge main", "main")
    merge = git(folder, "rev-parse", "HEAD").strip()
    git(folder, "branch", "--force", "main", merge)
    git(folder, "switch", "--quiet", "main")
    assert "left" not in night(own, 6)
    places = stored(settings)
    assert [places[sha] for sha in (*five, merge)] == [
        *(("foxtrot", position, False) for position in (1, 2, 3, 4, 5)),
        ("foxtrot", 7, False),
    ]
    assert "kept apart" not in night(own, 7, five[3]), "it was on the main line, and still is"
    assert [each.created for each in submit_backfill(own, f"{five[1]}..HEAD", gpus=("h200",))] == [True] * 5
    assert stored(settings)[side] == ("foxtrot", 6, False)


def test_a_rewritten_history_is_kept_before_what_replaced_it(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "rewritten"
    base, *old = odd_histories.make(folder, "Old 1", "Old 2", "Old 3")
    own = settings.model_copy(update={"repository": folder})
    for number, sha in enumerate((base, *old), 1):
        night(own, number, sha)
    (new,) = odd_histories.rewrite(folder, base, "New 1")
    assert "3 measured commits left HEAD, which was rewritten" in night(own, 5)
    assert "left" not in night(own, 6), "it is said once"
    assert stored(settings) == {
        base: ("rewritten", 1, False),
        **{sha: ("rewritten", 2 + place, True) for place, sha in enumerate(old)},
        new: ("rewritten", 5, False),
    }
    assert "kept apart" in night(own, 7, old[0]), "it is on no branch any more"


def test_a_repository_that_is_added_again_with_another_branch_was_not_rewritten(
    settings: Settings, tmp_path: Path
) -> None:
    """The alarm said that somebody had pushed with force."""
    folder = tmp_path / "moved"
    base, old = odd_histories.make(folder, "Old 1")
    git(folder, "branch", "release", base)
    url = settings.connection().database_url
    add(settings, folder)
    submit_nightly(settings, repository="moved", night=dt.date(2026, 11, 1), gpus=("h200",))
    with session(url) as opened:
        repositories.remove(opened, "moved")
    add(settings, folder, "release")
    assert stored(settings) == {old: ("moved", 2, True)}
    submitted = submit_nightly(settings, repository="moved", night=dt.date(2026, 11, 2), gpus=("h200",))
    assert "rewritten" not in submitted.sentence
    long_ago = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
    with session(url) as opened:
        assert list_rewrites(opened, long_ago) == []
    git(folder, "switch", "--quiet", "release")
    git(folder, "commit", "--quiet", "--amend", "--message", "Begin again")
    assert "1 measured commit left release" in submit_nightly(settings, repository="moved", gpus=("h200",)).sentence
    with session(url) as opened:
        assert [each.commits for each in list_rewrites(opened, long_ago)] == [1]


def test_what_left_the_branch_and_comes_back_is_on_it_again(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "undone"
    base, old = odd_histories.make(folder, "Old 1")
    own = settings.model_copy(update={"repository": folder})
    night(own, 1)
    odd_histories.rewrite(folder, base, "New 1")
    night(own, 2)
    assert stored(settings)[old] == ("undone", 2, True)
    git(folder, "reset", "--quiet", "--hard", old)
    night(own, 3)
    assert stored(settings)[old] == ("undone", 3, False)


def test_a_rebased_branch_that_is_kept_apart_is_ordered_alike(settings: Settings) -> None:
    git(settings.repository, "switch", "--quiet", "--create", "feature")
    first = git(settings.repository, "rev-parse", "HEAD").strip()
    followed = settings.model_copy(update={"branch": "main"})
    old = [odd_histories.add(settings.repository, subject) for subject in ("Old 1", "Old 2")]
    night(followed, 1, "feature")
    (new,) = odd_histories.rewrite(settings.repository, first, "New 1")
    night(followed, 2, "feature")
    name = "watched (branch feature)"
    assert stored(settings) == {old[1]: (name, 3, True), new: (name, 4, False)}


def add(settings: Settings, folder: Path, branch: str | None = None) -> watched.WatchedRepository:
    with session(settings.connection().database_url) as opened:
        return watched.add(opened, settings, str(folder), name=None, branch=branch)


@pytest.fixture
def three(settings: Settings, tmp_path: Path) -> tuple[Settings, Path]:
    """Settings with three repositories that were added, and the folder of the middle one's remote."""
    named = {name: getattr(settings, name) for name in settings.model_fields_set - {"repository"}}
    for name in ("first", "middle", "last"):
        add(settings, tiny_repository.make(tmp_path / "remote" / name))
    return Settings(**named), tmp_path / "remote" / "middle"


def _break_library(folder: Path) -> None:
    git(folder, "rm", "-r", "--quiet", "library")
    odd_histories.add(folder, "Remove the library")


def _break_syntax(folder: Path) -> None:
    (folder / "library" / "double.py").write_text("def (")
    git(folder, "add", ".")
    odd_histories.add(folder, "Break the library")


def _break_project(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.tilewatch\n")
    git(folder, "add", ".")
    odd_histories.add(folder, "Break pyproject.toml")


def _break_date(folder: Path) -> None:
    """The date is fine now; what hinders is that the object names no tree."""
    tree = git(folder, "rev-parse", "HEAD^{tree}").strip()
    odd_histories.write_raw(folder, (f"tree {tree}", f"tree {'1' * 40}"))


def _delete_branch(folder: Path) -> None:
    git(folder, "branch", "--move", "main", "trunk")


def _delete_repository(folder: Path) -> None:
    shutil.rmtree(folder)


def _empty_objects(folder: Path) -> None:
    odd_histories.add(folder, "Two")
    shutil.rmtree(folder / ".git" / "objects")
    (folder / ".git" / "objects").mkdir()


def _make_shallow(folder: Path) -> None:
    for subject in ("Two", "Three", "Four"):
        odd_histories.add(folder, subject)
    deep = folder.rename(folder.with_name("deep"))
    git(folder.parent, "clone", "--quiet", "--depth", "2", f"file://{deep}", str(folder))


def _break_index_of_refs(folder: Path) -> None:
    (folder / ".git" / "HEAD").write_text("nonsense\n")


def _make_no_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file\n")


BREAKAGES: list[Callable[[Path], None]] = [
    _break_library,
    _break_syntax,
    _break_project,
    _break_date,
    _delete_branch,
    _delete_repository,
    _empty_objects,
    _make_shallow,
    _break_index_of_refs,
    _make_no_folder,
]


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_of_three_repositories_the_middle_one_hinders_no_other(
    three: tuple[Settings, Path], breakage: Callable[[Path], None]
) -> None:
    settings, middle = three
    breakage(middle)
    first, _, last = schedule.submit(settings)
    assert first.startswith("submitted the nightly of "), first
    assert last.startswith("submitted the nightly of "), last
    assert find_alarms(settings) == ["middle"], "one alarm that names it"
    schedule.submit(settings)
    first, *_, last = schedule.catch_up(settings, find_noon(days=1))
    assert first.startswith("submitted the nightly of "), first
    assert last.startswith("submitted the nightly of "), last
    assert find_alarms(settings, days=1) == ["middle"], "the second night opens no second one"


def test_a_bug_in_one_repository_hinders_no_other_and_ends_its_alarm_with_the_next_nightly(
    three: tuple[Settings, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, _ = three

    def fail(*arguments: Settings, repository: str, night: dt.date) -> object:
        if repository == "middle":
            raise ZeroDivisionError("a bug")
        return submit_nightly(*arguments, repository=repository, night=night)

    monkeypatch.setattr(schedule, "submit_nightly", fail)
    first, broken, last = schedule.submit(settings)
    assert first.startswith("submitted")
    assert last.startswith("submitted")
    assert broken == "no nightly was submitted for middle: ZeroDivisionError: a bug"
    with session(settings.connection().database_url) as opened:
        assert [(row.kind, row.subject, row.detail) for row in opened.scalars(select(Alarm))] == [
            ("nightly_failed", "middle", broken)
        ]
    monkeypatch.undo()
    schedule.submit(settings)
    assert find_alarms(settings) == []


def find_noon(*, days: int) -> dt.datetime:
    """Returns a moment at which that day's nightly is due, whatever the hour of the test."""
    return dt.datetime.combine(dt.datetime.now(dt.UTC).date(), dt.time(12), dt.UTC) + dt.timedelta(days=days)


def find_alarms(settings: Settings, *, days: int = 0) -> list[str]:
    """The subjects of the open alarms after a look at everything."""
    database_url = settings.connection().database_url
    out = Outbox(database_url, NotifySettings(), {"log": Log()}, "http://here")
    names = watched.list_names(database_url, settings)
    now = find_noon(days=days)
    with session(database_url) as opened:  # a night that is still being measured is late, and another test's business
        opened.execute(update(Submission).values(requested_at=now))
    update_alarms(out, names, NightlyTimes(), 0.1, now)
    with session(database_url) as opened:
        open_ = select(Alarm.kind, Alarm.subject).where(Alarm.closed_at.is_(None)).order_by(Alarm.id)
        return [subject for kind, subject in opened.execute(open_)]


def test_a_shallow_source_is_refused_with_what_mends_it(settings: Settings, tmp_path: Path) -> None:
    odd_histories.make(tmp_path / "deep", "Two", "Three")
    git(tmp_path, "clone", "--quiet", "--depth", "2", f"file://{tmp_path}/deep", "shallow")
    with pytest.raises(FetchFailed, match="is a shallow clone: `git fetch --unshallow` brings the other commits"):
        add(settings, tmp_path / "shallow")
    git(tmp_path / "shallow", "fetch", "--quiet", "--unshallow")
    assert add(settings, tmp_path / "shallow").name == "shallow"


def test_a_source_that_became_shallow_is_said_every_night(three: tuple[Settings, Path], tmp_path: Path) -> None:
    settings, middle = three
    schedule.submit(settings)
    for number in range(3):
        tiny_repository.commit(middle, f"More {number}", factor=number + 3)
    shutil.move(middle, tmp_path / "deep")
    git(tmp_path, "clone", "--quiet", "--depth", "2", f"file://{tmp_path}/deep", str(middle))
    sentence = schedule.submit(settings)[1]
    assert "the clone is as it was: middle cannot be followed; it is a shallow clone" in sentence
    assert find_alarms(settings) == ["middle"]
    git(middle, "fetch", "--quiet", "--unshallow")
    assert schedule.submit(settings)[1].startswith("submitted the nightly of ")
    assert find_alarms(settings) == []


def test_a_push_with_force_opens_an_alarm_and_the_next_night_follows_it(three: tuple[Settings, Path]) -> None:
    settings, middle = three
    base = git(middle, "rev-parse", "HEAD").strip()
    old = tiny_repository.commit(middle, "Old", factor=3)
    schedule.submit(settings)
    git(middle, "reset", "--quiet", "--hard", base)
    new = tiny_repository.commit(middle, "New", factor=4)
    assert "1 measured commit left main, which was rewritten" in schedule.submit(settings)[1]
    assert stored(settings)[old] == ("middle", 2, True)
    assert stored(settings)[new] == ("middle", 3, False)
    assert find_alarms(settings) == ["middle"]
