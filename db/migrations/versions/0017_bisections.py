"""A bisection is an action of its own: until now it was a backfill of every commit of a range.

Revision 0017, after 0016. Backfills that were asked for before stay what they are.
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

ACTIONS = "'cancel', 'retry', 'nightly', 'sweep', 'backfill', 'check'"


def upgrade() -> None:
    _allow(f"{ACTIONS}, 'bisect'")


def downgrade() -> None:
    op.execute("delete from actions where action = 'bisect'")
    _allow(ACTIONS)


def _allow(actions: str) -> None:
    op.execute(f"""
alter table actions
    drop constraint ck_actions_action,
    add constraint ck_actions_action check (action in ({actions}))
""")
