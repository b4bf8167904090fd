"""What a measurement's ratio is a ratio to.

Only DeepGEMM was ever the main baseline, so kernels that it cannot solve (attention, norms, float16 products) had no
ratio. Now it is the first of a kernel's baselines that was measured, and the row says which. Ratios that are there are
DeepGEMM's. Runs without one stay as they are: their ratios would have to be derived from samples, which a migration
cannot do. The release before this one does not know the column; what it writes until the roll-out is over has a ratio
to DeepGEMM that does not say so.

Measurements are few (a year of a fleet: 220,000), so they are filled at once.

Revision 0007, after 0006.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table measurements add column baseline text")
    op.execute("update measurements set baseline = 'deepgemm' where ratio is not null")


def downgrade() -> None:
    op.execute("alter table measurements drop column baseline")
