"""A comparison of two toolchains can be asked for: the judge does where another compiler made a series slower.

Revision 0024, after 0023.
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

ACTIONS = "'cancel', 'retry', 'nightly', 'sweep', 'backfill', 'check', 'bisect'"


def upgrade() -> None:
    _allow(f"{ACTIONS}, 'toolchains'")


def downgrade() -> None:
    op.execute("delete from actions where action = 'toolchains'")
    _allow(ACTIONS)


def _allow(actions: str) -> None:
    op.execute(f"""
alter table actions
    drop constraint ck_actions_action,
    add constraint ck_actions_action check (action in ({actions}))
""")
