"""Writes a replay of two commits on this machine as a row of a recording."""

import datetime as dt
from dataclasses import asdict, dataclass
from typing import Any

from tilewatch.kernels.device import GpuSpec
from tilewatch.kernels.measuring.replay import ReplayResult
from tilewatch.kernels.recording.git_commit import GitCommit
from tilewatch.kernels.results import Compiled, Params, Plan

NOT_HELD = "not held: the machine code of both commits is the same"


@dataclass(frozen=True)
class ReplayedSide:
    """One side of a replay: a commit, the config that won there, and its machine code."""

    commit: GitCommit
    config: Params
    compiled: Compiled


def replay_row(
    plan: Plan, model: GpuSpec, base: ReplayedSide, head: ReplayedSide, at: dt.datetime, outcome: ReplayResult | str
) -> dict[str, Any]:
    """Returns the row of a replay of two commits' winners. `outcome` is the reason if no launch was measured."""
    result, failure = (None, outcome) if isinstance(outcome, str) else (outcome, None)
    return {
        "row": "replay",
        "key": f"{plan.kernel}:{plan.problem}:{model.slug}:{base.commit.sha}:{head.commit.sha}:{at.isoformat()}",
        "kernel": plan.kernel,
        "problem": plan.problem,
        "gpu_model": model.slug,
        "axis": "commit",
        "failure": failure,
        "host": result.host if result else None,
        "gpu_uuid": result.gpu_uuid if result else None,
        "telemetry": list(result.telemetry) if result else [],
        "gpu_s": round(result.gpu_s, 3) if result else 0.0,
        "good": _replayed_side(base),
        "bad": _replayed_side(head),
        "good_us": [round(each, 4) for each in result.base_us] if result else [],
        "bad_us": [round(each, 4) for each in result.head_us] if result else [],
        "at": at.isoformat(),
    }


def _replayed_side(side: ReplayedSide) -> dict[str, Any]:
    return {
        "commit": asdict(side.commit),
        "config": dict(side.config),
        "content_key": side.compiled.content_key,
        "code_sha256": side.compiled.code_sha256,
        "toolchain": side.compiled.compiler,
    }
