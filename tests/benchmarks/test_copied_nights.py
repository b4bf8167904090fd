"""Nights that Postgres copies are as the workers' functions wrote theirs, with rows of their own."""

from sqlalchemy import text

from benchmarks import storage, trial_bytes
from benchmarks.copied_nights import copies
from benchmarks.storage import Night
from tilewatch.db.session import engine, session

NIGHT = text("""
    select sweeps.kernel, sweeps.problem, sweeps.trial_facts, trials.config_id, trials.status, trials.samples_us,
           trials.median_us, trials.error, trials.code_key, compilations.status, verdict,
           (select count(*) from measurements where run_id = runs.id)
    from commits
    join submissions on submissions.commit_id = commits.id
    join sweeps on sweeps.submission_id = submissions.id and sweeps.commit_id = commits.id
    join trials on trials.sweep_id = sweeps.id
    join compilations on compilations.id = trials.compilation_id
    join runs on runs.sweep_id = sweeps.id
    join verdicts on verdicts.run_id = runs.id
    where commits.position = :night
    order by sweeps.problem, trials.config_id
""")
VERSIONS = text("select n_tup_ins, n_tup_upd from pg_stat_user_tables where relname = 'trials'")
COMPILED = text("""
    select distinct compilation_id
    from trials join sweeps on sweeps.id = sweep_id join commits on commits.id = commit_id
    where position = :night
""")


def test_a_copied_night_is_the_night_that_was_written(database_url: str) -> None:
    with session(database_url) as opened:
        configs = storage.prepare(opened, 1)
    for number in (2, 3):
        trial_bytes.write_night(database_url, Night(number, 1, 2), configs)
    with copies(database_url, (2, 3)) as copied:
        copied.write(4)
        copied.write(6)
    with session(database_url) as opened:
        nights = {number: opened.execute(NIGHT, {"night": number}).all() for number in range(2, 8)}
        compiled = {number: set(opened.scalars(COMPILED, {"night": number})) for number in range(2, 8)}
    assert len(nights[2]) == 2 * storage.TRIALS
    assert nights[4] == nights[6] == nights[2]
    assert nights[5] == nights[7] == nights[3]
    assert compiled[2] == compiled[3]
    assert compiled[4] == compiled[5]
    assert compiled[6] == compiled[7]
    assert len(compiled[2] | compiled[4] | compiled[6]) == 3 * len(compiled[2])
    assert _read_versions(database_url, 6 * len(nights[2])) == 12 * len(nights[2]), "as many versions of a row"


def _read_versions(url: str, inserted: int) -> int:
    """Returns how many updates there were; a server process tells what it did when it ends."""
    engine(url).dispose()
    with session(url) as opened:
        for _ in range(100):
            counted, updated = opened.execute(VERSIONS).one()
            if counted == inserted:
                return int(updated)
            opened.execute(text("select pg_stat_clear_snapshot(), pg_sleep(0.1)"))
    raise AssertionError(f"{counted} trials were inserted, not {inserted}")
