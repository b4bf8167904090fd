"""Adds a row only if the table has no row with its natural key."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.models import Base


def find_or_add(
    session: Session, model: type[Base], natural_key: Sequence[str], row: Mapping[str, Any]
) -> tuple[int, bool]:
    """Adds a row if its natural key is new. Returns the row's id and whether it is new."""
    table = _table(model)
    added = session.execute(
        insert(table).values(**row).on_conflict_do_nothing(index_elements=list(natural_key)).returning(table.c.id)
    ).scalar()
    if added is not None:
        return int(added), True
    existing = select(table.c.id).where(*(table.c[name] == row[name] for name in natural_key))
    return int(session.execute(existing).scalar_one()), False


def find_or_add_all(
    session: Session, model: type[Base], natural_key: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Adds the rows whose natural keys are new. Returns the ids of all rows, in the same order."""
    if not rows:
        return []
    table = _table(model)
    keys = [tuple(row[name] for name in natural_key) for row in rows]
    added = insert(table).on_conflict_do_nothing(index_elements=list(natural_key))
    # Sorted by key, so that two sessions cannot wait for each other.
    session.execute(added, [dict(row) for _, row in sorted(zip(keys, rows, strict=True), key=lambda each: each[0])])
    columns = [table.c[name] for name in natural_key]
    found = session.execute(select(table.c.id, *columns).where(tuple_(*columns).in_(keys)))
    ids = {tuple(values): row_id for row_id, *values in found}
    return [ids[key] for key in keys]


def _table(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table
