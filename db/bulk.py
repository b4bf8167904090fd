"""Many rows at once through COPY, into a table of this connection's own; what becomes of them the caller says in SQL.

A statement per row stores some 5,000 trials a second; COPY and one statement for all store ten times as many
(benchmarks/storage.py). Knows no table of ours.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy.orm import Session

Columns = Mapping[str, str]
"""Names and Postgres' types."""


def copied(session: Session, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
    """Fill the temporary table `name` with these rows and nothing else. It is empty again after the transaction.

    It stays for the life of the connection: making one for every few hundred rows would cost more than they do.
    """
    driver = session.connection().connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    listed = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in columns.items()
    )
    table = sql.Identifier(name)
    with driver.cursor() as cursor:
        cursor.execute(
            sql.SQL("create temporary table if not exists {} ({}) on commit delete rows").format(table, listed)
        )
        cursor.execute(sql.SQL("delete from {}").format(table))
        with cursor.copy(sql.SQL("copy {} from stdin (format binary)").format(table)) as copy:
            copy.set_types(list(columns.values()))
            for row in rows:
                copy.write_row(row)
