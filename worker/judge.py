"""The judge step: load a run and its history, ask regression.py night by night, write down what it says of the last.

The same detector as everywhere, from nothing each time, so a run judged twice gets the same answer. What would need a
replay is written down as undecided, with its size and reason: nobody is told of it.
"""

from db import record, steps
from db.jobs import Claimed, Unsent
from db.session import session
from db.steps import Series, SeriesPoint
from worker.detect import Policy, Reading
from worker.lease import Lease
from worker.place import Place
from worker.regression import Judge, Verdict
from worker.regression import Place as Shape

THE_SERIES = 0
LAUNCHES_A_RUN = 1
"""A run times its kernel in one process."""


def step(job: Claimed, place: Place, lease: Lease) -> list[Unsent]:  # noqa: ARG001 - every step is called alike
    assert job.run_id is not None
    with session(place.database_url) as opened:
        series = steps.series_of(opened, job.run_id)
        if series is None:
            reason = "no config gave a right answer, so no time"
            said = Verdict("undecided", None, None, None, None, None, None, 0, Policy().name, reason)
        else:
            said = judged(series)
        record.verdict(
            opened,
            run_id=job.run_id,
            verdict=said.verdict,
            change=said.change,
            noise=said.noise,
            history_points=said.history_points,
            policy=said.policy,
            reason=said.reason,
        )
    return []


def judged(series: Series) -> Verdict:
    """Runs of other hosts are left out: two GPUs of a model differ by more than the changes we look for."""
    here = [point for point in series.history if point.host == series.current.host]
    judge = Judge({THE_SERIES: Shape(node=0, kernel=0)}, LAUNCHES_A_RUN)
    for build, point in enumerate([*here, series.current]):
        judge.night(build, {THE_SERIES: _reading(build, point)})
    return judge.verdict(THE_SERIES)


def _reading(build: int, point: SeriesPoint) -> Reading:
    baseline_us = () if point.ratio is None else ((point.time_us * point.ratio,),)
    return Reading(build, point.host, point.toolchain_sha256, ((point.time_us,),), baseline_us)
