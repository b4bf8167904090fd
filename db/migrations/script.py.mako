"""${message}

Say here why, in a sentence or two, for whoever meets this in a database years from now. Then check:

- The release before this one must work on the new tables: workers of both run side by side during a roll-out. So add
  now, fill and require in the next release; drop what the previous release no longer reads.
- It runs on a busy database, under the lock_timeout of db/migrate.py. A new column with a constant default is instant;
  a new constraint on a full table goes in `not valid` first and is validated in a migration of its own; an index on a
  full table is made concurrently (`with op.get_context().autocommit_block(): ... postgresql_concurrently=True`).
- Autogenerate does not see changed CHECKs, nor WHERE and INCLUDE of indexes: write those by hand. tests/db compares the
  outcome with db/models.py.
- There is no way down: whoever goes back to the release before restores the backup (docs/operate/upgrading.md).
- Write names and types out here; import nothing of db/models.py, which will have moved on.

Revision ${up_revision}, after ${down_revision}.
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
