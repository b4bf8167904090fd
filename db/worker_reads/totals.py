"""Reads the times of a language model's problems, whose weighted total is stored as a sweep. The sweep's kernel is
"total", and its problem is the language model's name."""

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import and_, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from tilewatch.db.models import TOTAL, Measurement, Run, Sweep, Verdict
from tilewatch.db.worker_reads.judging import Scope, select_runs


@dataclass(frozen=True)
class Part:
    """One problem of a language model, with the run that measured it and its weight in the total."""

    sweep: Sweep
    run: Run
    measured: Measurement
    weight: float  # how often a step of the model runs this problem
    parts: int  # how many problems a step has
    baseline_us: tuple[float, ...]  # empty without a baseline
    verdict: Verdict | None


def list_parts(session: Session, scope: Scope) -> dict[str, list[Part]]:
    """Returns a submission's measured problems by language model, each problem with its newest run."""
    kernel, baseline = aliased(Measurement), aliased(Measurement)
    query = (
        select(Sweep, Run, kernel, baseline.samples_us, Verdict)
        .join(Run, and_(Run.sweep_id == Sweep.id, Run.origin == scope.origin))
        .join(kernel, and_(kernel.run_id == Run.id, kernel.role == "kernel"))
        .outerjoin(baseline, and_(baseline.run_id == Run.id, baseline.implementation == kernel.baseline))
        .outerjoin(Verdict, Verdict.run_id == Run.id)
        .where(Sweep.submission_id == scope.submission_id, Sweep.parts_of != {})
        .ext(distinct_on(Sweep.kernel, Sweep.problem))
        .order_by(Sweep.kernel, Sweep.problem, Run.id.desc())
        .execution_options(populate_existing=True)  # else verdicts that were written by SQL would not be seen
    )
    found: dict[str, list[Part]] = defaultdict(list)
    for sweep, run, measured, baseline_us, verdict in session.execute(query):
        for model, share in sweep.parts_of.items():
            of_model = (float(share["weight"]), int(share["parts"]))
            found[model].append(Part(sweep, run, measured, *of_model, tuple(baseline_us or ()), verdict))
    return dict(found)


def find_run_of_total(session: Session, scope: Scope, model: str) -> int | None:
    """Returns the id of the run with a language model's weighted total; None if there is no total yet."""
    return session.scalar(select_runs(scope, Sweep.kernel == TOTAL, Sweep.problem == model))
