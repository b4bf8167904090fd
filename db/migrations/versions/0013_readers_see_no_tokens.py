"""A login that reads, such as a notebook's or a dashboard's, does not see the hashes of tokens.

All tables were readable by default. Who checks a token has the workers' role.

Revision 0013, after 0012.
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(_for_each_reader("revoke all on tokens from %I"))


def downgrade() -> None:
    op.execute(_for_each_reader("grant select on tokens to %I"))


def _for_each_reader(statement: str) -> str:
    return """
do $$
declare
    reader text;
begin
    for reader in select rolname from pg_roles where rolname in ('tilewatch_read', 'tilewatch_triage') loop
        execute format('STATEMENT', reader);
    end loop;
end
$$
""".replace("STATEMENT", statement)
