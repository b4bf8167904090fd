"""One series, and one run before: what a page calls the first of its series has no predecessor on any other page."""

import datetime as dt
from collections.abc import Sequence

from sqlalchemy.orm import Session

from tests.db.fixtures import worlds
from tilewatch.db.page_reads import evidence, series
from tilewatch.db.page_reads.series import PointRow

WORLDS = 80
"""500 of them had no contradiction either, and took 42 s (2026-11-28)."""


def find_before(points: Sequence[PointRow], this: PointRow) -> int | None:
    """Finds the run before slowly, among the points of the page Series; commits are in the order of the branch."""
    order = list(dict.fromkeys(point.sha for point in points))

    def place(point: PointRow) -> tuple[int, bool, dt.datetime, int]:
        return order.index(point.sha), point.machine == this.machine, point.measured_at, point.run_id

    earlier = [each for each in points if place(each)[0] < place(this)[0]]
    return max(earlier, key=place).run_id if earlier else None


def test_the_run_before_is_the_point_before_whatever_measured_it(db_session: Session) -> None:
    """Of 316 runs of the recordings 155 had none, since only runs of the same recording were looked at (2026-11-27)."""
    names = worlds.fill(db_session, WORLDS)
    firsts = 0
    for repository in names:
        for problem in worlds.PROBLEMS:
            points = series.list_points(db_session, repository, worlds.KERNEL, problem, "h200", static_facts=False)
            for point in points:
                wanted = find_before(points, point)
                assert evidence.find_run_before(db_session, point.run_id) == wanted, (repository, point)
                firsts += wanted is None
    assert firsts > WORLDS / 2, "and some are the first"
