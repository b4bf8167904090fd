"""Reads which GPUs are or were ill: the time of each quarantine, its reason, and the results of its canaries."""

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewatch.db.joins import read_rows
from tilewatch.db.models import Quarantine


@dataclass(frozen=True)
class QuarantineRow:
    gpu_uuid: str
    gpu_model: str
    host: str
    kind: str
    reason: str
    began_at: dt.datetime
    canaries: int
    canary_at: dt.datetime | None
    canary_said: str | None
    ended_at: dt.datetime | None


def list_quarantines(session: Session, limit: int = 50) -> list[QuarantineRow]:
    """Lists the GPUs that are in quarantine, then those that were, the newest first."""
    columns = [getattr(Quarantine, name) for name in QuarantineRow.__dataclass_fields__]
    newest = (Quarantine.ended_at.is_not(None), Quarantine.began_at.desc())
    return read_rows(session, select(*columns).order_by(*newest).limit(limit), QuarantineRow)
