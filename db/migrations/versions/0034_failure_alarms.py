"""Alarms about a repository for which something cannot be done, and about a process that ended by itself.

Until now the log alone said so.

Revision 0034, after 0033.
"""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

NEW = ("repository_failed", "process_ended")
OLD = (
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
    "not_confined",
)


def upgrade() -> None:
    _allow_alarms(*OLD, *NEW)


def downgrade() -> None:
    op.execute("delete from alarms where kind in ('repository_failed', 'process_ended')")
    _allow_alarms(*OLD)


def _allow_alarms(*kinds: str) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.execute(f"""
alter table alarms
    drop constraint ck_alarms_kind,
    add constraint ck_alarms_kind check (kind in ({listed}))
""")
