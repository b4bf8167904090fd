"""Reads and changes regressions for `tilewatch regressions`, with the functions that the dashboard uses too.

db/lifecycle/regressions.py makes the changes, and stores the person's name. tables.py prints.
"""

from collections.abc import Callable

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import actions, messages, regressions
from tilewatch.db.lifecycle.regressions import NoSuchRegression
from tilewatch.db.page_reads import evidence
from tilewatch.db.page_reads import messages as message_queries
from tilewatch.db.page_reads import regressions as regression_queries
from tilewatch.db.page_reads.messages import RegressionStory
from tilewatch.db.page_reads.regressions import RegressionRow
from tilewatch.db.session import session
from tilewatch.text import count_text, short_sha


def list_regressions(
    database_url: str, *, states: tuple[str, ...] | None, kernel: str | None, direction: str
) -> list[RegressionRow]:
    with session(database_url) as opened:
        rows = regression_queries.list_regressions(opened)
    return [
        row
        for row in rows
        if row.direction == direction
        and (states is None or row.state in states)
        and (kernel is None or row.kernel == kernel)
    ]


def story(database_url: str, regression_id: int) -> RegressionStory:
    with session(database_url) as opened:
        return _story(opened, regression_id)


def change(database_url: str, regression_id: int, act: Callable[[Session], None]) -> RegressionStory:
    """Makes a change by calling `act`, and returns the changed regression."""
    with session(database_url) as opened:
        act(opened)
        return _story(opened, regression_id)


def measure_again(database_url: str, regression_id: int, who: str) -> str:
    """Requests sweeps of a regression's series at its first bad commit. A worker queues them within a minute."""
    with session(database_url) as opened:
        row = actions.measure_again(opened, regression_id, who)
    return f"asked for {count_text(row.series, 'sweep')} of {short_sha(row.bad_sha)}"


def bisect(database_url: str, regression_id: int, who: str) -> str:
    """Requests a bisection of the commits that may have caused a regression. Workers make it step by step."""
    with session(database_url) as opened:
        row = actions.bisect(opened, regression_id, who)
    return f"asked for a bisection of {row.commits_in_range} commits after {short_sha(row.good_sha)}"


def mark_run(database_url: str, run_id: int, who: str, *, right: bool, note: str | None) -> None:
    with session(database_url) as opened:
        if evidence.find_run(opened, run_id) is None:
            raise NoSuchRegression(f"there is no run {run_id}; the Series page shows the number of a run")
        regressions.mark(opened, who, right=right, run_id=run_id, note=note)


def send_again(database_url: str, message_ids: list[int]) -> list[int]:
    with session(database_url) as opened:
        return messages.retry(opened, message_ids)


def _story(opened: Session, regression_id: int) -> RegressionStory:
    story = message_queries.find_story(opened, regression_id)
    if story is None:
        raise NoSuchRegression(
            f"there is no regression {regression_id}; `tilewatch regressions list` shows their numbers"
        )
    return story
