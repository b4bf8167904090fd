"""The first revision. Migrations change existing databases only, since db/migrate.py makes a new one from db/models.py,
at the newest revision.

Revision 0039, after nothing.
"""

revision = "0039"
down_revision = None
branch_labels = None
depends_on = None
