"""The first revision, which changes nothing. Migrations are for existing databases. db/migrate.py makes a new database
from db/models.py, at the newest revision.

Revision 0039, after nothing.
"""

revision = "0039"
down_revision = None
branch_labels = None
depends_on = None
