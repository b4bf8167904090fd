"""Allows reports of more than two toolchains: `toolchains` replaces `a` and `b`, and each stored row names its head.

Revision 0037, after 0036.
"""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

ANSWERS = """
update toolchain_reports set answer = (answer - '{a,b,base,head}'::text[]) || jsonb_build_object(
    'sides', jsonb_build_array(coalesce(answer->'base', answer->'a'), coalesce(answer->'head', answer->'b')),
    'operators', (select coalesce(jsonb_agg(row || jsonb_build_object('head', toolchains[2]) order by place), '[]')
                  from jsonb_array_elements(answer->'operators') with ordinality as rows(row, place)))
where answer ? 'operators'
"""

LAUNCHES = """
update toolchain_reports set contents = jsonb_set(contents, '{frozen}', (
    select coalesce(jsonb_agg(row || jsonb_build_object(
        'head_name', toolchains[2],
        'base_us', coalesce(row->'base_us', row->'a_us'),
        'head_us', coalesce(row->'head_us', row->'b_us')) order by place), '[]')
    from jsonb_array_elements(contents->'frozen') with ordinality as rows(row, place)))
where contents ? 'frozen'
"""


def upgrade() -> None:
    op.execute("alter table toolchain_reports add column toolchains text[]")
    op.execute("update toolchain_reports set toolchains = array[a, b]")
    op.execute("alter table toolchain_reports alter column toolchains set not null, drop column a, drop column b")
    op.execute(ANSWERS)
    op.execute(LAUNCHES)


def downgrade() -> None:
    op.execute("delete from toolchain_reports where cardinality(toolchains) > 2")
    op.execute("alter table toolchain_reports add column a text, add column b text")
    op.execute("update toolchain_reports set a = toolchains[1], b = toolchains[2]")
    op.execute("""update toolchain_reports set answer = answer || jsonb_build_object(
        'base', answer->'sides'->0, 'head', answer->'sides'->1) where answer ? 'sides'""")
    op.execute("""alter table toolchain_reports alter column a set not null, alter column b set not null,
        drop column toolchains""")
