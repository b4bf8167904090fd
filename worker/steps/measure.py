"""The measure step: checks, races and times a sweep's cubins on this worker's GPU and writes the run."""

import datetime as dt
import hashlib
from collections.abc import Sequence
from dataclasses import replace

from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.db.worker_reads.steps import CompiledConfig, SweepFacts
from tilewatch.errors import ExpectedError
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.measuring.known_counters import read_counted
from tilewatch.kernels.results import TrialResult
from tilewatch.kernels.toolchains.versions import read_compilers
from tilewatch.worker import metrics
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.healthy_gpu import use_gpu
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.queue.follow_up import judge_run
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.payloads import MeasurePayload, read_payload
from tilewatch.worker.steps.spool import Spooled
from tilewatch.worker.steps.write_run import TrialWriter, deliver, not_compiled

SWEPT_AGAIN_DAYS = 7
"""The days after which a space with unchanged code is swept again, because a GPU's clocks or a driver's minor version
may have changed. The days of the series are spread, so that no night sweeps all of them."""


class NothingToMeasure(ExpectedError):
    """Raised if a sweep lacks a cubin or has no compiled config. The message is a sentence."""


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    assert job.sweep_id is not None
    with session(context.database_url) as opened:
        facts = steps.read_sweep_facts(opened, job.sweep_id)
        run_id = steps.find_run(opened, job.sweep_id)
        compiled = steps.list_compiled_configs(opened, job.sweep_id)
        details = steps.list_counted(opened, facts)
        together = steps.list_measured_together(opened, facts.submission_id)
        last = steps.find_last_sweep(opened, job.sweep_id, find_newest_due(facts, dt.datetime.now(dt.UTC)))
        missing = steps.count_uncompiled(opened, job.sweep_id)
    if run_id is not None:  # an earlier attempt died after the run was written
        with session(context.database_url) as opened:
            return [judge_run(opened, facts, run_id, job.priority)]
    if missing:
        raise _refuse_part(missing, facts, context.database_url)
    configs = _with_cubins(job.sweep_id, facts, compiled, context.store_url, context.database_url)
    trials = TrialWriter(
        context.database_url, job.sweep_id, {config_sha256(each.params): each.config_id for each in configs}
    )

    def trial_ended(trial: TrialResult) -> None:
        trials.add(trial)
        lease.progress(trials.ended)

    wanted = read_payload(MeasurePayload, job.payload)
    counted = {launch: each for detail in details for launch, each in read_counted(*detail).items()}
    compiled_by = {}
    if wanted.toolchain is not None:  # not by what is installed here; read before, so that no run waits for Postgres
        with session(context.database_url) as opened:
            compiled_by = read_compilers(steps.list_compilers(opened, job.sweep_id))
    with use_gpu(context, facts.gpu_model) as own:
        sweep = SweepToMeasure(
            job.key,
            facts,
            configs,
            wanted.library,
            wanted.baselines,
            wanted.ships,
            own.times_ill,
            counted,
            together,
            last,
        )
        result = own.backend.measure(sweep, own.gpu, on_trial=trial_ended)
        result = replace(result, toolchain={**result.toolchain, **compiled_by})
        metrics.SWEEP_SECONDS.labels(facts.gpu_model).observe((result.finished_at - result.started_at).total_seconds())
        # Within use_gpu, because a run that itself shows an illness becomes the evidence of the quarantine.
        return deliver(Spooled(job.id, job.key, result), context.spool, context.database_url)


def find_newest_due(facts: SweepFacts, now: dt.datetime) -> dt.datetime:
    """Returns the latest UTC midnight at which a series was due for its periodic sweep."""
    series = f"{facts.repository} {facts.kernel} {facts.problem} {facts.gpu_model}"
    own_day = int.from_bytes(hashlib.sha256(series.encode()).digest()[:4])
    since = (now.toordinal() - own_day) % SWEPT_AGAIN_DAYS
    return dt.datetime.combine(now.date() - dt.timedelta(days=since), dt.time(), dt.UTC)


def _refuse_part(missing: int, facts: SweepFacts, database_url: str) -> NothingToMeasure:
    """Returns the error for a sweep in which some configs were never compiled."""
    # Not measured, because the best config may be missing, and the judge would report a change.
    with session(database_url) as opened:
        why = steps.find_stopped_compile(opened, facts)
    return NothingToMeasure(
        f"{missing:,} configs of {facts.kernel} {facts.problem} were not compiled, because {why or 'no job did'}; "
        f"`tilewatch retry --submission {facts.submission_id}` compiles them and measures"
    )


def _with_cubins(
    sweep_id: int, facts: SweepFacts, compiled: Sequence[CompiledConfig], store_url: str, database_url: str
) -> list[CompiledConfig]:
    """Returns the configs with a stored cubin. Raises NothingToMeasure if a result is missing or no config is left."""
    outcomes = CubinStore(store_url).outcomes({each.content_key for each in compiled})
    if missing := sum(each.content_key not in outcomes for each in compiled):
        raise NothingToMeasure(
            f"{missing:,} cubins of {facts.kernel} {facts.problem} are not in the store {store_url}; "
            "`tilewatch submit sweep` of this commit compiles them again, then `tilewatch retry` measures"
        )
    failed = [each for each in compiled if outcomes[each.content_key]["status"] != "ok"]
    if failed:
        rows = [not_compiled(each, outcomes[each.content_key]) for each in failed]
        with session(database_url) as opened:
            fact_writes.write_trial_results(opened, {sweep_id: rows})
    here = [each for each in compiled if outcomes[each.content_key]["status"] == "ok"]
    if not here:
        with session(database_url) as opened:
            why = steps.find_compile_failure(opened, sweep_id)
        where = f"{facts.kernel} compiled for {facts.problem} on {facts.arch}"
        raise NothingToMeasure(f"no config of {where}; the first failure: {why}")
    return here
