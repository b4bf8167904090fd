"""The prepare step: compiles the cubins that a replay lacks, then queues the replay."""

from collections.abc import Mapping
from dataclasses import replace

from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.session import session
from tilewatch.db.worker_reads import judging
from tilewatch.kernels.results import Compiled
from tilewatch.metrics import split_kernel
from tilewatch.text import short_sha
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.queue.follow_up import ask
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.payloads import read_payload
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide, MachineCode, ReplayJob
from tilewatch.worker.steps.compiler import compile_finally
from tilewatch.worker.steps.write_replay import code_columns, write_failure


class DoesNotCompile(Exception):
    """Raised if a version in a replay does not compile. The message is a sentence."""


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    asked = read_payload(ReplayJob, job.payload)
    try:
        question = _with_code(asked, context, lease)
    except DoesNotCompile as error:
        with session(context.database_url) as opened:
            write_failure(opened, asked, str(error))
        return []
    asked = replace(asked, question=question)
    with session(context.database_url) as opened:
        base, head = question.base.code, question.head.code
        assert base is not None
        assert head is not None
        stored = judging.list_replays_of_code(opened, asked.repository, code_columns(question))
        is_known = sum(len(each.good_us) for each in stored) > question.start
        if is_known or base.code_sha256 == head.code_sha256:
            write_failure(opened, asked, NOT_NEEDED)
            return []
        return ask(opened, asked, job.priority)


def _with_code(asked: ReplayJob, context: Context, lease: Lease) -> BuildQuestion:
    """Returns the wanted replay with the code of both versions. Raises DoesNotCompile."""
    question = asked.question
    sides: list[BuildSide] = []
    for done, (name, side) in enumerate((("base", question.base), ("head", question.head))):
        lease.progress(done)
        if side.code is not None:  # the question is about this very cubin
            sides.append(side)
            continue
        outcome = _compile(context, asked, side, side.params)
        code = _code_of(outcome)
        if code is None:
            raise DoesNotCompile(f"the {name} side, {short_sha(side.sha)}, does not compile: {outcome.failure}")
        sides.append(replace(side, code=code))
    base, head = sides
    if not head.measured:
        # If base's config gives the same code at head, nothing has changed, whatever wins at the next measured commit.
        as_before = _code_of(_compile(context, asked, head, base.params))
        if as_before is not None and base.code is not None and as_before.code_sha256 == base.code.code_sha256:
            head = replace(base, commit_id=head.commit_id, sha=head.sha)
    return replace(question, base=base, head=head)


def _compile(context: Context, asked: ReplayJob, side: BuildSide, params: Mapping[str, int]) -> Compiled:
    question = asked.question
    library = watched.library_at(context, asked.repository, side.sha, asked.library)
    kernel, _ = split_kernel(question.kernel)
    what = (library, kernel, question.problem, params, question.arch)
    return compile_finally(context, None, lambda compiler: compiler.compile(*what))


def _code_of(outcome: Compiled) -> MachineCode | None:
    """Returns the machine code of a compiled config; None if it did not compile."""
    if outcome.status != "ok":
        return None
    assert outcome.content_key is not None
    assert outcome.symbol is not None
    assert outcome.code_sha256 is not None
    return MachineCode(outcome.content_key, outcome.symbol, outcome.code_sha256, outcome.compiler)
