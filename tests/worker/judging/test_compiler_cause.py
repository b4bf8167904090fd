"""What the replay of one commit with two compilers says, also if it failed or was held before."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.compilers import CompilerChange
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.lifecycle.suspicions import NOT_NEEDED, Outcome
from tilewatch.db.models import Sweep
from tilewatch.db.worker_reads import winners
from tilewatch.db.worker_reads.judging import NightBefore, Point, Scope
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate
from tilewatch.worker.judging import compiler_cause, other_causes
from tilewatch.worker.judging.compiler_cause import CompilerSuspicion, PairAnswer
from tilewatch.worker.judging.other_causes import OtherCauses
from tilewatch.worker.judging.scope_judge import series_of
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide

SCOPE = Scope(1, 1, "a" * 40, 7, "tilewatch", "b200", "sm_100", "measured")
SIDE = BuildSide(1, "a" * 40, 1, {"tile_m": 32}, True, None)
QUESTION = BuildQuestion.of(SCOPE, ("gemm", "1024"), "tonight", (SIDE, SIDE), launches=8, axis="toolchain")
LAUNCHES = 8
POINT = Point(1, 2, "gemm", "1024", "n1", "toolchain", 105.0, 104.9, 105.1, None, None)


def write_replay(opened: Session, key: str, codes: tuple[str | None, str | None] = ("old", "new"), **row: Any) -> None:
    repository, launches = row.pop("repository", "tilewatch"), row.pop("launches", LAUNCHES)
    planned = one_commit.submit(opened, key, repository)
    commit_id = opened.get_one(Sweep, planned.sweep_id).commit_id
    columns = {name: getattr(QUESTION, name) for name in ("kernel", "problem", "gpu_model", "axis", "origin")}
    for name, code in zip(("good", "bad"), codes, strict=True):
        columns |= {f"{name}_content_key": code, f"{name}_code_sha256": code, f"{name}_toolchain": code}
        columns |= {f"{name}_commit_id": commit_id, f"{name}_config_id": planned.config_ids[0]}
    columns |= {"host": None, "gpu_uuid": None, "telemetry": [], "gpu_s": 0.0, **row}
    failure = columns.pop("failure", None)
    bad_us = [110.0] * launches
    suspicions.write_replay(opened, key, columns, good_us=[100.0] * launches, bad_us=bad_us, failure=failure)


def test_a_replay_that_was_not_needed_has_the_result_of_the_replays_of_its_code(db_session: Session) -> None:
    write_replay(db_session, "earlier")
    write_replay(db_session, "of other code", ("old", "newest"))
    write_replay(db_session, "of a fork", repository="fork")
    write_replay(db_session, "of two commits", axis="commit")
    write_replay(db_session, QUESTION.key, launches=0, failure=NOT_NEEDED)
    answer = compiler_cause.read_answer(db_session, SCOPE, QUESTION)
    assert answer is not None
    assert answer.size is not None
    assert answer.size.launches == LAUNCHES


def test_a_replay_has_no_launches_of_other_replays(db_session: Session) -> None:
    write_replay(db_session, "earlier")
    write_replay(db_session, QUESTION.key, launches=4)
    answer = compiler_cause.read_answer(db_session, SCOPE, QUESTION)
    assert answer is not None
    assert answer.size is not None
    assert answer.size.launches == 4


@pytest.mark.parametrize("unknown", ["before", "tonight"])
def test_a_run_without_a_known_winner_is_no_suspicion(db_session: Session, tmp_path: Path, unknown: str) -> None:
    planned = one_commit.submit(db_session)
    fact_writes.add_compilations(db_session, [one_commit.compiled(code) for code in planned.code_keys])
    fact_writes.attach_compilations(db_session, compiler=one_commit.COMPILER, sweep_ids=[planned.sweep_id])
    known = one_commit.measure(db_session, planned)
    assert winners.read_winners_of_runs(db_session, [known]).keys() == {known}
    runs = {"before": known, "tonight": known, unknown: known + 1}
    point = replace(POINT, run_id=runs["tonight"])
    before = {series_of(point): NightBefore(runs["before"], 1, "a" * 40, 100.0)}
    store = CubinStore(folder(tmp_path))
    assert compiler_cause.find_suspicions(db_session, store, 0.01, SCOPE, before, {series_of(point): point}) == []


@pytest.mark.parametrize(
    ("answer", "outcome"), [(PairAnswer(None, False), "undecided"), (PairAnswer(None, True), "refuted")]
)
def test_a_replay_that_failed_refutes_no_suspicion(answer: PairAnswer, outcome: Outcome) -> None:
    before, compilers = NightBefore(1, 1, "a" * 40, 100.0), CompilerChange("one", "another")
    causes = OtherCauses(CompilerSuspicion(POINT, before, 0.05, compilers, QUESTION), answer)
    night: Any = SimpleNamespace(policy=Policy())
    (settled,) = other_causes.settle(night, causes, None)
    assert (settled.outcome, settled.answer) == (outcome, None)


OTHER_COMPILER = "cuda-tile 1.8.0 / tileiras 13.5.1"


@pytest.mark.parametrize(
    ("time_us", "compiler", "is_stored", "is_suspected"),
    [
        (101.0, OTHER_COMPILER, True, True),
        (99.0, OTHER_COMPILER, True, True),
        (100.9, OTHER_COMPILER, True, False),
        (99.1, OTHER_COMPILER, True, False),
        (101.0, one_commit.COMPILER, True, False),
        (101.0, OTHER_COMPILER, False, False),
    ],
)
def test_another_compiler_is_suspected_if_the_time_moved_and_the_old_cubin_is_stored(
    db_session: Session, time_us: float, compiler: str, is_stored: bool, is_suspected: bool
) -> None:
    runs = []
    for number, made_by in ((1, one_commit.COMPILER), (2, compiler)):
        planned = one_commit.submit(db_session, key=f"night {number}", sha=str(number) * 40, position=number)
        rows = [one_commit.compiled(code, compiler=made_by) for code in planned.code_keys]
        fact_writes.add_compilations(db_session, rows)
        fact_writes.attach_compilations(db_session, compiler=made_by, sweep_ids=[planned.sweep_id])
        runs.append(one_commit.measure(db_session, planned, key=f"run {number}"))
    point = replace(POINT, run_id=runs[1], time_us=time_us)
    before = NightBefore(runs[0], 1, "1" * 40, 100.0)
    store: Any = SimpleNamespace(outcome=lambda _: object() if is_stored else None)
    series = series_of(point)
    found = compiler_cause.find_suspicions(db_session, store, 0.01, SCOPE, {series: before}, {series: point})
    assert len(found) == is_suspected
    for each in found:
        assert (each.point, each.before, each.moved) == (point, before, pytest.approx(time_us / 100.0 - 1.0))
        assert each.compilers == CompilerChange(one_commit.COMPILER, OTHER_COMPILER)
        base, head = each.question.base, each.question.head
        assert base.code is not None
        assert (base.code.compiler, head.code, base.sha, head.sha) == (one_commit.COMPILER, None, "1" * 40, "1" * 40)
        assert (each.question.axis, each.question.launches) == ("toolchain", LAUNCHES)
    assert compiler_cause.find_suspicions(db_session, store, 0.01, SCOPE, {}, {series: point}) == []


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (PairAnswer(None, True), "and makes the same machine code"),
        (PairAnswer(None, False), "and the commit before could not be replayed under both"),
        (PairAnswer(Estimate(0.05, 0.001, 8), False), "differs by +4.92% to +5.33%"),
    ],
)
def test_the_sentence_about_a_compiler_says_how_the_commit_before_differs(answer: PairAnswer, end: str) -> None:
    before, compilers = NightBefore(1, 1, "a" * 40, 100.0), CompilerChange("one", "another")
    suspicion = CompilerSuspicion(POINT, before, 0.05, compilers, QUESTION)
    assert compiler_cause.write_sentence(suspicion, answer).endswith(end)
    assert str(compilers) in compiler_cause.write_sentence(suspicion, answer)


@pytest.mark.parametrize("codes", [("same", "same"), (None, None), ("old", "new")])
def test_only_a_replay_that_knows_both_codes_finds_them_identical(
    db_session: Session, codes: tuple[str | None, str | None]
) -> None:
    write_replay(db_session, QUESTION.key, codes)
    answer = compiler_cause.read_answer(db_session, SCOPE, QUESTION)
    assert answer is not None
    assert (answer.identical, answer.size is None) == ((codes[0] == "same"),) * 2
    assert not answer.is_missing
    assert compiler_cause.read_answer(db_session, SCOPE, replace(QUESTION, key="another")) is None
