"""Repositories that Tilewatch clones and fetches itself, and an alarm about one that cannot be fetched.

Revision 0015, after 0014.
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

ALARMS = (
    "nightly_late",
    "nightly_missing",
    "gpu_quarantined",
    "stopped_compiling",
    "became_wrong",
    "tie_lost",
    "regret",
    "baseline_changed",
)


def upgrade() -> None:
    op.execute("""
create table repositories (
    name text not null constraint pk_repositories primary key,
    url text not null,
    branch text not null,
    added_at timestamptz not null default now(),
    removed_at timestamptz,
    fetched_at timestamptz,
    failing_since timestamptz,
    failure text,
    constraint ck_repositories_failure_has_time check ((failure is null) = (failing_since is null))
)
""")
    _allow_alarms(*ALARMS, "fetch_failed")


def downgrade() -> None:
    op.execute("delete from alarms where kind = 'fetch_failed'")
    _allow_alarms(*ALARMS)
    op.execute("drop table repositories")


def _allow_alarms(*kinds: str) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.execute(f"""
alter table alarms
    drop constraint ck_alarms_kind,
    add constraint ck_alarms_kind check (kind in ({listed}))
""")
