"""A question survives the way through a job's payload, also one that the release before queued."""

from dataclasses import replace
from typing import Any

from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide, MachineCode, ReplayJob

CODE = MachineCode("key of good", "double_tiles", "sha of good", "cuda-tile 1.7.0 limit 15s")
GOOD = BuildSide(1, "a" * 40, 7, {"width": 128}, True, CODE)
BAD = BuildSide(2, "b" * 40, 8, {"width": 64}, False, None)
QUESTION = BuildQuestion(
    "watched:sim:simulated:double:1024:aaa:bbb:4+8",
    "double",
    "1024",
    "sim",
    "sm_90",
    "simulated",
    "commit",
    4,
    8,
    GOOD,
    BAD,
)
JOB = ReplayJob(QUESTION, "watched", "library", 11, 5, 3, ("one key", "another key"))

WRITTEN: dict[str, Any] = {
    "key": "watched:sim:simulated:double:1024:aaa:bbb:4+8",
    "kernel": "double",
    "problem": "1024",
    "axis": "commit",
    "suspicion_id": 3,
    "start": 4,
    "launches": 8,
    "good": {
        "commit_id": 1,
        "sha": "a" * 40,
        "config_id": 7,
        "params": {"width": 128},
        "measured": True,
        "content_key": "key of good",
        "symbol": "double_tiles",
        "code_sha256": "sha of good",
        "compiler": "cuda-tile 1.7.0 limit 15s",
    },
    "bad": {
        "commit_id": 2,
        "sha": "b" * 40,
        "config_id": 8,
        "params": {"width": 64},
        "measured": False,
        "content_key": None,
        "symbol": None,
        "code_sha256": None,
        "compiler": None,
    },
    "gpu_model": "sim",
    "arch": "sm_90",
    "origin": "simulated",
    "repository": "watched",
    "library": "library",
    "run_id": 11,
    "submission_id": 5,
    "round": ["one key", "another key"],
}
"""The payload of a job of 2026-11, key by key: queues hold such jobs while a fleet is upgraded."""


def test_a_payload_of_the_release_before_is_read_and_written_as_it_was() -> None:
    assert ReplayJob.from_payload(WRITTEN) == JOB
    assert JOB.to_payload() == WRITTEN


def test_a_question_to_one_gpu_names_it_and_its_node() -> None:
    to_one = replace(JOB, question=replace(QUESTION, axis="node", gpu_uuid="GPU-1", host="n1"))
    written = to_one.to_payload()
    assert (written["board"], written["host"]) == ("GPU-1", "n1")
    assert ReplayJob.from_payload(written) == to_one
    assert to_one.question.subject == "double 1024 on sim of n1: replay aaaaaaaaaa against bbbbbbbbbb"
