"""A sweep knows the repository that it is of.

A series is of one repository: two that have a kernel of one name shared a trend as long as sweeps were looked up by
kernel, problem and GPU model alone. Which repository it is follows from the commit, but the series of a fleet are found
by stepping through an index, which has to begin with it.

A trigger fills the column, so that it cannot contradict the commit and the release before this one, which does not know
it, goes on writing. That release still reads by kernel, problem and GPU model; without the old index its pages are slow
for as long as the roll-out takes, and right. Sweeps are few (a year of a fleet: 175,000), so they are filled and
indexed at once.

Revision 0006, after 0005.
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UP = """
alter table sweeps add column repository text;

create function repository_of_sweep() returns trigger language plpgsql as $$
begin
    new.repository := (select repository from commits where id = new.commit_id);
    return new;
end
$$;

create trigger repository_of_sweep before insert or update of commit_id, repository on sweeps
    for each row execute function repository_of_sweep();

update sweeps set repository = commits.repository from commits where commits.id = sweeps.commit_id;
alter table sweeps alter column repository set not null;

create index ix_sweeps_series on sweeps (repository, kernel, problem, gpu_model, commit_id);
drop index ix_sweeps_kernel_problem_gpu_model_commit_id;
"""

DOWN = """
create index ix_sweeps_kernel_problem_gpu_model_commit_id on sweeps (kernel, problem, gpu_model, commit_id);
drop index ix_sweeps_series;
drop trigger repository_of_sweep on sweeps;
drop function repository_of_sweep;
alter table sweeps drop column repository;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
