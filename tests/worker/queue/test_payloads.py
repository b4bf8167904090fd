"""A payload survives the way through the database, also one that the release before queued."""

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from tests.worker.fixtures import run_result
from tilewatch.db.worker_reads.steps import UnmeasuredCode
from tilewatch.kernels.results import TrialResult
from tilewatch.worker.queue.payloads import (
    CheckPayload,
    CompilePayload,
    MeasurePayload,
    PrepareCheckPayload,
    ToolchainsPayload,
    read_payload,
    write_payload,
)
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide, ReplayJob
from tilewatch.worker.steps.spool import Spooled

PLANNING = {"repository": "watched", "sha": "5", "library": "library", "kernel": "shift", "arch": "sm_90"}
"""The payload of a job of 2026-11, key by key: queues hold such jobs while a fleet is upgraded."""

BATCH = {**PLANNING, "items": [{"code_key": "k", "problem": "p1", "params": {"width": 64}}]}


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        (CompilePayload("watched", "5", "library", "shift", "sm_90"), PLANNING),
        (
            CompilePayload(
                "watched", "5", "library", "shift", "sm_90", items=(UnmeasuredCode("k", "p1", {"width": 64}),)
            ),
            BATCH,
        ),
        (
            MeasurePayload("library", ("deepgemm",), {"width": 64}, "next"),
            {"library": "library", "baselines": ["deepgemm"], "ships": {"width": 64}, "toolchain": "next"},
        ),
        (PrepareCheckPayload("watched", "library", None), {"repository": "watched", "library": "library"}),
        (
            PrepareCheckPayload("watched", "library", ("shift",)),
            {"repository": "watched", "library": "library", "kernels": ["shift"]},
        ),
        (CheckPayload(7, "watched", "library"), {"operator_id": 7, "repository": "watched", "library": "library"}),
        (
            ToolchainsPayload(
                3, ("old", "new"), "5", "watched", "main", "library", ("h100",), ("sm_90",), 10.0, True, 0.01
            ),
            {
                **{
                    "report_id": 3,
                    "toolchains": ["old", "new"],
                    "sha": "5",
                    "repository": "watched",
                    "stored_as": "main",
                },
                **{"library": "library", "gpus": ["h100"], "archs": ["sm_90"], "minutes": 10.0, "retunes": True},
                **{"fail_over": 0.01, "turn": 0},
            },
        ),
    ],
)
def test_a_payload_is_stored_key_by_key_and_read_again(payload: object, stored: dict[str, object]) -> None:
    assert json.loads(json.dumps(write_payload(payload))) == stored
    assert read_payload(type(payload), stored) == payload


MIXED = {"tile": 64, "swizzle": True, "epilogue": "silu", "scale": 0.5, "mask": None}
SIDE = BuildSide(1, "a" * 40, 7, MIXED, True, None)
TRIAL = TrialResult(MIXED, "timed", (1.0,), 1.0, 0.0)


@pytest.mark.parametrize(
    "payload",
    [
        CompilePayload(**PLANNING, items=(UnmeasuredCode("k", "p1", MIXED),)),
        MeasurePayload("library", ("deepgemm",), MIXED),
        ReplayJob(
            BuildQuestion("k", "double", "1024", "sim", "sm_90", "simulated", "commit", 4, 8, SIDE, SIDE),
            *("watched", "library", 11, 5, 3),
        ),
        Spooled(7, "k", replace(run_result.result(), winner=MIXED, tie=(MIXED,), trials=(TRIAL,))),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_a_watched_operator_s_config_survives_whatever_its_values(payload: object) -> None:
    """A text was refused, so none of the operator's jobs ran; True came back as 1, which is another config."""
    stored = json.dumps(write_payload(payload), default=str)
    assert json.dumps(write_payload(read_payload(type(payload), json.loads(stored))), default=str) == stored


def test_a_payload_of_another_kind_is_refused_and_unknown_keys_of_a_newer_release_are_not() -> None:
    with pytest.raises(ValidationError, match="kernel"):
        read_payload(CompilePayload, {"repository": "watched", "sha": "5", "library": "library", "arch": "sm_90"})
    assert (
        read_payload(CheckPayload, {"operator_id": 7, "repository": "r", "library": "l", "newer": 1}).operator_id == 7
    )


def test_a_check_of_the_release_before_names_all_kernels_with_null() -> None:
    stored = {"repository": "watched", "library": "library", "kernels": None}
    assert read_payload(PrepareCheckPayload, stored).kernels is None
