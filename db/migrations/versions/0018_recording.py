"""Host code that only some nodes can run is recorded by a job of its own, and a worker says which queues it takes from.

Until now a worker's kind told its queues. A worker of the release before writes none, so it counts for no queue until
it is replaced. It takes no job of the new kind, since none of them takes the queue `record`.

Revision 0018, after 0017.
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

KINDS = "'compile', 'measure', 'judge', 'prepare', 'confirm', 'prepare_check', 'check'"


def upgrade() -> None:
    op.execute("alter table workers add column queues text[] not null default '{}'")
    _allow(f"'record', {KINDS}")


def downgrade() -> None:
    op.execute("delete from jobs where kind = 'record'")
    _allow(KINDS)
    op.execute("alter table workers drop column queues")


def _allow(kinds: str) -> None:
    op.execute(f"""
alter table jobs
    drop constraint ck_jobs_kind,
    add constraint ck_jobs_kind check (kind in ({kinds}))
""")
