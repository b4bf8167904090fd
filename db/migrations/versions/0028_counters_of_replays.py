"""A replay that shows a difference holds the hardware counters of both sides, read after its last time.

Revision 0028, after 0027.
"""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table replays add column counters jsonb")


def downgrade() -> None:
    op.execute("alter table replays drop column counters")
