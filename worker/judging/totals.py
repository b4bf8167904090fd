"""Writes and judges the totals of a night. A total is the time of one step of a model: the weighted sum of the times of
its problems. It is stored like a run, so that every page shows it."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import cast

from sqlalchemy.orm import Session

from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.fact_writes import NewVerdict
from tilewatch.db.models import TOTAL
from tilewatch.db.worker_reads import totals
from tilewatch.db.worker_reads.judging import Scope
from tilewatch.db.worker_reads.totals import Part
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.total import JudgedPart, judge_total
from tilewatch.worker.detection.verdict import VerdictName
from tilewatch.worker.measurement_rows import Sampled, measurement_rows

SEVERAL = ", "
"""The separator between names of hosts, GPUs or versions that differ between the series of a total."""


def write(session: Session, scope: Scope) -> None:
    """Writes each total whose series all have a time tonight. A second call changes nothing."""
    for model, parts in totals.list_parts(session, scope).items():
        if len(parts) == parts[0].parts and totals.find_run_of_total(session, scope, model) is None:
            _write(session, scope, model, parts)


def judge(session: Session, scope: Scope, policy: Policy) -> None:
    """Writes a verdict for each total whose series all have a verdict."""
    verdicts = []
    for model, parts in totals.list_parts(session, scope).items():
        run_id = totals.find_run_of_total(session, scope, model)
        if run_id is not None and all(part.verdict is not None for part in parts):
            verdicts.append(_verdict(run_id, parts, policy))
    fact_writes.write_verdicts(session, verdicts)


def _write(session: Session, scope: Scope, model: str, parts: Sequence[Part]) -> None:
    # A measurement needs a config; that of a total has no parameters.
    config_id = fact_writes.add_configs(session, [{}])[config_sha256({})]
    sweep_id = fact_writes.add_sweep(
        session,
        submission_id=scope.submission_id,
        commit_id=scope.commit_id,
        kernel=TOTAL,
        problem=model,
        gpu_model=scope.gpu_model,
        arch=scope.arch,
        source_sha256=_sha256([part.sweep.source_sha256 for part in parts]),
        space={"axes": []},
        space_size=0,
        flops=round(sum(part.weight * part.sweep.flops for part in parts)),
        bytes=round(sum(part.weight * part.sweep.bytes for part in parts)),
    )
    run_id = fact_writes.add_run(
        session,
        key=f"{TOTAL}:{sweep_id}:{scope.origin}",
        sweep_id=sweep_id,
        origin=scope.origin,
        host=_joined(part.run.host for part in parts),
        gpu_uuid=_joined(part.run.gpu_uuid for part in parts),
        gpu_name=_joined(part.run.gpu_name for part in parts),
        timer="events" if "events" in {part.run.timer for part in parts} else parts[0].run.timer,
        toolchain=_toolchain(parts),
        telemetry=[],
        sweep_gpu_s=0.0,
        tie=[],
        started_at=min(part.run.started_at for part in parts),
        finished_at=max(part.run.finished_at for part in parts),
        recording_id=parts[0].run.recording_id,
    )
    fact_writes.add_measurements(session, {run_id: measurement_rows(_sampled(parts, config_id))})


def _sampled(parts: Sequence[Part], config_id: int) -> list[Sampled]:
    """Returns the samples of a total, and of its baseline if all series have the same baseline."""
    own = Sampled(TOTAL, "kernel", config_id, _sums(parts, [part.measured.samples_us for part in parts]), {})
    baselines = {part.measured.baseline for part in parts}
    (name, *others) = baselines
    if name is None or others:
        return [own]
    baseline_us = _sums(parts, [part.baseline_us for part in parts])
    return [own, Sampled(name, "baseline", None, baseline_us, {})] if len(baseline_us) == len(own.samples_us) else [own]


def _sums(parts: Sequence[Part], samples_us: Sequence[Sequence[float]]) -> list[float]:
    """Returns the weighted sum of times in us for each round. Rounds that a series lacks are left out."""
    weights = [part.weight for part in parts]
    return [
        sum(weight * time for weight, time in zip(weights, times, strict=True))
        for times in zip(*samples_us, strict=False)
    ]


def _toolchain(parts: Sequence[Part]) -> dict[str, str]:
    """Returns the versions of the packages that were used for a total, and a hash of the added series."""
    names = sorted({name for part in parts for name in part.run.toolchain})
    added = _sha256([[part.sweep.kernel, part.sweep.problem, part.weight] for part in parts])[:8]
    versions = {name: _joined(part.run.toolchain.get(name, "none") for part in parts) for name in names}
    return {**versions, "parts": f"{len(parts)} problems ({added})"}


def _verdict(run_id: int, parts: Sequence[Part], policy: Policy) -> NewVerdict:
    judged = [
        JudgedPart(
            name=f"{part.sweep.kernel} {part.sweep.problem}",
            time_us=part.weight * part.measured.median_us,
            verdict=cast(VerdictName, part.verdict.verdict),
            change=part.verdict.change,
            low=part.verdict.low,
            high=part.verdict.high,
            noise=part.verdict.noise,
            history_points=part.verdict.history_points,
        )
        for part in parts
        if part.verdict is not None
    ]
    total = judge_total(judged, policy)
    largest = None if total.largest is None else parts[total.largest].verdict
    return NewVerdict(
        run_id=run_id,
        verdict=total.verdict,
        change=total.change,
        noise=total.noise,
        history_points=total.history_points,
        policy=policy.name,
        reason=total.reason,
        low=total.low,
        high=total.high,
        smallest=total.smallest,
        good_commit_id=None if largest is None else largest.good_commit_id,
        bad_commit_id=None if largest is None else largest.bad_commit_id,
    )


def _joined(values: Iterable[str]) -> str:
    return SEVERAL.join(sorted(set(values)))


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
