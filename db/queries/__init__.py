"""Every read: one function, one question, rows as frozen dataclasses. Nothing here writes, caches or draws.

The questions lie by subject; people who ask say `queries.latest(session)` and need not know which file answers.
"""

from db.queries.series import LatestRow, PointRow, SeriesRow, latest, points, series
from db.queries.sweeps import MeasuredRow, SweepRow, TrialRow, measured, remarks, sweeps, trials
from db.queries.work import (
    IN_PROGRESS,
    JobCount,
    JobRow,
    QueueRow,
    Status,
    SubmissionRow,
    WorkerRow,
    job_counts,
    jobs,
    queues,
    status,
    submission_state,
    submissions,
    workers,
)

__all__ = [
    "IN_PROGRESS",
    "JobCount",
    "JobRow",
    "LatestRow",
    "MeasuredRow",
    "PointRow",
    "QueueRow",
    "SeriesRow",
    "Status",
    "SubmissionRow",
    "SweepRow",
    "TrialRow",
    "WorkerRow",
    "job_counts",
    "jobs",
    "latest",
    "measured",
    "points",
    "queues",
    "remarks",
    "series",
    "status",
    "submission_state",
    "submissions",
    "sweeps",
    "trials",
    "workers",
]
