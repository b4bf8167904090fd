"""Messages are sent by a worker of its own kind, `tell`, which runs no library: it alone has the forge's token.

Revision 0029, after 0028.
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _allow("'compile', 'gpu', 'judge', 'tell'")


def downgrade() -> None:
    op.execute("delete from workers where kind = 'tell'")
    _allow("'compile', 'gpu', 'judge'")


def _allow(kinds: str) -> None:
    op.execute(f"""
alter table workers
    drop constraint ck_workers_kind,
    add constraint ck_workers_kind check (kind in ({kinds}))
""")
