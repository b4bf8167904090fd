"""Which sides of a replay are compiled, and which replays need no GPU then."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.models import Job, Replay, Sweep
from tilewatch.db.session import session
from tilewatch.worker.git import watched
from tilewatch.worker.queue.payloads import write_payload
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide, MachineCode, ReplayJob
from tilewatch.worker.steps import prepare, write_replay

BASE = BuildSide(1, "a" * 40, 1, {"width": 64}, True, None)
HEAD = BuildSide(2, "b" * 40, 2, {"width": 128}, True, None)
KNOWN = MachineCode("stored", "gemm", "code of the store", "old compiler")


def code(name: str) -> MachineCode:
    return MachineCode(f"key of {name}", "gemm", name, "compiler")


def compile_as(codes: Mapping[tuple[str, int], str | None]) -> Any:
    """A compiler of the code of each commit's first letter and width, where it is None of a failure."""

    def compile_one(_: object, __: object, side: BuildSide, params: Mapping[str, int]) -> SimpleNamespace:
        found = codes[side.sha[0], params["width"]]
        if found is None:
            return SimpleNamespace(status="error", failure="gave up after 15 s")
        names = {"content_key": f"key of {found}", "code_sha256": found}
        return SimpleNamespace(status="ok", symbol="gemm", compiler="compiler", **names)

    return compile_one


def ask(base: BuildSide, head: BuildSide, *, commit_id: int = 1, start: int = 4) -> ReplayJob:
    names = ("tilewatch:b200:measured:k:64:a:b:4+8", "k", "64", "b200", "sm_100", "measured")
    sides = (replace(base, commit_id=commit_id), replace(head, commit_id=commit_id))
    return ReplayJob(BuildQuestion(*names, "commit", start, 8, *sides), "tilewatch", "library", 1, 1)


def with_code(asked: ReplayJob) -> tuple[BuildSide, BuildSide]:
    steps: list[int] = []
    context: Any = None
    lease: Any = SimpleNamespace(progress=steps.append)
    question = prepare._with_code(asked, context, lease)
    assert steps == [0, 1]
    return question.base, question.head


def test_the_side_without_a_cubin_is_compiled_and_the_other_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "_compile", compile_as({("a", 64): "old", ("b", 128): "new"}))
    assert [side.code for side in with_code(ask(BASE, HEAD))] == [code("old"), code("new")]
    assert [side.code for side in with_code(ask(replace(BASE, code=KNOWN), HEAD))] == [KNOWN, code("new")]
    assert [side.code for side in with_code(ask(BASE, replace(HEAD, code=KNOWN)))] == [code("old"), KNOWN]


@pytest.mark.parametrize(
    ("as_before", "measured", "is_base"),
    [("old", False, True), ("other", False, False), (None, False, False), ("old", True, False)],
)
def test_a_commit_that_was_not_measured_has_the_config_before_if_that_gives_the_code_before(
    monkeypatch: pytest.MonkeyPatch, as_before: str | None, measured: bool, is_base: bool
) -> None:
    """Whatever wins at the next measured commit, nothing has changed then."""
    codes = {("a", 64): "old", ("b", 128): "new", ("b", 64): as_before}
    monkeypatch.setattr(prepare, "_compile", compile_as(codes))
    base, head = with_code(ask(BASE, replace(HEAD, measured=measured)))
    assert (head.commit_id, head.sha) == (1, HEAD.sha)
    assert (head.code, head.params) == ((base.code, BASE.params) if is_base else (code("new"), HEAD.params))


@pytest.mark.parametrize(
    ("codes", "held", "failure"),
    [
        (("old", "new"), 0, None),
        (("old", "new"), 4, None),
        (("old", "new"), 5, NOT_NEEDED),
        (("old", "old"), 0, NOT_NEEDED),
        ((None, "new"), 0, "the base side, aaaaaaaaaa, does not compile: gave up after 15 s"),
        (("old", None), 0, "the head side, bbbbbbbbbb, does not compile: gave up after 15 s"),
    ],
)
def test_a_replay_is_queued_unless_a_side_does_not_compile_or_its_launches_are_known(
    monkeypatch: pytest.MonkeyPatch,
    db_session: Session,
    database_url: str,
    codes: tuple[str | None, str | None],
    held: int,
    failure: str | None,
) -> None:
    """Four launches were known when it was asked for."""
    planned = one_commit.submit(db_session)
    run_id = one_commit.measure(db_session, planned)
    commit_id = db_session.get_one(Sweep, planned.sweep_id).commit_id
    sides = [replace(each, config_id=planned.config_ids[0]) for each in (BASE, HEAD)]
    asked = replace(ask(sides[0], sides[1], commit_id=commit_id), run_id=run_id, submission_id=planned.submission_id)
    if held:
        done = replace(
            asked.question, base=replace(sides[0], code=code("old")), head=replace(sides[1], code=code("new"))
        )
        row = {**write_replay.code_columns(done), "good_commit_id": commit_id, "bad_commit_id": commit_id}
        row |= {"suspicion_id": None, "gpu_s": 1.0}
        suspicions.write_replay(db_session, "earlier", row, good_us=[1.0] * held, bad_us=[1.0] * held)
    db_session.commit()
    monkeypatch.setattr(prepare, "_compile", compile_as({("a", 64): codes[0], ("b", 128): codes[1]}))
    job: Any = SimpleNamespace(payload=write_payload(asked), priority=7)
    context: Any = SimpleNamespace(database_url=database_url)
    lease: Any = SimpleNamespace(progress=lambda _: None)
    queued = prepare.step(job, context, lease)
    with session(database_url) as opened:
        jobs = opened.execute(select(Job.id, Job.kind, Job.priority)).all()
        failures = opened.scalars(select(Replay.failure).where(Replay.key == asked.question.key)).all()
    assert [each.id for each in queued] == [job_id for job_id, _, _ in jobs]
    assert [tuple(rest) for _, *rest in jobs] == ([("confirm", 7)] if failure is None else [])
    assert failures == ([] if failure is None else [failure])


@pytest.mark.parametrize(("series", "kernel"), [("k", "k"), ("k span", "k")])
def test_a_side_is_compiled_from_its_own_commit_with_the_kernel_of_its_series(
    monkeypatch: pytest.MonkeyPatch, series: str, kernel: str
) -> None:
    context: Any = object()
    compiler: Any = SimpleNamespace(compile=lambda *what: what)

    def finish(given: object, toolchain: str | None, compile_one: Any) -> Any:
        assert (given, toolchain) == (context, None)
        return compile_one(compiler)

    monkeypatch.setattr(prepare, "compile_finally", finish)
    monkeypatch.setattr(watched, "library_at", lambda given, *of: of if given is context else None)
    asked = ask(BASE, HEAD)
    asked = replace(asked, question=replace(asked.question, kernel=series))
    found: Any = prepare._compile(context, asked, HEAD, {"width": 64})
    assert found == (("tilewatch", HEAD.sha, "library"), kernel, "64", {"width": 64}, "sm_100")
