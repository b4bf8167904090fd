"""Writes the result of a stored check in the formats of `tilewatch compare`."""

import json
import math
import shlex
from typing import Any

from tilewatch.db.page_reads.checks import CheckOperatorRow, CheckRow, CheckStory
from tilewatch.kernels.comparing import report
from tilewatch.kernels.comparing.outcome import Outcome
from tilewatch.kernels.comparing.report import About
from tilewatch.kernels.comparing.verdict import Verdict
from tilewatch.text import short_sha


def write_lines(story: CheckStory) -> list[str]:
    """Returns an ended check as lines of text: its outcomes and a summary, or why it failed."""
    if story.check.failure is not None:
        return [f"could not be compared: {story.check.failure}"]
    return report.write_lines(*_read(story))


def read_json(story: CheckStory, link: str) -> dict[str, Any]:
    """Returns an ended check as the JSON of `tilewatch compare`, plus its id, GPU model, link and failure."""
    check = story.check
    named = {"id": check.id, "gpu_model": check.gpu_model, "link": link, "failure": check.failure}
    return {**named, **json.loads(report.write_json(*_read(story))), "exit_code": check.exit_code}


def write_repeat(check: CheckRow) -> str:
    """Returns the command that submits the same check again."""
    words = ["tilewatch", "submit", "check", f"{short_sha(check.base_sha)}..{short_sha(check.head_sha)}"]
    words += ["--gpu", check.gpu_model, "--repository", check.repository]
    words += ["--kernel", check.kernel] if check.kernel is not None else []
    words += ["--fail-over", f"{check.fail_over * 100:g}%"] if check.fail_over else []
    return shlex.join(words)


def _read(story: CheckStory) -> tuple[list[Outcome], About]:
    check = story.check
    wall_s = 0.0 if check.ended_at is None else (check.ended_at - check.requested_at).total_seconds()
    about = About(
        base=short_sha(check.base_sha),
        head=short_sha(check.head_sha),
        can_replay=True,
        gpu=check.gpu_name,
        wall_s=wall_s,
        gpu_s=check.gpu_s,
        repeat=write_repeat(check),
    )
    return [read_outcome(each, check.arch) for each in story.operators if each.kind is not None], about


def read_outcome(row: CheckOperatorRow, arch: str) -> Outcome:
    return Outcome(
        kernel=row.kernel,
        problem=row.problem,
        arch=arch,
        kind=row.kind,  # type: ignore[arg-type]  # the table takes these kinds only
        reason=row.reason,
        moved=tuple(row.moved),
        verdict=_read_verdict(row),
        base_config=row.base_config,
        head_config=row.head_config,
        base_us=tuple(row.base_us),
        head_us=tuple(row.head_us),
        config_source=row.config_source,
        not_apart=row.not_apart,
    )


def _read_verdict(row: CheckOperatorRow) -> Verdict | None:
    """Returns the verdict on an operator; None without a verdict."""
    if row.change is None:
        return None
    return Verdict(
        kind=row.kind,  # type: ignore[arg-type]
        change=row.change,
        low=-math.inf if row.low is None else row.low,
        high=math.inf if row.high is None else row.high,
        not_slower_than=math.inf if row.not_slower_than is None else row.not_slower_than,
        launches=len(row.base_us),
        is_over=row.is_over,
        is_fine=not (row.is_over or row.is_unsure),
        is_final=True,
    )
