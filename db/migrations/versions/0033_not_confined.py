"""Alarms about nodes on which a commit's code is not confined.

Until now `tilewatch doctor` alone said so.

Revision 0033, after 0032.
"""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

ALARMS = (
    "nightly_late",
    "nightly_missing",
    "gpu_quarantined",
    "stopped_compiling",
    "became_wrong",
    "tie_lost",
    "regret",
    "baseline_changed",
    "fetch_failed",
    "line_lost",
    "history_rewritten",
    "nightly_failed",
)


def upgrade() -> None:
    _allow_alarms(*ALARMS, "not_confined")


def downgrade() -> None:
    op.execute("delete from alarms where kind = 'not_confined'")
    _allow_alarms(*ALARMS)


def _allow_alarms(*kinds: str) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.execute(f"""
alter table alarms
    drop constraint ck_alarms_kind,
    add constraint ck_alarms_kind check (kind in ({listed}))
""")
