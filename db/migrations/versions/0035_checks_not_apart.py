"""Adds why an operator of a check was not measured apart from its host code.

Revision 0035, after 0034.
"""

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table check_operators add column not_apart text not null default ''")


def downgrade() -> None:
    op.execute("alter table check_operators drop column not_apart")
