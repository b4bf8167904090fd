"""A series is measured as soon as its own configs are compiled, the largest one first."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.db.fixtures.one_commit import COMPILER, submit
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job, Sweep
from tilewatch.db.worker_reads import steps
from tilewatch.kernels.results import Compiled, Plan, PlannedTrial
from tilewatch.worker.queue import follow_up
from tilewatch.worker.steps.write_plans import PlannedSubmission, write_plans

SMALL = ("s1", "shared")
LARGE = ("l1", "l2", "l3", "shared")


def make_plan(kernel: str, problem: str, code_keys: tuple[str, ...]) -> Plan:
    trials = tuple(PlannedTrial({"tile_m": number}, key) for number, key in enumerate(code_keys))
    return Plan(kernel, problem, "sm_100", "source", 2, (("tile_m", (0, 1, 2, 3)),), 1, 1, ("copy",), trials)


def plan_night(session: Session) -> int:
    """Submits two problems of a kernel, which share one config's code, and another kernel."""
    made = submit(session)
    commit_id = session.scalars(select(Sweep.commit_id)).one()
    submission = PlannedSubmission(
        "night", made.submission_id, commit_id, "tilewatch", "ab" * 20, "library", "", "b200", measure=True, priority=1
    )
    plans = [make_plan("gemm", "small", SMALL), make_plan("gemm", "large", LARGE), make_plan("norm", "n", ("n1",))]
    write_plans(session, submission, plans)
    return made.submission_id


def list_ready(session: Session, submission_id: int | None = None, kernel: str | None = None) -> list[str]:
    ready = steps.list_ready_to_measure(session, submission_id, kernel)
    problems = select(Job.id, Sweep.problem).join(Sweep, Sweep.id == Job.sweep_id)
    names = {row.id: row.problem for row in session.execute(problems)}
    return [names[each] for each in ready]


def add_batch(session: Session, submission_id: int, *code_keys: str) -> int:
    items = [{"code_key": key, "problem": "small", "params": {}} for key in code_keys]
    payload = {"kernel": "gemm", "items": items}
    job_id, _ = jobs.add(
        session, key=f"batch of {code_keys}", kind="compile", queue="compile", subject="", payload=payload,
        submission_id=submission_id,
    )  # fmt: skip
    return job_id


def end(session: Session, *which: object) -> None:
    session.execute(update(Job).where(*which).values(state="done"))


def test_a_series_waits_for_the_batches_with_its_own_code_alone(db_session: Session) -> None:
    submission_id = plan_night(db_session)
    assert list_ready(db_session) == [], "no batch is planned yet"
    first, second, third = (
        add_batch(db_session, submission_id, *keys) for keys in (("s1",), ("shared", "l1"), ("l2", "l3"))
    )
    end(db_session, Job.kind == "compile", Job.payload["items"].is_(None), Job.payload["kernel"].astext == "gemm")
    assert list_ready(db_session) == []
    end(db_session, Job.id == first)
    assert list_ready(db_session) == [], "a batch that names one problem has code of both"
    end(db_session, Job.id == second)
    assert list_ready(db_session) == list_ready(db_session, submission_id, "gemm") == ["small"]
    assert list_ready(db_session, submission_id, "norm") == list_ready(db_session, submission_id + 1) == []
    end(db_session, Job.id == third)
    assert list_ready(db_session) == ["large", "small"], "the one with more configs comes first"
    end(db_session, Job.kind == "compile")
    assert list_ready(db_session) == ["large", "small", "n"]


def test_a_config_that_is_compiled_on_record_waits_for_its_cubin_here(db_session: Session) -> None:
    submission_id = plan_night(db_session)
    compiled = Compiled(
        "ok",
        COMPILER,
        "sm_100",
        compile_s=1.0,
        cpu_s=1.0,
        reused=False,
        content_key="c1",
        code_sha256="00",
        symbol="gemm",
    )
    fact_writes.add_compilations(db_session, [compiled.make_row("s1", "elsewhere")])
    fact_writes.attach_compilations(
        db_session, compiler=COMPILER, submission_id=submission_id, code_keys=["s1", "shared"]
    )
    batch = add_batch(db_session, submission_id, "s1")
    end(db_session, Job.kind == "compile", Job.id != batch)
    assert list_ready(db_session, submission_id, "gemm") == ["large"]
    end(db_session, Job.id == batch)
    assert list_ready(db_session, submission_id, "gemm") == ["large", "small"]


def test_the_end_of_a_compile_job_releases_what_is_ready(db_session: Session) -> None:
    submission_id = plan_night(db_session)
    batch = add_batch(db_session, submission_id, *SMALL)
    end(db_session, Job.kind == "compile", Job.id != batch)
    db_session.execute(update(Job).where(Job.kind == "measure").values(state="waiting"))
    claimed = jobs.claim(db_session, batch, "tester#1", 60.0)
    assert claimed is not None
    assert follow_up.queue_next(db_session, claimed) == [], "it has not ended"
    assert jobs.finish(db_session, batch, "tester#1")
    assert len(follow_up.queue_next(db_session, claimed)) == 2
