"""A worker's connection to a real Valkey: messages of others are dropped, and a refused connection leaves nothing."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from kombu import Consumer, Queue
from kombu.transport.redis import Channel

from tilewatch.worker import metrics
from tilewatch.worker.queue import dispatch, task_message
from tilewatch.worker.queue.task_message import RUN, TaskMessage
from tilewatch.worker.queue.transport import GuardedChannel, Transport


@pytest.fixture
def transport(broker_url: str) -> Iterator[Transport]:
    with dispatch.sender(broker_url).connection_for_read() as connection:
        yield connection.transport


@pytest.fixture
def refuse_writes(broker_url: str) -> Iterator[Callable[[bool], object]]:
    with redis.Redis.from_url(broker_url) as client:
        policy = client.config_get("maxmemory-policy")["maxmemory-policy"]
        client.config_set("maxmemory-policy", "noeviction")
        yield lambda refused: client.config_set("maxmemory", "1" if refused else "0")
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", policy)


def test_a_connection_that_redis_refuses_leaves_no_channel(
    transport: Transport, broker_url: str, refuse_writes: Callable[[bool], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kombu would take the channel of the failed attempt for the next one."""
    closed: list[Channel] = []
    close = Channel.close
    monkeypatch.setattr(GuardedChannel, "close", lambda self: (closed.append(self), close(self)))
    refuse_writes(True)
    with pytest.raises(transport.connection_errors, match="used memory"):
        transport.establish_connection()
    assert len(closed) == 1
    assert (transport.channels, transport._avail_channels) == ([], [])
    refuse_writes(False)
    assert transport.establish_connection() is transport
    assert len(transport._avail_channels) == 1
    with redis.Redis.from_url(broker_url) as client:
        assert not client.exists("tilewatch.nothing"), "the write changes nothing"


def take(transport: Transport, count: int, *queues: str) -> list[Any]:
    """Takes so many messages, as a worker of these queues does."""
    taken: list[Any] = []
    connection, waiting = transport.client, [Queue(each) for each in queues]
    with Consumer(connection, waiting, no_ack=True, callbacks=[lambda _, message: taken.append(message)]):
        while len(taken) < count:
            connection.drain_events(timeout=30)
    return taken


def write(number: int, queue: str) -> bytes:
    return json.dumps(task_message.to_celery(TaskMessage(RUN, f"job-{number}", number), queue)).encode()


def test_messages_of_others_are_dropped_and_counted_and_ours_arrive_in_order(
    transport: Transport, broker_url: str
) -> None:
    refused = metrics.MESSAGES_REFUSED._value.get()
    with redis.Redis.from_url(broker_url) as client:
        client.lpush("judge", b"\0", write(1, "judge"), json.dumps({"body": "x"}), b"[]", write(2, "judge"))
    taken = take(transport, 2, "judge")
    assert [each.headers["id"] for each in taken] == ["job-1", "job-2"]
    assert [each.decode()[0] for each in taken] == [[1], [2]]
    assert metrics.MESSAGES_REFUSED._value.get() == refused + 3


def test_queues_take_turns(transport: Transport, broker_url: str) -> None:
    """A queue that is never empty would keep a worker from the others."""
    with redis.Redis.from_url(broker_url) as client:
        for number in (1, 2, 3):
            for queue in ("judge", "compile"):
                client.lpush(queue, write(number, queue))
    queues = [each.delivery_info["routing_key"] for each in take(transport, 6, "judge", "compile")]
    assert sorted(queues[:2]) == sorted(queues[2:4]) == sorted(queues[4:]) == ["compile", "judge"]


def end(client: "redis.Redis", waiting: int, how: str) -> None:
    if how == "killed":
        assert client.client_kill_filter(_id=str(waiting))
    else:  # as where the disk or the memory of the server is full
        assert client.client_unblock(waiting, error=True)


@pytest.mark.parametrize("how", ["killed", "refused"])
def test_a_connection_that_breaks_while_a_worker_waits_is_closed_and_trouble_that_passes(
    transport: Transport, broker_url: str, how: str
) -> None:
    """The worker connects again after such an error. Another error would end the worker."""
    connection: Any = transport.client
    with (
        Consumer(connection, [Queue("judge")], no_ack=True, callbacks=[]) as consumer,
        redis.Redis.from_url(broker_url) as client,
    ):
        with pytest.raises(TimeoutError):  # it waits for a message from now on
            connection.drain_events(timeout=0.01)
        (waiting,) = [int(each["id"]) for each in client.client_list() if each["cmd"] == "brpop"]
        end(client, waiting, how)
        with pytest.raises(transport.connection_errors):
            connection.drain_events(timeout=30)
        assert consumer.channel.client.connection._sock is None
        client.lpush("judge", write(1, "judge"))
    assert [each.headers["id"] for each in take(transport, 1, "judge")] == ["job-1"]
