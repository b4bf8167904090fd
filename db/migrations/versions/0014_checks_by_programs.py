"""Programs and forges submit checks: an action may be a check, and has a key where it must be taken once.

A forge delivers an event again when it got no answer; `key` names the delivery. Older actions have none.

Revision 0014, after 0013.
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
alter table actions
    add column key text constraint uq_actions_key unique,
    drop constraint ck_actions_action,
    add constraint ck_actions_action check (action in ('cancel', 'retry', 'nightly', 'sweep', 'backfill', 'check'))
""")


def downgrade() -> None:
    op.execute("""
delete from actions where action = 'check';
alter table actions
    drop column key,
    drop constraint ck_actions_action,
    add constraint ck_actions_action check (action in ('cancel', 'retry', 'nightly', 'sweep', 'backfill'))
""")
