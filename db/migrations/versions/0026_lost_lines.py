"""An alarm about a line of the optimisation guide's checklist that turned from yes to no.

Revision 0026, after 0025.
"""

from alembic import op

revision = "0026"
down_revision = "0025"
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
    "new_toolchain",
)


def upgrade() -> None:
    _allow_alarms(*ALARMS, "line_lost")


def downgrade() -> None:
    op.execute("delete from alarms where kind = 'line_lost'")
    _allow_alarms(*ALARMS)


def _allow_alarms(*kinds: str) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.execute(f"""
alter table alarms
    drop constraint ck_alarms_kind,
    add constraint ck_alarms_kind check (kind in ({listed}))
""")
