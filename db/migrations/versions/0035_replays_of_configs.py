"""Allows replays of two configs of one commit: the best of a short list, and one outside it.

Revision 0035, after 0034.
"""

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def _allow(*axes: str) -> None:
    op.execute("alter table replays drop constraint ck_replays_axis")
    op.execute(f"alter table replays add constraint ck_replays_axis check (axis in {axes})")


def upgrade() -> None:
    _allow("commit", "toolchain", "node", "config")


def downgrade() -> None:
    op.execute("delete from replays where axis = 'config'")
    _allow("commit", "toolchain", "node")
