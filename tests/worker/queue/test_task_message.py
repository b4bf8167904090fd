"""Each message of ours is read as it was written, and one that differs from it by a little is refused."""

import base64
import json
from typing import Any

import pytest

from tilewatch.worker.queue import task_message
from tilewatch.worker.queue.task_message import LONGEST_BYTES, RUN, Refused, TaskMessage

LARGEST_ID = 9_223_372_036_854_775_807
"""The largest number of a bigint in Postgres."""

OF_A_JOB, OF_NO_JOB = TaskMessage(RUN, "job-7", 7), TaskMessage("worker.tell", "a.b:c_d-E9", None)


def write(message: TaskMessage = OF_A_JOB, body: Any = None, **changed: Any) -> bytes:
    content = task_message.to_celery(message, "judge")
    if body is not None:
        content["body"] = body if isinstance(body, int) else base64.b64encode(json.dumps(body).encode()).decode()
    headers = {**content["headers"], **changed.pop("headers", {})}
    return json.dumps({**content, "headers": headers, **changed}).encode()


@pytest.mark.parametrize(
    "message",
    [
        OF_A_JOB,
        OF_NO_JOB,
        TaskMessage(RUN, "x", 1),
        TaskMessage(RUN, "x" * 100, LARGEST_ID),
        TaskMessage(f"worker.{'a_' * 20}", "x", None),
    ],
)
def test_a_message_of_ours_is_read_as_it_was_written(message: TaskMessage) -> None:
    written = write(message)
    assert task_message.read(written) == message
    assert task_message.read(written + b" " * (LONGEST_BYTES - len(written))) == message
    with pytest.raises(Refused, match=f"it has {LONGEST_BYTES + 1} bytes, at most {LONGEST_BYTES} were expected"):
        task_message.read(written + b" " * (LONGEST_BYTES + 1 - len(written)))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"headers": {"task": f"worker.{'a' * 41}"}}, "it names no task of ours"),
        ({"headers": {"task": "worker."}}, "it names no task of ours"),
        ({"headers": {"task": "worker.run\n"}}, "it names no task of ours"),
        ({"headers": {"task": 7}}, "it names no task of ours"),
        ({"headers": {"id": ""}}, "it has no id"),
        ({"headers": {"id": "x" * 101}}, "it has no id"),
        ({"headers": {"id": "a b"}}, "it has no id"),
        ({"headers": {"id": 7}}, "it has no id"),
        ({"content-type": "text/plain"}, "its body is not JSON"),
        ({"body": 7}, "its body is not JSON"),
        ({"body": {}}, "its body is not a list of arguments"),
        ({"body": [[7], {}]}, "its body is not a list of arguments"),
        ({"body": [[7], {}, {}, {}]}, "its body is not a list of arguments"),
        ({"body": [7, {}, {}]}, "its body is not a list of arguments"),
        ({"body": [[7], {"x": 1}, {}]}, "its body is not a list of arguments"),
        ({"body": [[7], [], {}]}, "its body is not a list of arguments"),
        *(
            ({"body": [arguments, {}, {}]}, "worker.run takes the number of one job")
            for arguments in ([], [0], [-1], [LARGEST_ID + 1], [True], [1.0], ["1"], [None], [1, 2])
        ),
    ],
    ids=str,
)
def test_a_message_that_differs_from_ours_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        task_message.read(write(**changed))


def test_a_task_without_a_job_takes_no_arguments() -> None:
    with pytest.raises(Refused, match=r"^worker.tell takes no arguments$"):
        task_message.read(write(OF_NO_JOB, [[7], {}, {}]))


def test_a_message_names_its_queue_and_each_copy_has_its_own_tag() -> None:
    first, second = (task_message.to_celery(OF_A_JOB, "gpu.h200") for _ in range(2))
    tags = {each["properties"].pop("delivery_tag") for each in (first, second)}
    assert len(tags) == 2
    assert first == second
    assert first["properties"]["delivery_info"] == {"exchange": "", "routing_key": "gpu.h200"}
    assert first["headers"]["argsrepr"] == "(7,)"
