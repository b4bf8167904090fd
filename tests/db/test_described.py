"""The pages docs/reference/tables-*.md describe the database as it is: each table, column, type, and number's unit."""

import re
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

PAGES = sorted((Path(__file__).parents[2] / "docs" / "reference").glob("tables-*.md"))
DOCUMENT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
HEADING = re.compile(r"^### (\w+)$", re.MULTILINE)
ROW = re.compile(r"^\| (\w+) \| ([a-z\[\]]+)(, or null)? \| (.+) \|$", re.MULTILINE)
UNITS = re.compile(r"\bus\b|\bs\b|\brelative\b|\bshare\b|TFLOP/s|GB/s")
ALIASES = {"double precision": "double", "timestamp with time zone": "timestamptz", "double precision[]": "double[]"}

KEY = ("id", "bigint", True)
"""A sentence of data.md describes this column for every table."""

COLUMNS = text("""
    select class.relname, attribute.attname, format_type(attribute.atttypid, attribute.atttypmod), attribute.attnotnull
    from pg_attribute attribute
    join pg_class class on class.oid = attribute.attrelid
    where class.relnamespace = 'public'::regnamespace and class.relkind = 'r' and attribute.attnum > 0
        and not attribute.attisdropped and class.relname <> 'alembic_version'
    order by class.relname, attribute.attnum
""")


@pytest.fixture(scope="module")
def described() -> dict[str, list[tuple[str, str, bool, str]]]:
    """Column, type, whether it may be null, and the meaning, by table."""
    _, *parts = HEADING.split(DOCUMENT)
    return {
        table: [(name, kind, bool(null), meaning) for name, kind, null, meaning in ROW.findall(rows)[1:]]
        for table, rows in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_table_and_column_is_described_with_its_type(
    described: dict[str, list[tuple[str, str, bool, str]]], db_session: Session
) -> None:
    real = [
        f"{table}: | {column} | {ALIASES.get(kind, kind)}{'' if required else ', or null'} |"
        for table, column, kind, required in db_session.execute(COLUMNS)
        if (column, kind, required) != KEY
    ]
    written = [
        f"{table}: | {name} | {kind}{', or null' if null else ''} |"
        for table, rows in described.items()
        for name, kind, null, _ in rows
    ]
    assert [row for row in real if row not in written] == [], "docs/reference/tables-*.md lack these columns"
    assert [row for row in written if row not in real] == [], "docs/reference/tables-*.md have these too many"


def test_every_number_has_its_unit(described: dict[str, list[tuple[str, str, bool, str]]]) -> None:
    missing = [
        f"{table}.{name}: {meaning}"
        for table, rows in described.items()
        for name, kind, _, meaning in rows
        if kind.startswith("double") and not UNITS.search(meaning)
    ]
    assert missing == []
