"""Which sweeps, trials and jobs the plans of a submission become."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db.models import Config, Job, Sweep, Trial
from tilewatch.kernels.results import Plan, PlannedTrial
from tilewatch.worker.steps.write_plans import PlannedSubmission, write_plans


def make_plan(kernel: str, problem: str, tiles: tuple[int, ...], **fields: Any) -> Plan:
    trials = tuple(PlannedTrial({"tile_m": tile}, f"{kernel} {tile}") for tile in tiles)
    axes = (("tile_m", (32, 64, 128)),)
    plan = Plan(kernel, problem, "sm_100", "source", 2, axes, 70, 8, ("copy",), trials)
    return replace(plan, **fields)


SMALL, NORM = make_plan("gemm", "small", (32,)), make_plan("norm", "n", (32, 64))
LARGE = make_plan(
    "gemm",
    "large",
    (64, 32, 128),
    rest=5,
    drawn=1,
    ships={"tile_m": 64},
    parts_of={"decode": {"weight": 2.0, "parts": 1}},
)


@pytest.fixture
def submission(db_session: Session) -> PlannedSubmission:
    made = one_commit.submit(db_session)
    commit_id = db_session.scalars(select(Sweep.commit_id)).one()
    return PlannedSubmission(
        "night", made.submission_id, commit_id, "tilewatch", "ab" * 20, "library", " of main", "b200",
        measure=True, priority=7, toolchain="next",
    )  # fmt: skip


def list_jobs(session: Session) -> list[Job]:
    return list(session.scalars(select(Job).order_by(Job.id)))


def test_each_sweep_waits_for_its_kernel_s_compile_job_and_the_largest_is_first(
    db_session: Session, submission: PlannedSubmission
) -> None:
    queued = write_plans(db_session, submission, [SMALL, LARGE, NORM])
    made = list_jobs(db_session)
    assert [(each.kind, each.key, each.queue, each.state) for each in made] == [
        ("measure", "night:measure:gemm:large", "gpu.b200", "waiting"),
        ("measure", "night:measure:norm:n", "gpu.b200", "waiting"),
        ("measure", "night:measure:gemm:small", "gpu.b200", "waiting"),
        ("compile", "night:compile:gemm", "compile", "queued"),
        ("compile", "night:compile:norm", "compile", "queued"),
    ]
    assert [(each.id, each.queue) for each in queued] == [(each.id, "compile") for each in made[3:]]
    assert {(each.priority, each.submission_id) for each in made} == {(7, submission.submission_id)}
    assert made[0].subject == "gemm large of main on b200"
    assert made[3].subject == "gemm of main for b200 (sm_100) at ababababab"
    asked = {"library": "library", "baselines": ["copy"], "toolchain": "next"}
    assert [each.payload for each in made[:3]] == [{**asked, "ships": {"tile_m": 64}}, asked, asked]
    assert made[3].payload == {
        **{"repository": "tilewatch", "sha": "ab" * 20, "library": "library", "kernel": "gemm", "arch": "sm_100"},
        "toolchain": "next",
    }
    assert write_plans(db_session, submission, [SMALL, LARGE, NORM]) == queued
    assert len(list_jobs(db_session)) == 5


def test_a_sweep_has_the_space_and_its_short_list_if_there_is_more_to_try(
    db_session: Session, submission: PlannedSubmission
) -> None:
    write_plans(db_session, submission, [SMALL, LARGE])
    sweeps = {each.problem: each for each in db_session.scalars(select(Sweep).where(Sweep.kernel == "gemm"))}
    ids = {each.params["tile_m"]: each.id for each in db_session.scalars(select(Config)) if len(each.params) == 1}
    large, small = sweeps["large"], sweeps["small"]
    assert (large.commit_id, large.gpu_model, large.arch) == (submission.commit_id, "b200", "sm_100")
    assert (large.source_sha256, large.space_size, large.flops, large.bytes) == ("source", 3, 70, 8)
    assert large.parts_of == {"decode": {"weight": 2.0, "parts": 1}}
    assert (large.space["rest"], large.space["listed"]) == (5, [ids[64], ids[32]])
    assert large.space["axes"] == [["tile_m", [32, 64, 128]]]
    assert not {"rest", "listed"} & small.space.keys()
    trials = db_session.execute(select(Trial.sweep_id, Trial.config_id, Trial.code_key, Trial.status))
    written = {(sweep_id, key): (config_id, status) for sweep_id, config_id, key, status in trials}
    assert {key: value for (sweep_id, key), value in written.items() if sweep_id == large.id} == {
        f"gemm {tile}": (ids[tile], "waiting") for tile in (32, 64, 128)
    }


def test_a_submission_that_no_gpu_measures_is_compiled(db_session: Session, submission: PlannedSubmission) -> None:
    queued = write_plans(db_session, replace(submission, measure=False, toolchain=None), [SMALL, NORM])
    assert [(each.kind, each.key) for each in list_jobs(db_session)] == [
        ("compile", "night:compile:norm"),
        ("compile", "night:compile:gemm"),
    ]
    assert len(queued) == 2
