"""Writes the result of a replay."""

from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import suspicions
from tilewatch.kernels.measuring.replay import ReplayResult
from tilewatch.worker.queue.replay_job import BuildQuestion, ReplayJob


def write_answer(session: Session, asked: ReplayJob, result: ReplayResult) -> None:
    where = {
        "host": result.host,
        "gpu_uuid": result.gpu_uuid,
        "telemetry": [dict(each) for each in result.telemetry],
        "gpu_s": result.gpu_s,
        "counters": result.counters,
    }
    row = {**_row(asked), **where}
    suspicions.write_replay(session, asked.question.key, row, good_us=result.base_us, bad_us=result.head_us)


def write_failure(session: Session, asked: ReplayJob, why: str) -> None:
    where: dict[str, Any] = {"host": None, "gpu_uuid": None, "telemetry": [], "gpu_s": 0.0}
    suspicions.write_replay(session, asked.question.key, {**_row(asked), **where}, failure=why)


def code_columns(question: BuildQuestion) -> dict[str, Any]:
    """Returns the columns of `replays` that identify the machine code of both versions."""
    columns: dict[str, Any] = {
        name: getattr(question, name) for name in ("kernel", "problem", "gpu_model", "axis", "origin")
    }
    for name, side in (("good", question.base), ("bad", question.head)):
        columns |= {f"{name}_{column}": getattr(side.code, column, None) for column in ("content_key", "code_sha256")}
        columns[f"{name}_toolchain"] = getattr(side.code, "compiler", None)
    return columns


def _row(asked: ReplayJob) -> dict[str, Any]:
    row = {**code_columns(asked.question), "suspicion_id": asked.suspicion_id}
    for name, side in (("good", asked.question.base), ("bad", asked.question.head)):
        row |= {f"{name}_commit_id": side.commit_id, f"{name}_config_id": side.config_id}
    return row
