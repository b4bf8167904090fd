"""Commits that left their branch are marked, and two kinds of alarm are about a repository.

Revision 0032, after 0031.
"""

from alembic import op

revision = "0032"
down_revision = "0031"
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
)

NEW_ALARMS = ("history_rewritten", "nightly_failed")


def upgrade() -> None:
    op.execute("alter table commits add left_branch_at timestamptz")
    op.execute("drop index ix_commits_repository_position")
    op.execute("create index ix_commits_newest on commits (repository, (left_branch_at is null), position)")
    _allow_alarms(*ALARMS, *NEW_ALARMS)


def downgrade() -> None:
    op.execute("delete from alarms where kind in ('history_rewritten', 'nightly_failed')")
    _allow_alarms(*ALARMS)
    op.execute("drop index ix_commits_newest")
    op.execute("create index ix_commits_repository_position on commits (repository, position)")
    op.execute("alter table commits drop left_branch_at")


def _allow_alarms(*kinds: str) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.execute(f"""
alter table alarms
    drop constraint ck_alarms_kind,
    add constraint ck_alarms_kind check (kind in ({listed}))
""")
