"""What is counted of a sweep's trials is kept with it: pages read the same numbers, and no trial."""

import datetime as dt
from collections.abc import Callable

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db import fact_writes, trial_facts
from tilewatch.db.models import Compilation, Sweep, Trial
from tilewatch.db.page_reads import static_facts, submissions

SERIES = ("tilewatch", "gemm_fp8", "320x32576x7168", "b200")
READS_OF_TRIALS = text("select seq_scan + idx_scan from pg_stat_xact_user_tables where relname = 'trials'")
QUESTIONS: dict[str, Callable[[Session], list[object]]] = {
    "submissions": lambda opened: list(submissions.list_submissions(opened)),
    "last nights": lambda opened: list(submissions.list_last_nights(opened)),
    "spills": lambda opened: list(static_facts.list_spills(opened, "tilewatch", "b200")),
    "static facts": lambda opened: list(static_facts.list_static_facts(opened, *SERIES)),
}


def _compile(opened: Session, *outcomes: str) -> one_commit.Planned:
    """Compiles the first configs of a sweep of four, the first with 128 bytes of stack and 100 registers."""
    planned = one_commit.submit(opened)
    codes = zip(planned.code_keys, outcomes, strict=False)
    fact_writes.add_compilations(opened, [one_commit.compiled(code, status=status) for code, status in codes])
    first = Compilation.code_key == planned.code_keys[0]
    opened.execute(update(Compilation).where(first).values(registers=100))
    opened.execute(update(Compilation).where(~first, Compilation.status == "ok").values(stack_bytes=0, tma_loads=0))
    fact_writes.attach_compilations(opened, compiler=one_commit.COMPILER, submission_id=planned.submission_id)
    return planned


def _kept(opened: Session) -> dict[str, object] | None:
    return opened.scalars(select(Sweep.trial_facts)).one()


def test_the_counts_are_kept_once_no_trial_waits(db_session: Session) -> None:
    planned = _compile(db_session, "ok", "ok", "timeout")
    assert _kept(db_session) is None, "the fourth still waits"
    fact_writes.add_compilations(db_session, [one_commit.compiled(planned.code_keys[3], status="error")])
    fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, submission_id=planned.submission_id)
    assert _kept(db_session) == {
        "trials": 4,
        "not_compiled": 2,
        "settled": 4,
        "compiled": 2,
        "timeouts": 1,
        "errors": 1,
        "spilling": 1,
        "most_stack_bytes": 128,
        "tma": 1,
        "tensor_core": 2,
        "median_registers": 114.0,
        "compile_s": 6.0,
        "compiler": one_commit.COMPILER,
    }


@pytest.mark.parametrize("question", QUESTIONS)
def test_pages_say_the_same_of_kept_counts_and_read_no_trial_for_it(db_session: Session, question: str) -> None:
    _compile(db_session, "ok", "ok", "timeout", "error")
    before = db_session.scalar(READS_OF_TRIALS)
    kept = QUESTIONS[question](db_session)
    assert db_session.scalar(READS_OF_TRIALS) == before
    db_session.execute(update(Sweep).values(trial_facts=None))
    assert kept == QUESTIONS[question](db_session), "counted, as for a sweep of before there were kept counts"
    assert db_session.scalar(READS_OF_TRIALS) != before


def test_a_sweep_that_compiles_is_counted_as_far_as_it_is(db_session: Session) -> None:
    _compile(db_session, "ok", "ok", "timeout")
    (submission,) = submissions.list_submissions(db_session)
    assert (submission.sweeps, submission.trials, submission.settled_trials, submission.not_compiled) == (1, 4, 3, 1)
    (facts,) = static_facts.list_static_facts(db_session, *SERIES)
    assert (facts.settled, facts.compiled, facts.timeouts, facts.spilling) == (3, 2, 1, 1)
    (spills,) = static_facts.list_spills(db_session, "tilewatch", "b200")
    assert (spills.compiled, spills.spilling, spills.most_stack_bytes) == (2, 1, 128)


def test_only_code_with_loads_and_products_counts_as_all_tma_and_all_tensor_core(db_session: Session) -> None:
    planned = _compile(db_session, "ok", "ok", "ok", "ok")
    for code, (all_of_it, special) in zip(planned.code_keys, ((0, 0), (1, 1), (2, 1), (1, 0)), strict=True):
        found = {"loads": all_of_it, "tma_loads": special, "mmas": all_of_it, "tensor_core_mmas": special}
        db_session.execute(update(Compilation).where(Compilation.code_key == code).values(**found))
    counts = db_session.scalars(select(trial_facts.count()).select_from(Sweep)).one()
    assert (counts["tma"], counts["tensor_core"]) == (1, 1)


def test_a_sweep_of_which_nothing_is_compiled_has_no_facts(db_session: Session) -> None:
    one_commit.submit(db_session)
    assert static_facts.list_static_facts(db_session, *SERIES) == []
    assert static_facts.list_spills(db_session, "tilewatch", "b200") == []


SWEEPS_READ = text("select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'sweeps'")
NIGHTS = text("""
    with commit as (
        insert into commits (repository, sha, position, committed_at, subject)
        select 'tilewatch', 'commit ' || night, 100 + night, now(), 'Tile it' from generate_series(1, 300) as night
        returning id, sha
    ), submission as (
        insert into submissions (key, reason, commit_id, gpu_model, measure)
        select sha, 'nightly', id, 'b200', true from commit
        returning id, commit_id, key
    )
    insert into sweeps (submission_id, commit_id, kernel, problem, gpu_model, arch, source_sha256, space, space_size,
                        flops, bytes, trial_facts)
    select submission.id, submission.commit_id, kernel, problem, sweeps.gpu_model, arch, source_sha256, space,
           space_size, flops, bytes,
           case when key = 'commit 300' then null else jsonb_set(trial_facts, '{spilling}', '3') end
    from submission cross join sweeps
""")


def test_of_three_hundred_nights_spills_are_read_from_the_newest_that_is_compiled(db_session: Session) -> None:
    _compile(db_session, "ok", "ok", "timeout", "error")
    db_session.execute(NIGHTS)
    db_session.execute(text("analyze commits, sweeps, submissions"))
    before = db_session.scalar(SWEEPS_READ)
    (spills,) = static_facts.list_spills(db_session, "tilewatch", "b200")
    assert (spills.sha, spills.spilling) == ("commit 299", 3)
    assert db_session.scalar(SWEEPS_READ) - before < 20


def test_a_cubin_that_the_gpu_s_node_could_not_make_is_counted_too(db_session: Session) -> None:
    """Its trial was compiled and no longer is, so the kept count is written anew."""
    planned = _compile(db_session, "ok", "ok", "ok", "ok")
    no_time = {"samples_us": None, "median_us": None, "error": None}
    failed = {"config_id": planned.config_ids[0], "status": "not_compiled", "failure": "timeout", **no_time}
    fact_writes.write_trial_results(db_session, {planned.sweep_id: [failed]})
    (submission,) = submissions.list_submissions(db_session)
    assert submission.not_compiled == 1


def _prune(opened: Session) -> int | None:
    return fact_writes.roll_up_trials(opened, dt.datetime.now(dt.UTC) + dt.timedelta(days=1), 10)


def test_a_pruned_sweep_is_not_read_again(db_session: Session) -> None:
    one_commit.measure(db_session, _compile(db_session, "ok", "ok", "ok", "ok"))
    assert _prune(db_session) == 1, "of three with samples two are tied"
    before = db_session.scalar(READS_OF_TRIALS)
    assert _prune(db_session) is None
    assert db_session.scalar(READS_OF_TRIALS) == before


def test_samples_that_come_after_the_pruning_are_pruned_as_well(db_session: Session) -> None:
    planned = _compile(db_session, "ok", "ok", "ok", "ok")
    one_commit.measure(db_session, planned)
    _prune(db_session)
    one_commit.measure(db_session, planned)
    assert _prune(db_session) == 1
    kept = db_session.scalars(select(Trial.config_id).where(Trial.samples_us.is_not(None)))
    assert set(kept) == set(planned.config_ids[:2])
