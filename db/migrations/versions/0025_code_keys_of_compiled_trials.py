"""A trial names its code until it has its compilation, which has the same code key: 65 bytes less for each trial.

Only new trials are smaller; the table is not written anew.

Revision 0025, after 0024.
"""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table trials alter column code_key drop not null")


def downgrade() -> None:
    op.execute("""
update trials set code_key = compilations.code_key
from compilations
where compilations.id = trials.compilation_id and trials.code_key is null
""")
    op.execute("alter table trials alter column code_key set not null")
