"""Finds the newest commits of a repository by an index: the newest sweep of a series is one of theirs.

Revision 0031, after 0030.
"""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("create index ix_commits_repository_position on commits (repository, position)")


def downgrade() -> None:
    op.execute("drop index ix_commits_repository_position")
