"""The submit step. Writes a commit's submissions, sweeps, waiting trials and jobs, and sends one message per job.

It runs anywhere: it needs Git, Postgres and Redis, and no GPU stack. Bad input is refused before anything is written,
and everything is written in one transaction or not at all.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy.orm import Session

from tilewatch.db import record
from tilewatch.db.lifecycle import jobs, repositories
from tilewatch.db.lifecycle.jobs import Priority, UnsentJob
from tilewatch.db.migrate import require_head
from tilewatch.db.session import check, session
from tilewatch.db.step_queries import steps
from tilewatch.errors import ExpectedError
from tilewatch.kernels import device, tile_table
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.device import SIMULATED, GpuSpec
from tilewatch.kernels.recording.git_commit import GitCommit
from tilewatch.kernels.results import Plan
from tilewatch.repository_names import is_branch, name_of_branch
from tilewatch.text import short_sha
from tilewatch.worker import checkouts, watched
from tilewatch.worker import repository as git_reads
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.dispatch import COMPILE, gpu_queue
from tilewatch.worker.settings import Settings
from tilewatch.worker.watched import WatchedRepository


class NothingToSubmit(ExpectedError):
    """No GPU model was named, owned or watched, or no commit is in a range; the message is a sentence."""


@dataclass(frozen=True)
class Submitted:
    """`created` is False when all of it was submitted before. `fetch_failure` says why the clone is as it was."""

    submission_ids: tuple[int, ...]
    created: bool
    sentence: str
    fetch_failure: str | None


@dataclass(frozen=True)
class _Request:
    """A request before its GPU models are resolved. `key` names a submission by sha and GPU model."""

    reason: str
    priority: Priority
    night: dt.date | None
    what: str
    key: Callable[[str, str], str]
    kernel: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class _Source:
    """Where to submit from. `fetch_failure` is None where the fetch went well, or is somebody else's business.

    `library` is the folder of commits whose pyproject.toml names none.
    """

    watched: WatchedRepository
    fetch_failure: str | None
    library: str

    @property
    def has_whole_suite(self) -> bool:
        """TILEWATCH_KERNELS is about the library of TILEWATCH_REPOSITORY alone."""
        return self.watched.clone is not None

    @property
    def words(self) -> str:
        """Names a repository that was added, for people; nothing for that of TILEWATCH_REPOSITORY."""
        return f" of {self.watched.name}" if self.watched.clone is not None else ""


@dataclass(frozen=True)
class _Target:
    """A GPU model to submit for, its plans, and whether a GPU will be there to measure."""

    model: GpuSpec
    measure: bool
    plans: tuple[Plan, ...]


def submit_nightly(
    settings: Settings,
    *,
    repository: str | None = None,
    commit: str = "HEAD",
    gpus: Sequence[str] = (),
    night: dt.date | None = None,
) -> Submitted:
    """Submits the library's whole suite. A night's second submission of a commit finds the first and changes
    nothing."""
    night = night or dt.datetime.now(dt.UTC).date()
    return _submit(
        settings,
        _open_source(settings, repository),
        commit,
        gpus,
        _Request(
            "nightly",
            Priority.NIGHTLY,
            night,
            f"the nightly of {night}",
            lambda sha, slug: f"nightly:{night}:{sha}:{slug}",
        ),
    )


def submit_sweep(
    settings: Settings,
    kernel: str,
    problem: str,
    *,
    repository: str | None = None,
    commit: str = "HEAD",
    gpus: Sequence[str] = (),
    once: str | None = None,
) -> Submitted:
    """Submits one kernel on one problem. Always a new submission, since who asks twice wants a second measurement;
    requests with the same `once` are submitted once."""
    unique = once or dt.datetime.now(dt.UTC).isoformat()
    return _submit(
        settings,
        _open_source(settings, repository),
        commit,
        gpus,
        _Request(
            "manual",
            Priority.MANUAL,
            None,
            f"a sweep of {kernel} on {problem}",
            lambda sha, slug: f"manual:{kernel}:{problem}:{sha}:{slug}:{unique}",
            kernel,
            problem,
        ),
    )


def submit_backfill(
    settings: Settings, revisions: str, *, repository: str | None = None, gpus: Sequence[str] = ()
) -> Iterator[Submitted]:
    """Submits the whole suite for each commit of a range A..B, the newest first: a person looks at it soonest.

    A commit's second backfill finds the first and changes nothing.
    """
    source = _open_source(settings, repository)
    shas = git_reads.between(source.watched.folder, revisions)
    if not shas:
        raise NothingToSubmit(f"the range {revisions} has no commits; expected the older revision first")
    request = _Request("backfill", Priority.BACKFILL, None, "a backfill", lambda sha, slug: f"backfill:{sha}:{slug}")
    for sha in reversed(shas):
        yield _submit(settings, source, sha, gpus, request, branch=revisions.partition("..")[2])


def _open_source(settings: Settings, name: str | None) -> _Source:
    """Finds the repository to submit from, and fetches it. Raises RepositoryError."""
    servers = settings.connection()
    check(servers.database_url)
    require_head(servers.database_url)
    dispatch.check(servers.broker_url)
    with session(servers.database_url) as opened:
        chosen = watched.choose(opened, settings, name)
    failure = watched.fetch(chosen)
    if chosen.clone is not None and failure is None:
        with session(servers.database_url) as opened:
            repositories.write_fetched(opened, chosen.name)
    return _Source(chosen, failure, settings.library)


def _submit(
    settings: Settings,
    source: _Source,
    revision: str,
    gpus: Sequence[str],
    request: _Request,
    *,
    branch: str | None = None,
) -> Submitted:
    """`branch` names the line of a commit that is not on the main line; without it `revision` does."""
    servers = settings.connection()
    models = tuple(dict.fromkeys(device.gpu_model(slug) for slug in gpus))
    commit = _resolve(source.watched, revision, branch or revision)
    library = checkouts.checkout_library(source.watched.folder, commit.sha, settings.library, settings.checkouts)
    with session(servers.database_url) as opened:
        measured = set(steps.list_gpu_models_measured_here(opened)) | _own_models()
    measured.add(SIMULATED.slug)  # any machine can be its worker
    others = measured | set(settings.watch)
    models = models or tuple(device.gpu_model(slug) for slug in sorted(others - {SIMULATED.slug}))
    if not models:
        raise NothingToSubmit("no GPU model is watched and no GPU worker was ever here: name one with --gpu")
    readings = {
        arch: catalog.read_library(library, arch=arch, kernel=request.kernel, problem=request.problem)
        for arch in sorted({model.arch for model in models})
    }
    plans = {
        arch: tuple(
            plan for plan in reading.plans if request.kernel or source.has_whole_suite or settings.sweeps(plan.kernel)
        )
        for arch, reading in readings.items()
    }
    failures = tuple(dict.fromkeys(failure for reading in readings.values() for failure in reading.failures))
    if not any(plans.values()):
        raise NothingToSubmit(
            f"the library's suite has none of the kernels {', '.join(settings.kernels or ())} (TILEWATCH_KERNELS)"
        )
    targets = [_Target(model, model.slug in measured, plans[model.arch]) for model in models]
    with session(servers.database_url) as opened:
        commit_id = record.add_commit(
            opened, **{**asdict(commit), "committed_at": dt.datetime.fromisoformat(commit.committed_at)}
        )
        written = [_write(opened, source, commit, commit_id, target, request) for target in targets]
    queued = [job for _, _, jobs_of_one in written for job in jobs_of_one]
    dispatch.send(dispatch.sender(servers.broker_url), servers.database_url, queued)
    created = [target for target, (_, new, _) in zip(targets, written, strict=True) if new]
    return Submitted(
        submission_ids=tuple(submission_id for submission_id, _, _ in written),
        created=bool(created),
        sentence="; left out: ".join((_sentence(request, source, commit, targets, created), *failures)),
        fetch_failure=source.fetch_failure,
    )


def _resolve(source: WatchedRepository, revision: str, line: str) -> GitCommit:
    """Reads a commit. One that is not on the main line is of a repository of its own, the branch `line`."""
    commit = watched.resolve(source, revision)
    if git_reads.is_on_main_line(source.folder, commit.sha, source.branch):
        return commit
    line = short_sha(commit.sha) if commit.sha.startswith(line) else line
    return replace(commit, repository=name_of_branch(commit.repository, line))


def _own_models() -> set[str]:
    """The models of this machine's own GPUs: `tilewatch up` submits before its GPU workers wrote a heartbeat."""
    return {gpu.model.slug for gpu in device.gpus() if gpu.model is not None}


def _write(
    opened: Session,
    source: _Source,
    commit: GitCommit,
    commit_id: int,
    target: _Target,
    request: _Request,
) -> tuple[int, bool, list[UnsentJob]]:
    """Writes one submission with its sweeps, trials and jobs; returns its id, whether it is new, and the jobs to
    send."""
    model = target.model
    record.add_gpu_model(opened, **asdict(model))
    key = request.key(commit.sha, model.slug)
    if source.watched.clone is not None:
        key += f":{source.watched.name}"  # two repositories may share a commit
    if is_branch(commit.repository):
        key += ":branch"  # once it is merged, the same commit is submitted again, for the main line
    submission_id, new = record.add_submission(
        opened,
        key=key,
        reason=request.reason,
        night=request.night,
        commit_id=commit_id,
        gpu_model=model.slug,
        measure=target.measure,
    )
    if not new:
        return submission_id, False, []
    for plan in target.plans:
        sweep_id = _write_sweep(opened, submission_id, commit_id, model, plan)
        if target.measure:
            jobs.add(
                opened,
                key=f"{key}:measure:{plan.kernel}:{plan.problem}",
                kind="measure",
                queue=gpu_queue(model.slug),
                subject=f"{plan.kernel} {plan.problem}{source.words} on {model.slug}",
                payload={"library": source.library, "baselines": list(plan.baselines), **_shipped(plan)},
                submission_id=submission_id,
                sweep_id=sweep_id,
                state="waiting",
                priority=request.priority,
            )
    return submission_id, True, _compile_jobs(opened, submission_id, key, source, commit, target, request)


def _shipped(plan: Plan) -> dict[str, dict[str, int]]:
    return {} if plan.ships is None else {"ships": dict(plan.ships)}


def _write_sweep(opened: Session, submission_id: int, commit_id: int, model: GpuSpec, plan: Plan) -> int:
    """Writes a sweep, its configs and its trials, none of them compiled yet. Returns the sweep's id."""
    sweep_id = record.add_sweep(
        opened,
        submission_id=submission_id,
        commit_id=commit_id,
        kernel=plan.kernel,
        problem=plan.problem,
        gpu_model=model.slug,
        arch=plan.arch,
        source_sha256=plan.source_sha256,
        space=tile_table.stored_space(plan, model.slug),
        space_size=len(plan.trials),
        flops=plan.flops,
        bytes=plan.bytes,
        parts_of=plan.parts_of,
    )
    ids = record.add_configs(opened, [trial.config for trial in plan.trials])
    planned = [(ids[record.config_sha256(trial.config)], trial.code_key) for trial in plan.trials]
    record.add_trials(opened, sweep_id, planned)
    return sweep_id


def _compile_jobs(
    opened: Session,
    submission_id: int,
    key: str,
    source: _Source,
    commit: GitCommit,
    target: _Target,
    request: _Request,
) -> list[UnsentJob]:
    """Adds one job per kernel, for all its problems: they share code. It queues the batches (compile.py)."""
    queued = []
    for kernel in dict.fromkeys(plan.kernel for plan in target.plans):
        job_id, _ = jobs.add(
            opened,
            key=f"{key}:compile:{kernel}",
            kind="compile",
            queue=COMPILE,
            subject=f"{kernel}{source.words} for {target.model.slug} ({target.model.arch}) at {short_sha(commit.sha)}",
            payload={
                "repository": commit.repository,
                "sha": commit.sha,
                "library": source.library,
                "kernel": kernel,
                "arch": target.model.arch,
            },
            submission_id=submission_id,
            priority=request.priority,
        )
        queued.append(UnsentJob(job_id, COMPILE))
    return queued


def _sentence(
    request: _Request, source: _Source, commit: GitCommit, targets: Sequence[_Target], created: Sequence[_Target]
) -> str:
    at = f"{short_sha(commit.sha)} ({commit.subject}){source.words}"
    if is_branch(commit.repository):
        at += f", which is not on the main line and kept apart as '{commit.repository}',"
    stale = f"; the clone is as it was: {source.fetch_failure}" if source.fetch_failure else ""
    if not created:
        return f"{request.what} for {at} was submitted before, for {_slugs(targets)}{stale}"
    static = [target for target in created if not target.measure]
    only = f"; static facts only for {_slugs(static)}, which no GPU worker has had" if static else ""
    return f"submitted {request.what} for {at} on {_slugs(created)}{only}{stale}"


def _slugs(targets: Sequence[_Target]) -> str:
    return ", ".join(target.model.slug for target in targets)
