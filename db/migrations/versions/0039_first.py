"""The first revision, which changes nothing. db/migrate.py makes new databases from db/models.py.

Revision 0039, after nothing.
"""

revision = "0039"
down_revision = None
branch_labels = None
depends_on = None
