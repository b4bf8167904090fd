"""A question survives the way through a job's payload."""

import json
from dataclasses import replace

from tilewatch.worker.queue.payloads import read_payload, write_payload
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
JOB = ReplayJob(QUESTION, "watched", "library", 11, 5, 3)


def test_a_job_survives_the_way_through_its_payload() -> None:
    assert read_payload(ReplayJob, json.loads(json.dumps(write_payload(JOB)))) == JOB


def test_a_question_to_one_gpu_names_it_and_its_node() -> None:
    to_one = replace(JOB, question=replace(QUESTION, axis="node", gpu_uuid="GPU-1", host="n1"))
    assert read_payload(ReplayJob, json.loads(json.dumps(write_payload(to_one)))) == to_one
    assert to_one.question.subject == "double 1024 on sim of n1: replay aaaaaaaaaa against bbbbbbbbbb"
