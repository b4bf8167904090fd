"""Who wrote a commit.

A reader who sees a trend turn asks whose commit that was, and should not have to leave the page for it. Commits that
are there have none until they are submitted again; the release before this one does not know the column and goes on as
it did. Adding a column without a default rewrites nothing.

Revision 0005, after 0004.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table commits add column author text")


def downgrade() -> None:
    op.execute("alter table commits drop column author")
