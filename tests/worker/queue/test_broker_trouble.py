"""A real Valkey that answers and takes nothing: each trouble is a sentence, and no job is lost by it."""

from collections.abc import Callable, Iterator

import pytest
import redis
from sqlalchemy import text, update

from tests.db.fixtures import one_commit
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.models import Job
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.queue.reconcile import reconcile

Trouble = Callable[[redis.Redis], object]
TROUBLES: dict[str, tuple[Trouble, Trouble]] = {
    "read only replica": (lambda it: it.replicaof("127.0.0.1", "1"), lambda it: it.replicaof("NO", "ONE")),
    "used memory": (lambda it: it.config_set("maxmemory", "1"), lambda it: it.config_set("maxmemory", "0")),
}


@pytest.fixture(params=TROUBLES)
def trouble(broker_url: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[], object]]]:
    """Its words, and what ends it."""
    begin, end = TROUBLES[request.param]
    with redis.Redis.from_url(broker_url) as client:
        policy = client.config_get("maxmemory-policy")["maxmemory-policy"]
        client.config_set("maxmemory-policy", "noeviction")
        begin(client)
        try:
            yield request.param, lambda: end(client)
        finally:
            end(client)
            client.config_set("maxmemory-policy", policy)


def test_a_broker_that_takes_no_message_is_said_and_loses_no_job(
    context: Context, trouble: tuple[str, Callable[[], object]]
) -> None:
    words, end = trouble
    with session(context.database_url) as opened:
        job_id = one_commit.job(opened)
    unsent = UnsentJob(job_id, "gpu.b200")
    with pytest.raises(BrokerUnreachable, match=words):
        dispatch.require_broker(context.broker_url)
    with pytest.raises(BrokerUnreachable, match="Redis cannot be used at"):
        dispatch.send(dispatch.sender(context.broker_url), context.database_url, [unsent])
    end()
    dispatch.require_broker(context.broker_url)
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(sent_at=text("now() - interval '2 min'")))  # what two minutes do
    assert reconcile(context.database_url, context.broker_url) == [unsent]


def test_ten_thousand_queued_jobs_without_a_message_are_sent_again_once(context: Context) -> None:
    """Redis was emptied while they waited."""
    with session(context.database_url) as opened:
        first = one_commit.job(opened)
        opened.execute(
            text(
                "insert into jobs (key, kind, queue, priority, subject, payload, total_steps, state) select "
                "'job ' || number, kind, queue, priority, subject, payload, total_steps, state "
                "from jobs, generate_series(2, 10000) number"
            )
        )
    lost = reconcile(context.database_url, context.broker_url)
    assert len(lost) == len({each.id for each in lost}) == 10_000
    assert lost[0].id == first
    dispatch.send(dispatch.sender(context.broker_url), context.database_url, lost)
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(sent_at=text("now() - interval '2 min'")))
    assert reconcile(context.database_url, context.broker_url) == [], "each has a message"


@pytest.mark.parametrize("url", ["unix:///run/secret", "amqp://us:secret@here", "redis://us:secret@here:port"])
def test_a_broker_url_that_is_no_redis_is_refused_without_its_password(url: str) -> None:
    """redis-py reads an address of a socket file, which Celery does not."""
    with pytest.raises(BrokerUnreachable, match="the broker URL cannot be read; expected redis") as raised:
        dispatch.require_broker(url)
    assert "secret" not in str(raised.value)
