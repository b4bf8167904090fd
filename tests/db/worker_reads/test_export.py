"""What is exported was measured here, and can be narrowed to a repository, a kernel, a GPU model and a first day."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import GPU, KERNEL, NOON, REPOSITORY, Rows
from tilewatch.db.models import TOTAL
from tilewatch.db.worker_reads import export
from tilewatch.db.worker_reads.export import ExportFilter

DAY = dt.timedelta(days=1)
MIDNIGHT = NOON.replace(hour=0)
FILTERS = {"repository": REPOSITORY, "kernel": KERNEL, "gpu_model": GPU, "since": MIDNIGHT.date()}


@pytest.mark.parametrize("wanted", [{}, *({name: value} for name, value in FILTERS.items())])
def test_measured_sweeps_are_exported_by_commit(db_session: Session, rows: Rows, wanted: dict[str, Any]) -> None:
    late = rows.measured(rows.night(rows.commit(5)), finished_at=MIDNIGHT)
    night = rows.night(rows.commit(4))
    tied = [rows.measured(night, problem=str(number)).sweep_id for number in (1, 2)]
    others = {
        "repository": rows.measured(rows.night(rows.commit(3, repository="attention"))),
        "kernel": rows.measured(rows.night(rows.commit(2)), kernel="softmax"),
        "gpu_model": rows.measured(rows.night(rows.commit(1), gpu_model="b200")),
        "since": rows.measured(rows.night(rows.commit(0)), finished_at=MIDNIGHT - dt.timedelta(microseconds=1)),
    }
    for origin in ("recorded", "simulated"):
        rows.measured(origin=origin)
    rows.measured(kernel=TOTAL)
    rows.sweep()
    found = export.list_sweeps_to_export(db_session, ExportFilter(**wanted))
    left = [others[name].sweep_id for name in reversed(others) if name not in wanted]
    assert found == [*left, *tied, late.sweep_id]


@pytest.mark.parametrize("wanted", [{}, *({name: value} for name, value in FILTERS.items())])
def test_measured_replays_are_exported_in_their_order(db_session: Session, rows: Rows, wanted: dict[str, Any]) -> None:
    good, bad, configs = rows.commit(3), rows.commit(8), [rows.config(tile=tile) for tile in (32, 64)]
    plain = {"at": MIDNIGHT, "good_config_id": configs[0].id, "bad_config_id": configs[1].id}
    last = rows.replay(good, bad, **plain, id=90_009)
    others = {
        "repository": rows.replay(rows.commit(repository="attention"), bad, at=NOON, id=90_003),
        "kernel": rows.replay(good, bad, kernel="softmax", at=NOON, id=90_002),
        "gpu_model": rows.replay(good, bad, gpu_model="b200", at=NOON, id=90_001),
        "since": rows.replay(good, bad, at=MIDNIGHT - dt.timedelta(microseconds=1), id=90_000),
    }
    for origin in ("recorded", "simulated"):
        rows.replay(good, bad, origin=origin, at=NOON)
    found = export.list_replays_to_export(db_session, ExportFilter(**wanted))
    left = [others[name] for name in reversed(others) if name not in wanted]
    assert [each.replay for each in found] == [*left, last]
    exported = found[-1]
    assert (exported.good_commit, exported.bad_commit) == (good, bad)
    assert (exported.good_params, exported.bad_params) == ({"tile": 32}, {"tile": 64})
    for each in found[:-1]:
        assert (each.good_params, each.bad_params) == (None, None)


def test_an_exported_sweep_has_all_its_measured_rows(db_session: Session, rows: Rows) -> None:
    night = rows.night(rows.commit(7), gpu_model="b200")
    sweep, configs = rows.sweep(night), [rows.config(tile=tile) for tile in (16, 32, 64)]
    made = rows.compilation("a")
    waiting = rows.trial(sweep, configs[1])
    timed = rows.trial(sweep, configs[0], 9.0, compilation_id=made.id)
    rows.trial(rows.sweep(), configs[2], 9.0)
    late, early = (rows.run(sweep, started_at=NOON + hours * DAY, tie=[configs[hours].id]) for hours in (2, 1))
    rows.run(sweep, "recorded")
    rows.measured()
    baseline = rows.measure(late, role="baseline", implementation="deepgemm", id=90_001)
    kernel = rows.measure(late, config_id=configs[2].id, id=90_000)
    found = export.read_sweep_export(db_session, sweep.id)
    assert (found.sweep, found.submission, found.commit, found.gpu_model.slug) == (sweep, night, night.commit, "b200")
    assert found.trials == ((timed, {"tile": 16}, made), (waiting, {"tile": 32}, None))
    assert found.runs == ((early, ()), (late, ((kernel, {"tile": 64}), (baseline, None))))
    assert found.params == {configs[1].id: {"tile": 32}, configs[2].id: {"tile": 64}}


def test_own_repositories_have_a_submission_that_was_not_imported(db_session: Session, rows: Rows) -> None:
    for name, recording_id in ((REPOSITORY, None), (REPOSITORY, rows.recordings[0]), ("copy", rows.recordings[0])):
        rows.night(rows.commit(repository=name), recording_id=recording_id)
    rows.commit(repository="empty")
    assert export.list_own_repositories(db_session) == {REPOSITORY}


def test_what_a_recording_has_is_known_by_its_keys(db_session: Session, rows: Rows) -> None:
    ends = rows.commit(3), rows.commit(8)
    for key in ("a", "b"):
        rows.run(key=key)
        rows.replay(*ends, key=key, at=NOON)
    assert export.find_known_run_keys(db_session, ["a", "c"]) == {"a"}
    assert export.find_known_replays(db_session, ["a", "c"]) == {("a", NOON)}
    assert [export.has_recording(db_session, sha256) for sha256 in ("a", "b", "c")] == [True, True, False]
