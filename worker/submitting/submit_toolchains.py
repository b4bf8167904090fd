"""Submits a comparison of toolchains to the queue. It needs no GPU."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs, toolchain_reports
from tilewatch.db.lifecycle.jobs import Priority, UnsentJob
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.kernels import device
from tilewatch.kernels.device import SIMULATED
from tilewatch.kernels.toolchains.toolchain import INSTALLED, is_name
from tilewatch.text import short_sha
from tilewatch.worker.git import watched
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.dispatch import COMPILE
from tilewatch.worker.queue.payloads import ToolchainsPayload, write_payload
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import BadToolchainName, NothingToSubmit, open_source


@dataclass(frozen=True)
class ToolchainsAsked:
    """A request to compare toolchains with the first. Empty `gpus` mean all models. A `fail_over` of 0.01 is 1 %."""

    toolchains: Sequence[str]
    repository: str | None = None
    commit: str = "HEAD"
    kernels: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    minutes: float = 10.0
    retunes: bool = True
    fail_over: float = 0.01


@dataclass(frozen=True)
class SubmittedReport:
    report_id: int
    sentence: str


def submit_toolchains(settings: Settings, asked: ToolchainsAsked) -> SubmittedReport:
    """Submits a comparison, or finds an equal one in progress. Raises ExpectedError for a wrong request."""
    for name in asked.toolchains:
        if name != INSTALLED and not is_name(name):
            raise BadToolchainName(
                f"'{name}' is not a name of a toolchain; expected one like next-13.5, or {INSTALLED}"
            )
    servers = settings.connection()
    source = open_source(settings, asked.repository)
    commit = watched.resolve(source.watched, asked.commit)
    kernels = asked.kernels or source.list_kernels(settings)
    now = dt.datetime.now(dt.UTC)
    with session(servers.database_url) as opened:
        here = [slug for slug in steps.list_gpu_models_measured_here(opened, lately=True) if slug != SIMULATED.slug]
        models = [device.gpu_model(slug) for slug in dict.fromkeys(asked.gpus or here)]
        for model in models:
            fact_writes.add_gpu_model(opened, **model.stored)
        slugs = [model.slug for model in models]
        watched_archs = [device.gpu_model(slug).arch for slug in settings.watch]
        archs = list(dict.fromkeys([*(model.arch for model in models), *asked.archs])) or sorted({*watched_archs})
        if not archs:
            raise NothingToSubmit("no GPU model is watched and none is here: name a GPU model or an architecture")
        limits = tuple(map(str, (asked.minutes, asked.retunes, asked.fail_over)))
        parts = (commit.repository, commit.sha, *asked.toolchains, *slugs, *asked.kernels, *archs, *limits)
        report_id, is_new = toolchain_reports.begin(opened, ":".join(parts), asked.toolchains, now)
        payload = ToolchainsPayload(
            report_id,
            tuple(asked.toolchains),
            commit.sha,
            source.watched.name,
            commit.repository,
            settings.library,
            tuple(slugs),
            tuple(archs),
            asked.minutes,
            asked.retunes,
            asked.fail_over,
            kernels,
        )
        queued = _add_job(opened, payload) if is_new else []
    dispatch.send(dispatch.sender(servers.broker_url), servers.database_url, queued)
    verb = "submitted" if is_new else "found, being made already,"
    where = ", ".join(slugs) or "no GPU: the compilers alone"
    sentence = f"{verb} the comparison of {' with '.join(asked.toolchains)} at {short_sha(commit.sha)} on {where}"
    return SubmittedReport(report_id, f"{sentence}{source.stale_words}")


def _add_job(opened: Session, payload: ToolchainsPayload) -> list[UnsentJob]:
    job_id, _ = jobs.add(
        opened,
        key=f"toolchains:{payload.report_id}:compile",
        kind="compile_toolchains",
        queue=COMPILE,
        subject=f"report {payload.report_id}: {' and '.join(payload.toolchains)}, compiling",
        payload=write_payload(payload),
        priority=Priority.MANUAL,
    )
    toolchain_reports.change(opened, payload.report_id, job_id=job_id)
    return [UnsentJob(job_id, COMPILE)]
