"""Submits a check: the comparison of two commits before a merge, on the fleet's GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import checks, jobs
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.lifecycle.jobs import Priority, UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.errors import ExpectedError
from tilewatch.kernels import device
from tilewatch.kernels.device import SIMULATED
from tilewatch.text import short_sha
from tilewatch.worker.git import watched
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.dispatch import COMPILE
from tilewatch.worker.queue.payloads import PrepareCheckPayload, write_payload
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import open_source


class NoGpuForCheck(ExpectedError):
    """Raised if no GPU worker could run a check. The message is a sentence."""


@dataclass(frozen=True)
class CheckAsked:
    """A request to check two commits. If `gpus` is empty, all models are used. A `fail_over` of 0.02 is 2 %."""

    base: str
    head: str
    kernel: str | None = None
    gpus: tuple[str, ...] = ()
    fail_over: float = 0.0
    repository: str | None = None


@dataclass(frozen=True)
class SubmittedChecks:
    """The submitted checks, one per GPU model. `created` is False if all existed before."""

    check_ids: tuple[int, ...]
    gpu_models: tuple[str, ...]
    created: bool
    new_check_ids: tuple[int, ...]
    sentence: str


def submit_check(settings: Settings, who: str, asked: CheckAsked) -> SubmittedChecks:
    """Submits a check per GPU model. Raises RepositoryError or NoGpuForCheck."""
    servers = settings.connection()
    source = open_source(settings, asked.repository)
    commits = [watched.resolve(source.watched, revision) for revision in (asked.base, asked.head)]
    between = "..".join(short_sha(each.sha) for each in commits)
    models = _find_models(servers.database_url, asked.gpus)
    payload = PrepareCheckPayload(source.watched.name, settings.library, source.list_kernels(settings))
    check_ids, new_ids, queued = [], [], []
    with session(servers.database_url) as opened:
        for model in models:
            fact_writes.add_gpu_model(opened, **model.stored)
            base, head = commits
            shas = (base.sha, head.sha, head.subject)
            request = CheckRequest(head.repository, *shas, model.slug, asked.kernel, asked.fail_over)
            check_id, new = checks.open_once(opened, request, who)
            check_ids.append(check_id)
            if new:
                new_ids.append(check_id)
                job_id, _ = jobs.add(
                    opened,
                    key=f"check:{check_id}:prepare",
                    kind="prepare_check",
                    queue=COMPILE,
                    subject=f"check {check_id}: {between} on {model.slug}",
                    payload=write_payload(payload),
                    check_id=check_id,
                    priority=Priority.MANUAL,
                )
                queued.append(UnsentJob(job_id, COMPILE))
    dispatch.send(dispatch.sender(servers.broker_url), servers.database_url, queued)
    slugs = tuple(model.slug for model in models)
    verb = "submitted" if queued else "found, submitted before,"
    sentence = f"{verb} the check of {between} ({commits[1].subject}) on {', '.join(slugs)}{source.stale_words}"
    return SubmittedChecks(tuple(check_ids), slugs, bool(queued), tuple(new_ids), sentence)


def _find_models(database_url: str, gpus: Sequence[str]) -> list[device.GpuSpec]:
    """Returns these GPU models, or all with a recent worker. Raises NoGpuForCheck without a worker."""
    with session(database_url) as opened:
        measured = steps.list_gpu_models_measured_here(opened, lately=not gpus)
    named = [device.gpu_model(slug) for slug in dict.fromkeys(gpus)]
    for model in named:
        if model.slug not in (*measured, SIMULATED.slug):
            raise NoGpuForCheck(
                f"no GPU worker of {model.slug} was ever here to answer; `tilewatch compare` compares the same commits "
                "on a machine with such a GPU, and `tilewatch compare --static` on any machine"
            )
    models = named or [device.gpu_model(slug) for slug in measured if slug != SIMULATED.slug]
    if not models:
        raise NoGpuForCheck("no GPU worker was here lately to answer: start one, or use `tilewatch compare --static`")
    return models
