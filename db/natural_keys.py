"""Adds a row unless one with its natural key exists, so that a step may run twice."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.models import Base


def find_or_add(
    session: Session, model: type[Base], natural_key: Mapping[str, Any], rest: Mapping[str, Any]
) -> tuple[int, bool]:
    """Adds the row unless one with this natural key exists. Returns its id, and whether it is new."""
    table = _table(model)
    added = session.execute(
        insert(table)
        .values(**natural_key, **rest)
        .on_conflict_do_nothing(index_elements=list(natural_key))
        .returning(table.c.id)
    ).scalar()
    if added is not None:
        return int(added), True
    existing = select(table.c.id).where(*(table.c[name] == value for name, value in natural_key.items()))
    return int(session.execute(existing).scalar_one()), False


def _table(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table
