"""The login of a dashboard on which people act changes states, owners and notes, and no text, payload or name.

It could change every column: what a job runs, what a message says, who did an action.

Revision 0022, after 0021.
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

COLUMNS = {
    "jobs": "state, owner, lease_until, not_before, failure, trace, log, trouble, sent_at, started_at, finished_at, "
    "attempt, put_offs, done_steps",
    "regressions": "state, owner, note, link, changed_at",
    "marks": '"right", note, at',
}
"""What acting from a page changes, by table: db/lifecycle/actions.py and regressions.py."""

NARROW = "; ".join(
    (
        "revoke update on jobs, regressions, regression_series, messages, actions, marks from tilewatch_triage",
        "revoke insert on messages from tilewatch_triage",
        *(f"grant update ({columns}) on {table} to tilewatch_triage" for table, columns in COLUMNS.items()),
    )
)
WIDE = "; ".join(
    (
        *(f"revoke update ({columns}) on {table} from tilewatch_triage" for table, columns in COLUMNS.items()),
        "grant update on jobs, regressions, regression_series, messages, actions, marks to tilewatch_triage",
        "grant insert on messages to tilewatch_triage",
    )
)


def upgrade() -> None:
    op.execute(_where_it_is(NARROW))


def downgrade() -> None:
    op.execute(_where_it_is(WIDE))


def _where_it_is(statements: str) -> str:
    return f"""
do $$
begin
    if exists (select from pg_roles where rolname = 'tilewatch_triage') then
        {statements};
    end if;
end
$$
"""
