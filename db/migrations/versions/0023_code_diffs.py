"""What differs between the code of two winners is kept for pages, which have no cubins and no disassembler.

`runs.code_compared_at` is empty for runs of before; a worker compares theirs too, the newest first, where their cubins
are still in the store.

Revision 0023, after 0022.
"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
create table code_diffs (
    base_key text not null,
    head_key text not null,
    sentence text not null,
    changes jsonb not null default '[]'::jsonb,
    instructions jsonb not null default '[]'::jsonb,
    compared_at timestamptz not null default now(),
    constraint pk_code_diffs primary key (base_key, head_key)
)
""")
    op.execute("alter table runs add column code_compared_at timestamptz")


def downgrade() -> None:
    op.execute("alter table runs drop column code_compared_at")
    op.execute("drop table code_diffs")
