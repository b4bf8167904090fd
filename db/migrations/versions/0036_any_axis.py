"""Allows replays along any axis: worker/queue/replay_job.py names them, so a new one needs no migration.

Revision 0036, after 0035.
"""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table replays drop constraint ck_replays_axis")


def downgrade() -> None:
    before = "axis in ('commit', 'toolchain', 'node')"
    op.execute(f"delete from replays where not {before}")  # noqa: S608 - our own words
    op.execute(f"alter table replays add constraint ck_replays_axis check ({before})")
