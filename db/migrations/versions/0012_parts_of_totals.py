"""A sweep says what part it is of the weighted total of each model that uses its problem.

Sweeps of before are part of none.

Revision 0012, after 0011.
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table sweeps add column parts_of jsonb not null default '{}'::jsonb")


def downgrade() -> None:
    op.execute("alter table sweeps drop column parts_of")
