"""The measure step: a sweep's cubins are checked, raced and timed on this worker's GPU, and the run goes on record.

Everything that touches the GPU happens in a child process of kernels/measuring/measure.py. This process asks for it,
writes down what comes back, and holds no CUDA context that a kernel could crash. What comes back is spooled to this
machine's disk first: a Postgres that is away, or a kill just then, costs no GPU time.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from tilewatch.db import record
from tilewatch.db.lifecycle.jobs import ClaimedJob, UnsentJob
from tilewatch.db.record import config_sha256
from tilewatch.db.session import session
from tilewatch.db.step_queries import steps
from tilewatch.db.step_queries.steps import CompiledConfig, SweepFacts
from tilewatch.errors import ExpectedError
from tilewatch.kernels import HARNESS
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.device import SIMULATED, Gpu, gpus
from tilewatch.kernels.measuring.journal import Journal, journal_path
from tilewatch.kernels.measuring.measure import GpuBusy, GpuMissing, MeasureFailed, MeasureRequest, measure
from tilewatch.kernels.results import Cubin, PlannedTrial, RunResult, TrialResult
from tilewatch.worker import metrics, repository
from tilewatch.worker.context import Context, Simulation
from tilewatch.worker.gpu import quarantine, simulated
from tilewatch.worker.gpu.visible_gpu import WrongWorker, visible_gpu
from tilewatch.worker.queue.follow_up import judge_next
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.steps.record_run import TrialWriter, deliver, not_compiled
from tilewatch.worker.steps.spool import Spooled

log = structlog.get_logger()


class NothingToMeasure(ExpectedError):
    """No config of the sweep compiled, or what was compiled is not here; the message is a sentence."""


def step(job: ClaimedJob, context: Context, lease: Lease) -> list[UnsentJob]:
    assert job.sweep_id is not None
    with session(context.database_url) as opened:
        facts = steps.read_sweep_facts(opened, job.sweep_id)
        run_id = steps.find_run(opened, job.sweep_id)
        compiled = steps.list_compiled_configs(opened, job.sweep_id)
    if run_id is not None:  # an earlier attempt died after the run was written
        with session(context.database_url) as opened:
            return [judge_next(opened, facts, run_id, job.priority)]
    compiled = _with_cubins(job.sweep_id, facts, compiled, context)
    ids = {config_sha256(each.params): each.config_id for each in compiled}
    trials = TrialWriter(context.database_url, job.sweep_id, ids)

    def trial_ended(trial: TrialResult) -> None:
        trials.add(trial)
        lease.progress(trials.ended)

    try:
        gpu = _own_gpu(facts, context.simulation)
        with session(context.database_url) as opened:
            times_ill = quarantine.refuse_if_ill(opened, gpu.uuid)
        if facts.gpu_model == SIMULATED.slug:
            result = simulated.measure(facts, compiled, context.simulation, times_ill, on_trial=trial_ended)
        else:
            result = _measure_here(job, facts, compiled, context, gpu, trial_ended)
    except (GpuBusy, GpuMissing, WrongWorker) as error:
        # In use, or fallen off the bus: that is this GPU's trouble, and the job may be another worker's.
        raise NotNow(str(error)) from error
    except MeasureFailed:
        time.sleep(quarantine.NOTICED_S)  # what broke the sweep may have been the GPU, as its watch will have seen
        with session(context.database_url) as opened:
            quarantine.refuse_if_ill(opened, gpu.uuid)
        raise
    metrics.SWEEP_SECONDS.labels(facts.gpu_model).observe((result.finished_at - result.started_at).total_seconds())
    return deliver(Spooled(job.id, job.key, result), context)


def _with_cubins(
    sweep_id: int, facts: SweepFacts, compiled: Sequence[CompiledConfig], context: Context
) -> list[CompiledConfig]:
    """The configs whose cubins lie in this store: without its cubin, the GPU would find a config to crash.

    A recording may tell of a cubin that did not compile here, in the time that it may take: that trial ends so.
    """
    outcomes = CubinStore(context.store_url).outcomes({each.content_key for each in compiled})
    if missing := sum(each.content_key not in outcomes for each in compiled):
        raise NothingToMeasure(
            f"{missing:,} cubins of {facts.kernel} {facts.problem} are not in the store {context.store_url}; "
            "submit it again and they are compiled again"
        )
    failed = [each for each in compiled if outcomes[each.content_key]["status"] != "ok"]
    if failed:
        rows = [not_compiled(each, outcomes[each.content_key]) for each in failed]
        with session(context.database_url) as opened:
            record.write_trial_results(opened, sweep_id, rows)
    here = [each for each in compiled if outcomes[each.content_key]["status"] == "ok"]
    if not here:
        raise NothingToMeasure(f"no config of {facts.kernel} compiled for {facts.problem} on {facts.arch}")
    return here


def _own_gpu(facts: SweepFacts, simulation: Simulation) -> Gpu:
    if facts.gpu_model == SIMULATED.slug:
        return simulated.board(simulation)
    return visible_gpu({facts.gpu_model})


def _measure_here(
    job: ClaimedJob,
    facts: SweepFacts,
    compiled: Sequence[CompiledConfig],
    context: Context,
    gpu: Gpu,
    on_trial: Callable[[TrialResult], None],
) -> RunResult:
    """On this worker's GPU. What a killed attempt of this job found on it lies on disk and is not measured again.

    Another GPU's times would be of no use here, so the database's trials are not taken for that.
    """
    planned = [PlannedTrial(each.params, each.content_key) for each in compiled]
    with Journal(journal_path(context.journals, planned, (job.key, gpu.uuid, gpu.driver, HARNESS))) as journal:

        def trial_ended(trial: TrialResult) -> None:
            journal.add(trial)
            on_trial(trial)

        request = _request(job, facts, compiled, context, gpu, dict(journal.known))
        result = measure(request, on_trial=trial_ended, on_step=lambda *_: None)
        journal.delete()
    return result


def _request(
    job: ClaimedJob,
    facts: SweepFacts,
    compiled: Sequence[CompiledConfig],
    context: Context,
    gpu: Gpu,
    known: Mapping[str, TrialResult],
) -> MeasureRequest:
    library = repository.checkout(context.repository, facts.sha, job.payload["library"], context.checkouts)
    return MeasureRequest(
        library=library,
        kernel=facts.kernel,
        problem=facts.problem,
        arch=facts.arch,
        store_url=context.store_url,
        cubins=tuple(Cubin(each.params, each.content_key, each.symbol) for each in compiled),
        gpu_index=[each.uuid for each in gpus()].index(gpu.uuid),
        baselines=tuple(job.payload["baselines"]),
        known=known,
    )
