"""The first revision, 0039, which changes nothing. db/migrate.py makes new databases from db/models.py."""

revision = "0039"
down_revision = None
branch_labels = None
depends_on = None
