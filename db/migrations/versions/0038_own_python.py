"""Adds whether a Python of its owner's records a repository.

Revision 0038, after 0037.
"""

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table repositories add column own_python boolean not null default false")


def downgrade() -> None:
    op.execute("alter table repositories drop column own_python")
