"""Trials without the index that nobody reads, and with room for what becomes of them.

A trial is written when it is planned and changed when it ends. Both paid for an index on its 64-character code key,
which no query uses: what looks for a trial by its code names its sweep too. In full pages a changed row also lands in
another page, with an entry in every index; pages with room keep it beside the old one, with none. Together that is a
third of the time of both (docs/measurements.md), and a sixth of what a trial takes on disk. Pages that are there stay
full.

Revision 0008, after 0007.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("drop index ix_trials_code_key")
    op.execute("alter table trials set (fillfactor = 70)")


def downgrade() -> None:
    op.execute("alter table trials reset (fillfactor)")
    op.execute("create index ix_trials_code_key on trials (code_key)")
