"""Stores many rows at once: COPY into a temporary table, from which the caller's SQL takes them. Knows no table of
ours.

A statement per row stores some 5,000 trials a second; COPY and one statement for all store ten times as many
(benchmarks/storage.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Table, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from tilewatch.db.models import Base

Columns = Mapping[str, str]
"""Postgres types by column name."""


def copy_rows(session: Session, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
    """Fills the temporary table `name` with these rows and no others; at the end of the transaction it is empty again.

    The table stays for the life of the connection: making one for every few hundred rows would cost more than they do.
    """
    driver = session.connection().connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    definitions = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in columns.items()
    )
    table = sql.Identifier(name)
    with driver.cursor() as cursor:
        cursor.execute(
            sql.SQL("create temporary table if not exists {} ({}) on commit delete rows").format(table, definitions)
        )
        cursor.execute(sql.SQL("delete from {}").format(table))
        with cursor.copy(sql.SQL("copy {} from stdin (format binary)").format(table)) as copy:
            copy.set_types(list(columns.values()))
            for row in rows:
                copy.write_row(row)


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
