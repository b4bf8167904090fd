"""Where messages of jobs go, and what is said about a broker."""

import json

import pytest
import redis

from tests.db.fixtures import one_commit
from tests.worker.fixtures import open_regression
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.models import Job
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.queue import dispatch, task_message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://us:secret@broker:6380/1", "broker:6380"),
        ("rediss://:secret@broker/1", "broker:6379"),
        ("redis:///1", "localhost:6379"),
        ("redis://broker:port/1", "an address that cannot be read"),
    ],
)
def test_a_broker_is_named_by_its_address_without_its_password(url: str, shown: str) -> None:
    assert dispatch.address(url) == shown


@pytest.mark.parametrize(("url", "is_encrypted"), [("redis://host/0", False), ("rediss://host/0", True)])
def test_only_a_url_that_says_so_is_encrypted(url: str, is_encrypted: bool) -> None:
    configuration = dispatch.configuration(url)
    assert configuration["broker_url"] == url
    assert configuration.get("broker_use_ssl") == ({"ssl_cert_reqs": "required"} if is_encrypted else None)


def test_a_worker_runs_a_message_once_takes_no_other_meanwhile_and_obeys_no_sender() -> None:
    """A message that Redis delivers again, or that waits with a busy worker, costs a job minutes. Commands and copies
    of messages in Redis could be written by others, and end a worker."""
    configuration = dispatch.configuration("redis://host/0")
    for name in (
        "task_acks_late",
        "worker_cancel_long_running_tasks_on_connection_loss",
        "worker_enable_remote_control",
    ):
        assert configuration[name] is False
    assert configuration["worker_disable_prefetch"] is True
    assert configuration["broker_transport_options"]["ack_emulation"] is False


def test_each_job_gets_a_message_in_its_queue_and_is_marked_as_sent(context: Context) -> None:
    with session(context.database_url) as opened:
        gpu, judge, unsent = (
            one_commit.job(opened, key=key, queue=key) for key in ("gpu.b200@GPU-1", "judge", "compile")
        )
    assert dispatch.one_gpu_queue("b200", "GPU-1") == "gpu.b200@GPU-1"
    celery = dispatch.sender(context.broker_url)
    dispatch.send(celery, context.database_url, [])
    wanted = {gpu: "gpu.b200@GPU-1", judge: "judge"}
    dispatch.send(celery, context.database_url, [UnsentJob(*each) for each in wanted.items()])
    dispatch.read_counters(celery, "b200", "GPU-1")
    with redis.Redis.from_url(context.broker_url) as client:
        queues = {queue: client.lrange(queue, 0, -1) for queue in (*wanted.values(), "compile")}
    read = {queue: [task_message.read(each) for each in raw] for queue, raw in queues.items()}
    assert {queue: [each.job_id for each in found] for queue, found in read.items()} == {
        "gpu.b200@GPU-1": [None, gpu],  # the newest first
        "judge": [judge],
        "compile": [],
    }
    assert read["gpu.b200@GPU-1"][0].task == dispatch.COUNT_TASK
    assert json.loads(queues["judge"][0])["properties"]["delivery_info"]["routing_key"] == "judge"
    with session(context.database_url) as opened:
        assert [opened.get_one(Job, each).sent_at is not None for each in (gpu, judge, unsent)] == [True, True, False]


def test_a_message_is_found_behind_any_number_of_others(context: Context) -> None:
    with session(context.database_url) as opened:
        waiting = [UnsentJob(one_commit.job(opened, key=f"job {each}", queue="judge"), "judge") for each in range(5)]
    dispatch.send(dispatch.sender(context.broker_url), context.database_url, waiting[1:])
    with redis.Redis.from_url(context.broker_url) as client:
        client.lpush("judge", b"not ours")
    elsewhere = UnsentJob(waiting[1].id, "compile")
    assert dispatch.find_lost(context.broker_url, [*waiting, elsewhere]) == [waiting[0], elsewhere]


def test_the_outbox_is_woken_if_there_is_something_to_report(context: Context) -> None:
    celery = dispatch.sender(context.broker_url)
    with redis.Redis.from_url(context.broker_url) as client:
        dispatch.wake_outbox(celery, context.database_url)
        assert client.llen(dispatch.NOTIFY_QUEUE) == 0
        with session(context.database_url) as opened:
            open_regression.regress(opened)
        dispatch.wake_outbox(celery, context.database_url)
        (raw,) = client.lrange(dispatch.NOTIFY_QUEUE, 0, -1)
    message = task_message.read(raw)
    assert (message.task, message.job_id) == (dispatch.NOTIFY_TASK, None)
