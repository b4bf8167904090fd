"""Garbage in the broker: no worker falls over it, no row changes, and each piece is logged once.

A real Celery worker on a real Valkey. The garbage is random but seeded: bytes, JSON of any shape, messages of ours with
something wrong in them, tasks that are not ours, and messages for jobs that are not there or not this worker's.
"""

import base64
import json
import random
import re
import string
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from sqlalchemy import select

from tests.worker.fixtures.celery_process import celery_worker, wait_for
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Base, Job
from tilewatch.db.server.free_ports import find_free_port
from tilewatch.db.session import engine, session
from tilewatch.worker.context import Context
from tilewatch.worker.queue import task_message
from tilewatch.worker.queue.task_message import Refused, TaskMessage
from tilewatch.worker.settings import Settings

MESSAGES = 10_000
TO_A_WORKER = 1_500
HUGE = 2**70


def fuzz(count: int, chance: random.Random, foreign_job: int) -> Iterator[bytes]:
    makers: tuple[Callable[[random.Random], bytes], ...] = (
        noise,
        any_json,
        mutated,
        other_task,
        bad_arguments,
        steering,
    )
    for number in range(count):
        if number % 10 == 0:
            yield job_message(chance.choice((foreign_job, 4_000_000 + number, task_message.LARGEST_ID)))
        else:
            yield chance.choice(makers)(chance)


def job_message(job_id: int, **changed: Any) -> bytes:
    content = task_message.to_celery(TaskMessage(task_message.RUN, f"job-{job_id}", job_id), "judge")
    return json.dumps({**content, **changed}).encode()


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randint(0, 300))


def any_json(chance: random.Random, depth: int = 0) -> bytes:
    return json.dumps(any_value(chance, depth)).encode()


def any_value(chance: random.Random, depth: int = 0) -> Any:
    simple = (None, True, 0, -1, HUGE, 1.5, "", "worker.run", "".join(chance.choices(string.printable, k=8)))
    if depth > 3 or chance.random() < 0.4:
        return chance.choice(simple)
    if chance.random() < 0.5:
        return [any_value(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    names = ("headers", "body", "properties", "task", "id", "content-type", "args", "delivery_tag")
    return {chance.choice(names): any_value(chance, depth + 1) for _ in range(chance.randint(0, 4))}


def mutated(chance: random.Random) -> bytes:
    """A good one with a piece cut out, so that it is no JSON any more or lacks what it must have."""
    whole = job_message(chance.randint(1, 99))
    return whole[: chance.randint(1, len(whole) - 1)]


def other_task(chance: random.Random) -> bytes:
    content = task_message.to_celery(TaskMessage(task_message.RUN, "x", 1), "judge")
    content["headers"]["task"] = chance.choice(
        ("celery.chord_unlock", "celery.map", "os.system", "worker.Run", "", HUGE, None)
    )
    return json.dumps(content).encode()


def bad_arguments(chance: random.Random) -> bytes:
    arguments = chance.choice(([], [0], [-7], [HUGE], ["1"], [1.5], [True], [None], [1, 2], {"job_id": 1}, "1"))
    body = base64.b64encode(json.dumps([arguments, {}, {}]).encode()).decode()
    return job_message(1, body=chance.choice((body, body + "=", 7, None, "not base64!")))


def steering(chance: random.Random) -> bytes:
    """What Celery would obey: another serializer, other work to run next."""
    return chance.choice(
        (
            job_message(1, **{"content-type": "application/x-python-serialize"}),
            job_message(1, body=base64.b64encode(b"cos\nsystem\n(S'true'\ntR.").decode()),
            job_message(1, headers={"task": "worker.prune", "id": "x"}),
            job_message(1, headers={"task": task_message.RUN, "id": ["x"]}),
        )
    )


def rows(context: Context) -> dict[str, list[Any]]:
    """Everything but the heartbeats."""
    with engine(context.database_url).connect() as connection:
        tables = (table for table in Base.metadata.sorted_tables if table.name != "workers")
        return {table.name: sorted(connection.execute(select(table)), key=str) for table in tables}


def test_of_ten_thousand_pieces_of_garbage_only_the_messages_of_jobs_are_read() -> None:
    refused = 0
    for raw in fuzz(MESSAGES, random.Random(8), 1):
        try:
            assert task_message.read(raw).task == task_message.RUN
        except Refused:
            refused += 1
    assert refused == MESSAGES - MESSAGES // 10


def test_garbage_changes_nothing_and_is_logged_once_each(settings: Settings, context: Context) -> None:
    chance = random.Random(7)
    with session(context.database_url) as opened:
        elsewhere, _ = jobs.add(opened, key="c", kind="compile", queue="compile", subject="not the judge's", payload={})
    before = rows(context)
    garbage = list(fuzz(TO_A_WORKER, chance, elsewhere))
    port = find_free_port()
    judge = settings.model_copy(update={"judge_health_port": port})
    log = settings.home / "judge@test.log"
    with redis.Redis.from_url(context.broker_url) as client, celery_worker(judge, "judge", "judge@test") as process:
        for start in range(0, TO_A_WORKER, 500):
            client.lpush("judge", *garbage[start : start + 500])
        wait_for(lambda: client.llen("judge") == 0, log)
        wait_for(lambda: count_events(log, "succeeded") == TO_A_WORKER // 10, log)
        assert process.poll() is None
        assert rows(context) == before
        assert count_events(log, "received") == TO_A_WORKER // 10
        assert count_events(log, "message refused") == TO_A_WORKER - TO_A_WORKER // 10
        assert count_events(log, "no job to take") == TO_A_WORKER // 10
        assert "Traceback" not in log.read_text()
        assert f"tilewatch_messages_refused_total {TO_A_WORKER - TO_A_WORKER // 10:.1f}" in scraped(port)
        with session(context.database_url) as opened:
            mine, _ = jobs.add(opened, key="j", kind="judge", queue="judge", subject="of no run", payload={})
        client.lpush("judge", job_message(mine))
        wait_for(lambda: ended(context, mine), log)
        assert process.poll() is None


def count_events(log: Any, words: str) -> int:
    return len(re.findall(rf'"event": "[^"]*{words}', log.read_text()))


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def ended(context: Context, job_id: int) -> bool:
    with session(context.database_url) as opened:
        return opened.get_one(Job, job_id).state == "failed"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x00", "it is not JSON"),
        (b"[]", "it has no message"),
        (b"[" * 60_000, "it is not JSON"),
        (b"{}", "it has no headers"),
        (b'"' + b"x" * task_message.LONGEST_BYTES + b'"', "bytes, at most"),
        (job_message(1, headers={"task": "os.system", "id": "x"}), "it names no task of ours"),
        (job_message(1, headers={"task": task_message.RUN}), "it has no id"),
        (job_message(1, headers={"task": "worker.prune", "id": "x"}), "worker.prune takes no arguments"),
    ],
)
def test_what_is_no_message_of_ours_is_refused_with_a_reason_that_repeats_none_of_it(raw: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        task_message.read(raw)


def test_a_ring_is_read_as_it_was_written_and_nothing_else_of_it_survives() -> None:
    wanted = TaskMessage(task_message.RUN, "job-7", 7)
    content = task_message.to_celery(wanted, "judge")
    content["headers"].update(
        eta="2030-01-01T00:00:00", expires="2020-01-01T00:00:00+00:00", timelimit=[1, 1], chain=["x"]
    )
    assert task_message.read(json.dumps(content).encode()) == wanted
    headers = task_message.to_celery(wanted, "judge")["headers"]
    assert (headers["eta"], headers["expires"]) == (None, None), "a worker with another clock would drop it"
