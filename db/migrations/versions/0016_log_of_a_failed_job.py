"""The last lines of the log of a job that failed: its worker may be on another machine than who looks for the reason.

Revision 0016, after 0015. The column is empty for jobs of before, and for those that end well.
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table jobs add column log text")


def downgrade() -> None:
    op.execute("alter table jobs drop column log")
