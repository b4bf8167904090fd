"""Reads the messages in Redis, and refuses those that Tilewatch did not send. Celery would obey any message."""

import base64
import binascii
import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

RUN = "worker.run"
LONGEST_BYTES = 64 << 10
"""The longest message that is read. Messages of Tilewatch have about 1,000 bytes."""

LARGEST_ID = 2**63 - 1
"""The largest id that a job can have in Postgres."""

_TASK = re.compile(r"worker\.[a-z_]{1,40}")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


@dataclass(frozen=True)
class TaskMessage:
    """A checked message that Celery may execute. `job_id` is None for tasks without a job."""

    task: str
    id: str
    job_id: int | None


class Refused(ValueError):
    """Raised for a message that Tilewatch did not send. Its text does not quote the message."""


def read(raw: bytes) -> TaskMessage:
    """Returns a message from Redis. Raises Refused if Tilewatch did not send it."""
    if len(raw) > LONGEST_BYTES:
        raise Refused(f"it has {len(raw)} bytes, at most {LONGEST_BYTES} were expected")
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused("it is not JSON") from None
    headers = _mapping(_mapping(message, "message").get("headers"), "headers")
    task = headers.get("task")
    if not isinstance(task, str) or not _TASK.fullmatch(task):
        raise Refused("it names no task of ours")
    identity = headers.get("id")
    if not isinstance(identity, str) or not _ID.fullmatch(identity):
        raise Refused("it has no id")
    return TaskMessage(task, identity, _job_id(task, _arguments(message)))


def to_celery(message: TaskMessage, queue: str) -> dict[str, Any]:
    """Returns a message in Celery's protocol 2, as Kombu stores it in Redis."""
    arguments = [] if message.job_id is None else [message.job_id]
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body = json.dumps([arguments, {}, embedded]).encode()
    return {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": message.task,
            "id": message.id,
            "root_id": message.id,
            "parent_id": None,
            "group": None,
            "eta": None,
            "expires": None,
            "retries": 0,
            "timelimit": [None, None],
            "argsrepr": repr(tuple(arguments)),
            "kwargsrepr": "{}",
            "ignore_result": True,
        },
        "properties": {
            "correlation_id": message.id,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }


def _arguments(message: dict[str, Any]) -> list[Any]:
    body = message.get("body")
    try:
        if not isinstance(body, str) or message.get("content-type") != "application/json":
            raise Refused("its body is not JSON")
        content = json.loads(base64.b64decode(body, validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise error if isinstance(error, Refused) else Refused("its body is not JSON") from None
    if not (isinstance(content, list) and len(content) == 3 and isinstance(content[0], list) and content[1] == {}):
        raise Refused("its body is not a list of arguments")
    return content[0]


def _job_id(task: str, arguments: list[Any]) -> int | None:
    if task != RUN:
        if arguments:
            raise Refused(f"{task} takes no arguments")
        return None
    job_id = arguments[0] if len(arguments) == 1 else None
    if not isinstance(job_id, int) or isinstance(job_id, bool) or not 0 < job_id <= LARGEST_ID:
        raise Refused(f"{task} takes the number of one job")
    return job_id


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"it has no {what}")
    return value
