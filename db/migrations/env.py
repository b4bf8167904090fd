"""Runs migrations when Alembic imports this file. This command writes a new migration for TILEWATCH_DATABASE_URL:

alembic -c db/alembic.ini revision --autogenerate --rev-id 0040 -m "say what changes"
"""

import os

from alembic import context
from sqlalchemy import Connection

from tilewatch.db import session
from tilewatch.db.models import Base


def migrate(connection: Connection) -> None:
    # One transaction each: a migration that fails leaves those before it done and itself undone.
    context.configure(connection, target_metadata=Base.metadata, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    with session.engine(os.environ["TILEWATCH_DATABASE_URL"]).connect() as opened:
        migrate(opened)
