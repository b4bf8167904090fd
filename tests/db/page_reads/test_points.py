"""The points of a series are what the objects of the tables say, field by field."""

import dataclasses
import datetime as dt

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.dashboard.fixtures.small_database import KERNEL, PROBLEM, REPOSITORY
from tilewatch.db.models import (
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Recording,
    Run,
    Submission,
    Sweep,
    Trial,
    Verdict,
)
from tilewatch.db.page_reads import series, snapshots
from tilewatch.db.page_reads.series import PointRow
from tilewatch.db.query_parts import read_rows

ABOUT = {"repository": REPOSITORY, "kernel": KERNEL, "problem": PROBLEM, "gpu_model": "h200"}


def read_point(opened: Session, measured: Measurement) -> PointRow:
    """Reads one point slowly, a table after the other."""
    run = opened.get_one(Run, measured.run_id)
    sweep = opened.get_one(Sweep, run.sweep_id)
    commit = opened.get_one(Commit, sweep.commit_id)
    gpu = opened.scalars(select(GpuModel).where(GpuModel.slug == sweep.gpu_model)).one()
    recording = opened.get(Recording, run.recording_id or 0)
    verdict = opened.scalars(select(Verdict).where(Verdict.run_id == run.id)).one_or_none()
    config = opened.get(Config, measured.config_id or 0)
    trial = opened.get(Trial, (sweep.id, measured.config_id or 0))
    cubin = opened.get(Compilation, trial.compilation_id or 0) if trial else None
    same = {
        measured: "implementation role median_us low_us high_us ratio ratio_low ratio_high baseline",
        run: "origin timer toolchain toolchain_sha256",
        sweep: "flops bytes",
        commit: "sha position subject author committed_at left_branch_at",
        gpu: "fp8_tflops bandwidth_gbps",
    }
    nothing = {"verdict": None, "change": None, "reason": None}
    facts = ("registers", "stack_bytes", "shared_bytes", "code_bytes", "compile_s")
    return PointRow(
        **{name: getattr(stored, name) for stored, names in same.items() for name in names.split()},
        **({name: getattr(verdict, name) for name in nothing} if verdict else nothing),
        **{name: getattr(cubin, name, None) for name in facts},
        run_id=run.id,
        machine=recording.machine if recording else run.host,
        measured_at=run.finished_at,
        device_name=run.gpu_name,
        params=config.params if config else None,
        samples=len(measured.samples_us),
        detail={name: each for name, each in measured.detail.items() if name != "checklist"},
        work=sweep.space.get("work"),
        rate=sweep.space.get("rate"),
        operator=f"{sweep.kernel} {sweep.problem}",
        quarantined=False,
    )


def test_each_point_is_what_its_tables_say(filled: Session) -> None:
    of_series = (getattr(Sweep, name) == value for name, value in ABOUT.items())
    query = select(Measurement).join(Run, Run.id == Measurement.run_id).join(Sweep).where(*of_series)
    one = filled.scalars(query.order_by(Measurement.id)).first()
    assert one is not None
    one.detail = {**one.detail, "checklist": [{"line": "TMA"}], "counters": {"instructions": 3.0}}
    sweep = filled.get_one(Sweep, filled.get_one(Run, one.run_id).sweep_id)
    sweep.space = {**sweep.space, "work": [["rows", 3]], "rate": {"unit": "rows"}}
    filled.get_one(Commit, sweep.commit_id).left_branch_at = dt.datetime.now(dt.UTC)
    slowly = {
        (row.run_id, row.implementation): row for row in (read_point(filled, each) for each in filled.scalars(query))
    }
    points = series.list_points(filled, **ABOUT)
    assert {(row.run_id, row.implementation): row for row in points} == slowly
    order = [(row.position, row.committed_at, row.measured_at, row.run_id) for row in points]
    assert order == sorted(order)
    known = {name for row in points for name, value in dataclasses.asdict(row).items() if value is not None}
    assert known == {field.name for field in dataclasses.fields(PointRow)}, "each field has a value somewhere"
    filled.rollback()


def test_a_series_that_nobody_measured_has_no_points(filled: Session) -> None:
    assert series.list_points(filled, **{**ABOUT, "problem": "1x1x1"}) == []


def test_a_query_whose_columns_are_not_the_row_s_fields_is_refused(filled: Session) -> None:
    @dataclasses.dataclass(frozen=True)
    class Named:
        name: str

    with pytest.raises(TypeError, match=r"the columns \['slug'\] are not the fields of Named"):
        read_rows(filled, select(GpuModel.slug), Named)


def test_a_series_that_the_newest_nightly_leaves_out_is_not_planned(filled: Session) -> None:
    """A renamed kernel counted in the score under both names for as long as its last commit was a recent one."""
    newest = select(Commit.id).where(Commit.repository == REPOSITORY).order_by(Commit.position.desc()).limit(1)
    of_night = (Sweep.commit_id == newest.scalar_subquery(), Sweep.gpu_model == "h200", Sweep.problem == PROBLEM)

    def read_planned() -> set[tuple[str, str, bool]]:
        rows = snapshots.list_recent_ratios(filled, REPOSITORY, 30)
        return {(row.kernel, row.problem, row.is_planned) for row in rows if row.gpu_model == "h200"}

    before = read_planned()
    assert (KERNEL, PROBLEM, True) in before
    filled.execute(update(Sweep).where(*of_night).values(kernel="renamed"))
    assert read_planned() == before - {(KERNEL, PROBLEM, True)} | {(KERNEL, PROBLEM, False)}
    filled.execute(update(Submission).values(reason="manual"))
    assert (KERNEL, PROBLEM, True) in read_planned(), "a person may ask for a few kernels"
    filled.rollback()
