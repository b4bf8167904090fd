"""Two toolchains are compared by the queue too: two kinds of job, and a report names the newest job that makes it.

Workers of the release before do not know the kinds and fail them as bugs, so replace them before a comparison is
submitted.

Revision 0020, after 0019.
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

KINDS = "'record', 'compile', 'measure', 'judge', 'prepare', 'confirm', 'prepare_check', 'check'"


def upgrade() -> None:
    op.execute("""
alter table toolchain_reports
    add column job_id bigint
        constraint fk_toolchain_reports_job_id_jobs references jobs (id) on delete set null
""")
    _allow(f"{KINDS}, 'compile_toolchains', 'time_toolchains'")


def downgrade() -> None:
    op.execute("alter table toolchain_reports drop column job_id")
    op.execute("delete from jobs where kind in ('compile_toolchains', 'time_toolchains')")
    _allow(KINDS)


def _allow(kinds: str) -> None:
    op.execute(f"""
alter table jobs
    drop constraint ck_jobs_kind,
    add constraint ck_jobs_kind check (kind in ({kinds}))
""")
