"""A queue that keeps working: urgency, passing trouble, simulations, and roles with few rights.

Jobs gain a priority (what a person waits for goes before the nightly), a time before which they are not tried again
after passing trouble, and the state "poison" for a job that took several workers down with it, which was hard to tell
from a job that failed by its own. Submissions gain the reason "backfill": commits that no night tested. Runs gain the
origin "simulated", for load tests and demonstrations, and with it a timer of that name: neither can be there without
the other, so that no query that looks at one of them takes a simulation for a measurement.

The checks are replaced by wider ones, so every row there is passes and the release before this one may go on writing:
its jobs get a nightly's priority. All three tables are small (a month of eight GPUs has some 15,000 measure jobs and
runs), so they are checked at once.

Two roles without a login let a server give each process what it needs: `tilewatch_write` for workers and for whoever
submits, `tilewatch_read` for the dashboard. Tables of later migrations are theirs too. Roles belong to the whole
server, so they may be there already, and are not dropped again; where the migrating user may not make roles, an
administrator makes the two first, or everybody goes on as the owner.

Revision 0002, after 0001.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COLUMNS = """
alter table jobs
    add column priority integer not null default 3,
    add column put_offs integer not null default 0,
    add column not_before timestamptz,
    add column trouble text;
"""

WIDER = """
alter table jobs
    drop constraint ck_jobs_state,
    drop constraint ck_jobs_failed_has_reason,
    add constraint ck_jobs_state
        check (state in ('waiting', 'queued', 'running', 'done', 'failed', 'poison', 'cancelled')),
    add constraint ck_jobs_failed_has_reason
        check ((state in ('failed', 'poison')) = (failure is not null));
alter table submissions
    drop constraint ck_submissions_reason,
    add constraint ck_submissions_reason check (reason in ('nightly', 'manual', 'backfill', 'recorded'));
alter table runs
    drop constraint ck_runs_origin,
    drop constraint ck_runs_timer,
    add constraint ck_runs_origin check (origin in ('measured', 'recorded', 'simulated')),
    add constraint ck_runs_timer check (timer in ('cupti', 'events', 'simulated')),
    add constraint ck_runs_simulated_has_no_timer check ((origin = 'simulated') = (timer = 'simulated'));
"""

ROLES = """
do $$
declare
    wanted text;
begin
    foreach wanted in array array['tilewatch_read', 'tilewatch_write'] loop
        begin
            execute format('create role %I nologin', wanted);
        exception
            when duplicate_object or unique_violation then null;
            when insufficient_privilege then
                raise notice 'role % is not there and may not be made by %', wanted, current_user;
        end;
    end loop;
    if (select count(*) from pg_roles where rolname in ('tilewatch_read', 'tilewatch_write')) = 2 then
        grant usage on schema public to tilewatch_read, tilewatch_write;
        grant select on all tables in schema public to tilewatch_read;
        grant select, insert, update, delete on all tables in schema public to tilewatch_write;
        revoke insert, update, delete on alembic_version from tilewatch_write;
        alter default privileges in schema public grant select on tables to tilewatch_read;
        alter default privileges in schema public grant select, insert, update, delete on tables to tilewatch_write;
    end if;
end
$$;
"""

NO_ROLES = """
do $$
begin
    if (select count(*) from pg_roles where rolname in ('tilewatch_read', 'tilewatch_write')) = 2 then
        alter default privileges in schema public revoke all on tables from tilewatch_read, tilewatch_write;
        revoke all on all tables in schema public from tilewatch_read, tilewatch_write;
        revoke all on schema public from tilewatch_read, tilewatch_write;
    end if;
end
$$;
"""

NARROWER = """
delete from runs where origin = 'simulated';
alter table runs
    drop constraint ck_runs_simulated_has_no_timer,
    drop constraint ck_runs_origin,
    drop constraint ck_runs_timer,
    add constraint ck_runs_origin check (origin in ('measured', 'recorded')),
    add constraint ck_runs_timer check (timer in ('cupti', 'events'));
update jobs set state = 'failed' where state = 'poison';
update submissions set reason = 'manual' where reason = 'backfill';
alter table jobs
    drop constraint ck_jobs_state,
    drop constraint ck_jobs_failed_has_reason,
    add constraint ck_jobs_state
        check (state in ('waiting', 'queued', 'running', 'done', 'failed', 'cancelled')),
    add constraint ck_jobs_failed_has_reason check ((state = 'failed') = (failure is not null)),
    drop column priority,
    drop column put_offs,
    drop column not_before,
    drop column trouble;
alter table submissions
    drop constraint ck_submissions_reason,
    add constraint ck_submissions_reason check (reason in ('nightly', 'manual', 'recorded'));
"""


def upgrade() -> None:
    op.execute(COLUMNS)
    op.execute(WIDER)
    op.execute(ROLES)


def downgrade() -> None:
    op.execute(NO_ROLES)
    op.execute(NARROWER)
