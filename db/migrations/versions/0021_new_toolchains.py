"""An alarm about a newer version of the tile compiler on the package index.

Revision 0021, after 0020.
"""

from alembic import op

revision = "0021"
down_revision = "0020"
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
)


def upgrade() -> None:
    _allow_alarms(*ALARMS, "new_toolchain")


def downgrade() -> None:
    op.execute("delete from alarms where kind = 'new_toolchain'")
    _allow_alarms(*ALARMS)


def _allow_alarms(*kinds: str) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.execute(f"""
alter table alarms
    drop constraint ck_alarms_kind,
    add constraint ck_alarms_kind check (kind in ({listed}))
""")
