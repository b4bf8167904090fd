"""A sweep keeps what was counted of its trials, and whether their samples were pruned.

Pages counted the trials of each sweep that they show: 12 million for a weekly report of 25 nights of 50 problems. And
pruning looked through all trials of old sweeps, each night and for each 5,000 trials anew.

Sweeps that are there already have neither: they are counted as before, and the next pruning looks at each once.

Revision 0030, after 0029.
"""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table sweeps add column trial_facts jsonb, add column pruned_at timestamptz")
    op.execute("create index ix_sweeps_unpruned on sweeps (created_at) where pruned_at is null")


def downgrade() -> None:
    op.execute("alter table sweeps drop column trial_facts, drop column pruned_at")
