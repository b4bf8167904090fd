"""Commits that left their branch are marked. The kinds of alarm that came with it are allowed by 0034.

Revision 0032, after 0031.
"""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table commits add left_branch_at timestamptz")
    op.execute("drop index ix_commits_repository_position")
    op.execute("create index ix_commits_newest on commits (repository, (left_branch_at is null), position)")


def downgrade() -> None:
    op.execute("drop index ix_commits_newest")
    op.execute("create index ix_commits_repository_position on commits (repository, position)")
    op.execute("alter table commits drop left_branch_at")
