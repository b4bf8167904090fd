"""A made regression, opened as the judge opens one, for tests of what follows: telling, triage, keeping score."""

import datetime as dt

from sqlalchemy.orm import Session

from db import record
from db.causes import Cause, Moved, open_or_join
from tests.db import flow

KERNEL = "gemm_fp8"
PROBLEM = "320x32576x7168"
BAD_SHA = "bad0" * 10


def commit(opened: Session, position: int, sha: str, subject: str) -> int:
    return record.commit(
        opened,
        repository="tilewatch",
        sha=sha,
        position=position,
        committed_at=flow.NOON + dt.timedelta(hours=position),
        subject=subject,
    )


def regress(
    opened: Session,
    *,
    kernel: str = KERNEL,
    problem: str = PROBLEM,
    commits: int = 1,
    size: float = 0.042,
    category: str = "code",
    position: int = 100,
) -> int:
    """The regression's id. The same kernel and position is the same regression, with another problem a series more."""
    run_id = flow.measure(opened, flow.submit(opened))
    good = commit(opened, position, f"{position:040x}", "Fine")
    sha = BAD_SHA if position == 100 else f"{position + commits:040x}"
    bad = commit(opened, position + commits, sha, "Turn the swizzle off")
    cause = Cause(
        "regression" if size > 0 else "improvement",
        category,  # type: ignore[arg-type]  # a test's short hand
        "the commit changed the machine code",
        ("registers 96 -> 128",),
        "tilewatch",
        kernel,
        good,
        bad,
    )
    moved = Moved(problem, "b200", run_id, None, None, size, size - 0.003, size + 0.003)
    return open_or_join(opened, cause, moved).id
