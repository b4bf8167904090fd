"""Jobs that compile the sides of a replay are of a kind of their own, "prepare".

They were of the kind "compile" and known by a key of their payload. Those that are queued stay as they are and are done
(worker/queue/follow_up.py, kind_of). Compile workers of the release before do not know the kind: replace them together
with the judge.

Revision 0009, after 0008.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
alter table jobs
    drop constraint ck_jobs_kind,
    add constraint ck_jobs_kind check (kind in ('compile', 'measure', 'judge', 'prepare', 'confirm'))
""")


def downgrade() -> None:
    op.execute("""
update jobs set kind = 'compile' where kind = 'prepare';
alter table jobs
    drop constraint ck_jobs_kind,
    add constraint ck_jobs_kind check (kind in ('compile', 'measure', 'judge', 'confirm'))
""")
