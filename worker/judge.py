"""The judge step: load a run and its history, ask regression.py, write down the verdict."""

from db import record, steps
from db.jobs import Claimed, Unsent
from db.session import session
from db.steps import SeriesPoint
from worker.lease import Lease
from worker.place import Place
from worker.regression import Judgement, Point, Policy, judge


def step(job: Claimed, place: Place, lease: Lease) -> list[Unsent]:  # noqa: ARG001 - every step is called alike
    assert job.run_id is not None
    with session(place.database_url) as opened:
        series = steps.series_of(opened, job.run_id)
        if series is None:
            said = Judgement("undecided", None, None, 0, Policy().name, "no config gave a right answer, so no time")
        else:
            said = judge([_point(each) for each in series.history], _point(series.current))
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


def _point(point: SeriesPoint) -> Point:
    return Point(point.time_us, point.ratio, point.toolchain_sha256, point.host)
