"""Makes the tables of db/models.py in an empty database, and the roles that may use them.

Workers and people who submit work use the role `tilewatch_write`; the dashboard uses `tilewatch_read`. A dashboard on
which people may act uses `tilewatch_triage`, which may change states, owners, notes and marks, and add actions. Roles
belong to the whole server and may exist already. If the user may not make roles, an administrator makes them.
"""

from sqlalchemy import Connection, text

from tilewatch.db.models import Base

FILL_REPOSITORY = """
create function repository_of_sweep() returns trigger language plpgsql as $$
begin
    new.repository := (select repository from commits where id = new.commit_id);
    return new;
end
$$;

create trigger repository_of_sweep before insert or update of commit_id, repository on sweeps
    for each row execute function repository_of_sweep();
"""
"""A trigger that copies a sweep's repository from its commit, so that the two are always equal."""

ROLES = """
do $$
declare
    wanted text;
begin
    foreach wanted in array array['tilewatch_read', 'tilewatch_write', 'tilewatch_triage'] loop
        begin
            execute format('create role %I nologin', wanted);
        exception
            when duplicate_object or unique_violation then null;
            when insufficient_privilege then
                raise notice 'role % is not there and may not be made by %', wanted, current_user;
        end;
        if exists (select from pg_roles where rolname = wanted) then
            execute format('grant usage on schema public to %I', wanted);
            execute format('grant select on all tables in schema public to %I', wanted);
            execute format('alter default privileges in schema public grant select on tables to %I', wanted);
        end if;
    end loop;
    if exists (select from pg_roles where rolname = 'tilewatch_write') then
        grant insert, update, delete on all tables in schema public to tilewatch_write;
        revoke insert, update, delete on alembic_version from tilewatch_write;
        alter default privileges in schema public grant insert, update, delete on tables to tilewatch_write;
    end if;
    if exists (select from pg_roles where rolname = 'tilewatch_read') then
        revoke all on tokens from tilewatch_read;
    end if;
    if exists (select from pg_roles where rolname = 'tilewatch_triage') then
        revoke all on tokens from tilewatch_triage;
        grant insert on regression_events, actions, marks to tilewatch_triage;
        grant update ("right", note, at) on marks to tilewatch_triage;
        grant update (state, owner, note, link, changed_at) on regressions to tilewatch_triage;
        grant update (state, owner, lease_until, not_before, failure, trace, log, trouble, sent_at, started_at,
            finished_at, attempt, put_offs, done_steps) on jobs to tilewatch_triage;
    end if;
end
$$;
"""


def create_tables(connection: Connection) -> None:
    """Creates every table, and the trigger that fills the column `repository` of sweeps."""
    Base.metadata.create_all(connection, checkfirst=False)
    connection.execute(text(FILL_REPOSITORY))


def grant_rights(connection: Connection) -> None:
    """Creates the roles if the connection's user may, and grants them their rights."""
    connection.execute(text(ROLES))
