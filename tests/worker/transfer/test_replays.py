"""Replays travel with their runs, and a recorded history is judged as it was where it was measured."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from tests.conftest import NewDatabase
from tests.worker.fixtures import git_history
from tests.worker.fixtures.nights import do_nights, read_verdicts
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db.lifecycle import messages
from tilewatch.db.models import Regression, Replay, Run, Verdict
from tilewatch.db.page_reads import regressions, series
from tilewatch.db.session import session
from tilewatch.db.worker_reads.export import ExportFilter
from tilewatch.kernels.recording import recording_file
from tilewatch.worker.context import Context
from tilewatch.worker.transfer.exporting import export_file
from tilewatch.worker.transfer.importing import import_file

RECORDINGS = Path(__file__).resolve().parents[3] / "recordings"


def imported(tmp_path: Path, url: str, broker_url: str, file: Path) -> Context:
    import_file(url, file)
    settings = settings_for(tmp_path / "there", tmp_path / "nowhere", url, broker_url)
    return Context.of(settings)


def test_a_recorded_history_is_judged_as_where_it_was_measured(
    tmp_path: Path, database_url: str, broker_url: str, new_database: NewDatabase
) -> None:
    """The simulated GPU stands for a real one: its runs and replays are renamed, since simulations do not travel."""
    watched = settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url)
    shas = git_history.make(tmp_path / "watched", git_history.ADD, git_history.WORDS)
    context = do_nights(watched, *shas.values())
    with session(database_url) as opened:
        opened.execute(update(Run).values(origin="measured", timer="events"))
        opened.execute(update(Replay).values(origin="measured", counters={"missing": "no ncu"}))
    verdicts = read_verdicts(context)
    file = tmp_path / "story.jsonl.gz"
    export_file(database_url, file, ExportFilter())
    with new_database() as url:
        there = imported(tmp_path, url, broker_url, file)
        assert not import_file(url, file).created
        do_all_jobs(there)
        assert {subject: [word for word, _ in found] for subject, found in read_verdicts(there).items()} == {
            subject: [word for word, _ in found] for subject, found in verdicts.items()
        }
        with session(url) as opened:
            assert {replay.origin for replay in opened.scalars(select(Replay))} == {"recorded"}
            assert all(each.counters == {"missing": "no ncu"} for each in opened.scalars(select(Replay)))
            assert len(opened.scalars(select(Regression)).all()) == 1


def test_replays_of_two_sites_that_watch_one_repository_do_not_replace_each_other(
    tmp_path: Path, database_url: str, broker_url: str, new_database: NewDatabase
) -> None:
    """Both sites ask the same question about the same commits. The second site once took the first one's answer for
    its own, so that it measured no replay and confirmed no regression."""
    watched = settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url)
    shas = git_history.make(tmp_path / "watched", git_history.ADD, git_history.WORDS)
    verdicts = read_verdicts(do_nights(watched, *shas.values()))
    with session(database_url) as opened:
        opened.execute(update(Run).values(origin="measured", timer="events"))
        opened.execute(update(Replay).values(origin="measured"))
        replays = len(opened.scalars(select(Replay)).all())
    monday, tuesday = tmp_path / "monday.jsonl.gz", tmp_path / "tuesday.jsonl.gz"
    export_file(database_url, monday, ExportFilter())
    contents = recording_file.read(monday)
    recording_file.write(tuesday, replace(contents.header, tool="another"), contents.rows)
    with new_database() as url:
        import_file(url, monday)
        other = settings_for(tmp_path / "other", tmp_path / "watched", url, broker_url, watched.store_url)
        here = do_nights(other, *shas.values())
        import_file(url, tuesday)
        import_file(database_url, tuesday)
        with session(url) as opened:
            assert Counter(opened.scalars(select(Replay.origin))) == {"recorded": replays, "simulated": replays}
            opened.execute(delete(Verdict).where(Verdict.run_id.in_(select(Run.id).where(Run.origin == "recorded"))))
        assert read_verdicts(here) == verdicts
    with session(database_url) as opened:
        assert len(opened.scalars(select(Replay)).all()) == replays, "its own replays came back to it"


@pytest.mark.parametrize("file", sorted(RECORDINGS.glob("story/*.jsonl.gz")), ids=lambda file: file.name)
def test_the_judge_tells_five_real_changes_apart(
    tmp_path: Path, database_url: str, broker_url: str, file: Path
) -> None:
    """What benchmarks/story.py recorded on a real GPU: three changes of speed, a comment and a new name."""
    context = imported(tmp_path, database_url, broker_url, file)
    do_all_jobs(context)
    verdicts = [[verdict for verdict, _ in found] for found in read_verdicts(context).values()]
    assert verdicts[0] == ["undecided"]
    assert all(set(words) <= {"regression", "improvement"} for words in verdicts[1:4])
    assert verdicts[4:] == [["unchanged"], ["unchanged"]]
    with session(context.database_url) as opened:
        found = regressions.list_regressions(opened)
        assert [row.recorded for row in found] == [True] * 3
        assert messages.list_unreported_changes(opened) == [], "people were told where it was recorded"


def cut(tmp_path: Path, sweeps: set[int], replays: int) -> Path:
    """The story's file with these sweeps and the last of its three replays."""
    contents = recording_file.read(RECORDINGS / "story" / "h200.jsonl.gz")
    runs = {row["key"] for row in contents.rows if row["row"] == "run" and row["sweep"] in sweeps}
    keys = [row["key"] for row in contents.rows if row["row"] == "replay"][3 - replays :]
    of_kind = {"sweep": ("id", sweeps), "trial": ("sweep", sweeps), "run": ("sweep", sweeps), "replay": ("key", keys)}
    of_kind |= {"measurement": ("run", runs)}
    rows = [
        row
        for row in contents.rows
        for name, kept in [of_kind.get(row["row"], ("row", ["compilation"]))]
        if row[name] in kept
    ]
    file = tmp_path / f"{min(sweeps)} to {max(sweeps)}.jsonl.gz"
    recording_file.write(file, contents.header, rows)
    return file


@pytest.mark.parametrize("parts", [(({1, 2}, 0), (set(range(1, 7)), 3)), (({3, 4, 5, 6}, 2), ({1, 2}, 3))])
def test_a_history_in_two_files_is_judged_as_in_one(
    tmp_path: Path, database_url: str, broker_url: str, parts: tuple[tuple[set[int], int], ...]
) -> None:
    """A file every night: the replays of a night may come with the next file, or the older file may come later. The
    change of 50 % once stayed undecided, or that of 4 %."""
    for sweeps, replays in parts:
        context = imported(tmp_path, database_url, broker_url, cut(tmp_path, sweeps, replays))
        do_all_jobs(context)
    found = {subject: verdict for subject, [(verdict, _)] in read_verdicts(context).items()}
    assert found["Walk the tiles row by row, without the swizzle"] == "regression"
    assert [*found.values()].count("regression") == 3
    assert [*found.values()].count("unchanged") == 2
    with session(database_url) as opened:
        assert len(regressions.list_regressions(opened)) == 3


def test_a_recorded_history_says_what_each_commit_did(tmp_path: Path, database_url: str, broker_url: str) -> None:
    """What tools/record_history.py recorded of this library on an H100. One machine code has another hash here, as a
    recording from before the hash left names out: that both are the same is on record."""
    contents = recording_file.read(RECORDINGS / "h100-history.jsonl.gz")
    (sweep,) = (
        row["id"]
        for row in contents.rows
        if row["row"] == "sweep" and row["kernel"] == "silu_and_multiply" and row["commit"]["sha"].startswith("01a17a5")
    )
    codes = {row["code_key"] for row in contents.rows if row["row"] == "trial" and row["sweep"] == sweep}
    older = [row | ({"code_sha256": "ab" * 32} if row.get("code_key") in codes else {}) for row in contents.rows]
    file = tmp_path / "history.jsonl.gz"
    recording_file.write(file, contents.header, older)
    context = imported(tmp_path, database_url, broker_url, file)
    do_all_jobs(context)
    found = {subject.partition(",")[0]: verdicts for subject, verdicts in read_verdicts(context).items()}
    assert [word for word, _ in found["Ask for FP8 scales without a bounds check"]] == ["improvement"] * 3
    with session(context.database_url) as opened:
        told = regressions.list_regressions(opened)
    assert {(row.good_sha[:7], row.bad_sha[:7]) for row in told if row.bad_sha.startswith("cc989ff")} == {
        ("3f757b8", "cc989ff")
    }, "3f757b8 is the code of the commit before, as a replay found"
    (same,) = found["Leave to the compiler how element-wise kernels load: TMA or not gives the same code"]
    assert same[0] == "unchanged"
    assert same[1].startswith("same code as 13cceaf0da")


def test_the_history_of_another_repository_is_imported_whole(database_url: str) -> None:
    """What tools/record_history.py recorded of TileGym: operators of which some have one config without parameters."""
    import_file(database_url, RECORDINGS / "tilegym" / "h200.jsonl.gz")
    with session(database_url) as opened:
        found = series.list_series(opened)
    assert {row.repository for row in found} == {"https://github.com/NVIDIA/TileGym"}
    assert len({row.kernel for row in found}) == 14
