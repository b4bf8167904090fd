"""Alarms about nodes on which a commit's code is not confined.

Until now `tilewatch doctor` alone said so.

Revision 0033, after 0032.
"""

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Does nothing: 0034 allows any kind of alarm."""


def downgrade() -> None:
    """Does nothing."""
