"""Puts ill GPUs into quarantine, and ends a quarantine after a clean canary, which is a short test."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Double, cast, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.models import Quarantine, Run
from tilewatch.db.query_parts import find_row, select_row

CANARY_RUNS = 50
"""The number of a GPU's newest runs whose canaries a new canary is compared with."""


@dataclass(frozen=True)
class OpenQuarantine:
    """A quarantine that has not ended. `waited_s` is the time since its last canary, or since its start."""

    id: int
    gpu_uuid: str
    kind: str
    reason: str
    began_at: dt.datetime
    canaries: int
    waited_s: float


def begin(
    session: Session, *, gpu_uuid: str, gpu_model: str, host: str, kind: str, reason: str, evidence: Mapping[str, Any]
) -> bool:
    """Puts a GPU into quarantine. Returns False if it is in quarantine already."""
    new = insert(Quarantine).values(
        gpu_uuid=gpu_uuid, gpu_model=gpu_model, host=host, kind=kind, reason=reason, evidence=dict(evidence)
    )
    once = new.on_conflict_do_nothing(index_elements=[Quarantine.gpu_uuid], index_where=Quarantine.ended_at.is_(None))
    return session.execute(once.returning(Quarantine.id)).one_or_none() is not None


def find_open(session: Session, gpu_uuid: str) -> OpenQuarantine | None:
    """Returns a GPU's open quarantine; None if there is none."""
    waited_s = cast(
        func.extract("epoch", func.now() - func.coalesce(Quarantine.canary_at, Quarantine.began_at)), Double
    )
    query = select_row(OpenQuarantine, [Quarantine], waited_s=waited_s).where(
        Quarantine.gpu_uuid == gpu_uuid, Quarantine.ended_at.is_(None)
    )
    return find_row(session, query, OpenQuarantine)


def count_quarantines(session: Session, gpu_uuid: str) -> int:
    """Returns how many quarantines a GPU has had, including an open one."""
    return session.execute(select(func.count(Quarantine.id)).where(Quarantine.gpu_uuid == gpu_uuid)).scalar_one()


def find_reason_during(
    session: Session, gpu_uuid: str, started_at: dt.datetime, finished_at: dt.datetime
) -> str | None:
    """Returns the reason of a GPU's newest quarantine in a period; None if there is none."""
    query = (
        select(Quarantine.reason)
        .where(
            Quarantine.gpu_uuid == gpu_uuid,
            Quarantine.began_at <= finished_at,
            or_(Quarantine.ended_at.is_(None), Quarantine.ended_at >= started_at),
        )
        .order_by(Quarantine.id.desc())
        .limit(1)
    )
    return session.scalars(query).one_or_none()


def write_canary(session: Session, quarantine_id: int, result: str, *, clean: bool) -> None:
    """Stores the result of a canary, which is a short test. A clean result ends the quarantine."""
    columns: dict[str, Any] = {"canaries": Quarantine.canaries + 1, "canary_at": func.now(), "canary_said": result}
    if clean:
        columns["ended_at"] = func.now()
    session.execute(
        update(Quarantine).where(Quarantine.id == quarantine_id, Quarantine.ended_at.is_(None)).values(**columns)
    )


def list_readings(session: Session, gpu_uuid: str) -> list[dict[str, Any]]:
    """Lists the telemetry readings of a GPU's newest runs, the newest run first. Leaves out imported runs."""
    query = (
        select(Run.telemetry)
        .where(Run.gpu_uuid == gpu_uuid, Run.origin != "recorded")
        .order_by(Run.started_at.desc())
        .limit(CANARY_RUNS)
    )
    return [reading for telemetry in session.scalars(query) for reading in telemetry]
