"""Allows alarms of any kind. worker/notify/wording.py names the kinds, so a new kind needs no migration.

Revision 0034, after 0033.
"""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

BEFORE = """
'nightly_late', 'nightly_missing', 'gpu_quarantined', 'stopped_compiling', 'became_wrong', 'tie_lost', 'regret',
'baseline_changed', 'fetch_failed', 'line_lost'
"""


def upgrade() -> None:
    op.execute("alter table alarms drop constraint ck_alarms_kind")


def downgrade() -> None:
    op.execute(f"delete from alarms where kind not in ({BEFORE})")  # noqa: S608 - our own words
    op.execute(f"alter table alarms add constraint ck_alarms_kind check (kind in ({BEFORE}))")
