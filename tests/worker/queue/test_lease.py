"""A lease is renewed while a step works, whatever one renewal meets, and a step that lost it learns so."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Job
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.queue import lease
from tilewatch.worker.queue.lease import Lease, LeaseLost

OWNER = "gpu0@n#1"
PATIENCE_S = 60.0


class Renewals:
    """Counts renewals; those of `failing` meet a database that is away."""

    def __init__(self, failing: tuple[int, ...] = ()) -> None:
        self.count, self.failing = 0, failing
        self.reached = threading.Condition()

    @contextmanager
    def open(self, url: str) -> Iterator[Session]:
        with session(url) as opened:
            yield opened
        with self.reached:
            self.count += 1
            self.reached.notify_all()
        if self.count in self.failing:
            raise OperationalError("UPDATE", {}, Exception("the server closed the connection"))

    def wait_for(self, count: int) -> None:
        with self.reached:
            assert self.reached.wait_for(lambda: self.count >= count, PATIENCE_S)


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Renewals:
    counted = Renewals(failing=(2, 3))
    monkeypatch.setattr(lease, "session", counted.open)
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    return counted


@pytest.fixture
def job_id(context: Context) -> int:
    with session(context.database_url) as opened:
        added, _ = jobs.add(opened, key="k", kind="judge", queue="judge", subject="s", payload={})
    with session(context.database_url) as opened:
        assert jobs.claim(opened, added, OWNER, 1.0) is not None
    return added


def read(context: Context, job_id: int) -> Job:
    with session(context.database_url) as opened:
        return opened.scalars(select(Job).where(Job.id == job_id)).one()


def test_a_lease_is_renewed_again_after_renewals_that_failed(context: Context, job_id: int, renewals: Renewals) -> None:
    claimed = read(context, job_id)
    assert claimed.lease_until is not None
    lines = deque(["compiled"])
    with Lease(context.database_url, job_id, OWNER, lines) as held:
        renewals.wait_for(4)
        held.progress(3)
        lines.append("measured")
        renewals.wait_for(renewals.count + 2)
        held.progress(3)
    renewed = read(context, job_id)
    assert renewed.lease_until is not None
    assert (renewed.lease_until - claimed.lease_until).total_seconds() > lease.LEASE_S - 2.0
    assert (renewed.done_steps, renewed.log) == (3, "compiled\nmeasured")
    assert not held._thread.is_alive(), "nothing renews after the step"


def test_a_step_that_lost_its_lease_stops(context: Context, job_id: int, renewals: Renewals) -> None:
    with Lease(context.database_url, job_id, OWNER) as held:
        renewals.wait_for(1)
        held.progress()
        with session(context.database_url) as opened:
            opened.execute(update(Job).where(Job.id == job_id).values(owner="another@n#2"))
        held._thread.join(PATIENCE_S)
        with pytest.raises(LeaseLost):
            held.progress()
