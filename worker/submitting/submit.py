"""Submits a commit: writes its submissions, sweeps, waiting trials and jobs, and sends the jobs. It needs no GPU."""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import repositories
from tilewatch.db.lifecycle.jobs import Priority, UnsentJob
from tilewatch.db.migrate import require_head
from tilewatch.db.repository_names import is_branch, name_of_branch, name_under_toolchain
from tilewatch.db.session import require_database, session
from tilewatch.db.worker_reads import steps
from tilewatch.errors import ExpectedError
from tilewatch.kernels import device
from tilewatch.kernels.catalog.catalog import LibraryPlans
from tilewatch.kernels.device import SIMULATED, GpuSpec
from tilewatch.kernels.library_errors import LibraryError, PackageMissing
from tilewatch.kernels.problems import outside_files
from tilewatch.kernels.recording.git_commit import GitCommit
from tilewatch.kernels.results import Plan
from tilewatch.kernels.toolchains.toolchain import is_name, list_toolchains
from tilewatch.text import count_text, short_sha
from tilewatch.worker.git import commits as git_reads
from tilewatch.worker.git import watched
from tilewatch.worker.git.branch_order import BranchOrder
from tilewatch.worker.git.watched import WatchedRepository
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.dispatch import TRACE_QUEUE
from tilewatch.worker.queue.tracers import ADVICE, require_tracer
from tilewatch.worker.settings import EVERY_KERNEL, Settings
from tilewatch.worker.steps import trace_library
from tilewatch.worker.steps.trace_library import PlansWanted
from tilewatch.worker.steps.write_plans import PlannedSubmission, write_plans


class BadToolchainName(ExpectedError):
    """Raised if no toolchain can have this name. The message says which names are possible."""


class NothingToSubmit(ExpectedError):
    """Raised if there is no GPU model, kernel or commit to submit. The message is a sentence."""


@dataclass(frozen=True)
class Submitted:
    """The result of submitting. `created` is False if nothing was new. `fetch_failure` is an error message or None."""

    submission_ids: tuple[int, ...]
    created: bool
    sentence: str
    fetch_failure: str | None


@dataclass(frozen=True)
class _Request:
    """The sweeps to submit. `key` maps a commit's hash and a GPU's slug to a submission's key."""

    reason: str
    priority: Priority
    night: dt.date | None
    what: str
    key: Callable[[str, str], str]
    kernel: str | None = None
    problem: str | None = None
    toolchain: str | None = None
    wide: bool = False


@dataclass(frozen=True)
class Source:
    """The repository to submit from. `library` is the library's folder, if the commit's pyproject.toml names none."""

    watched: WatchedRepository
    fetch_failure: str | None
    library: str

    def list_kernels(self, settings: Settings) -> tuple[str, ...] | None:
        """Returns the kernels that TILEWATCH_KERNELS names; None means all kernels."""
        is_whole = self.watched.clone is not None or settings.kernels == (EVERY_KERNEL,)
        return None if is_whole else settings.kernels

    @property
    def words(self) -> str:
        """Returns " of NAME" for messages about an added repository; "" for TILEWATCH_REPOSITORY."""
        return f" of {self.watched.name}" if self.watched.clone is not None else ""

    @property
    def stale_words(self) -> str:
        """Returns a clause that says why the fetch failed; "" if it succeeded."""
        return f"; the clone is as it was: {self.fetch_failure}" if self.fetch_failure else ""


@dataclass(frozen=True)
class _Read:
    """A library's plans by GPU model. `words` tells the user about parts that were left out."""

    plans: Mapping[str, tuple[Plan, ...]]
    words: str


@dataclass(frozen=True)
class _Target:
    """A GPU model to submit for. Without a GPU, `measure` is False. `plans` is None if another node makes the plans."""

    model: GpuSpec
    measure: bool
    plans: tuple[Plan, ...] | None


def submit_nightly(
    settings: Settings,
    *,
    repository: str | None = None,
    commit: str | None = None,
    gpus: Sequence[str] = (),
    night: dt.date | None = None,
    toolchain: str | None = None,
) -> Submitted:
    """Submits the library's whole suite at `commit`, by default HEAD or the followed branch's newest commit."""
    if toolchain is not None and not is_name(toolchain):
        raise BadToolchainName(f"'{toolchain}' is not a name of a toolchain; expected one like next-13.5")
    night = night or dt.datetime.now(dt.UTC).date()
    source = open_source(settings, repository)
    return _submit(
        settings,
        source,
        commit,
        gpus,
        _Request(
            "nightly",
            _choose_priority(settings, source),
            night,
            f"the nightly of {night}" + (f" under {toolchain}" if toolchain else ""),
            lambda sha, slug: f"nightly:{night}:{sha}:{slug}" + (f":toolchain:{toolchain}" if toolchain else ""),
            toolchain=toolchain,
        ),
    )


def _choose_priority(settings: Settings, source: Source) -> Priority:
    """Returns the priority of a repository's nightlies, which is lower for Tilewatch itself."""
    is_chosen = source.watched.clone is not None or "repository" in settings.model_fields_set
    return Priority.NIGHTLY if is_chosen else Priority.BACKFILL


def submit_sweep(
    settings: Settings,
    kernel: str,
    problem: str,
    *,
    repository: str | None = None,
    commit: str = "HEAD",
    gpus: Sequence[str] = (),
    once: str | None = None,
    wide: bool = False,
) -> Submitted:
    """Submits a sweep, of all configs if `wide`. Calls with the same `once` share a submission."""
    unique = once or dt.datetime.now(dt.UTC).isoformat()
    return _submit(
        settings,
        open_source(settings, repository),
        commit,
        gpus,
        _Request(
            "manual",
            Priority.MANUAL,
            None,
            f"a {'wide ' if wide else ''}sweep of {kernel} on {problem}",
            lambda sha, slug: f"manual:{kernel}:{problem}:{sha}:{slug}:{unique}",
            kernel,
            problem,
            wide=wide,
        ),
    )


def submit_backfill(
    settings: Settings, revisions: str, *, repository: str | None = None, gpus: Sequence[str] = ()
) -> Iterator[Submitted]:
    """Submits the whole suite for each commit of a range A..B, the newest first."""
    source = open_source(settings, repository)
    shas = _list_range(settings, source.watched, revisions)
    if not shas:
        raise NothingToSubmit(f"the range {revisions} has no commits; expected the older revision first")
    request = _Request("backfill", Priority.BACKFILL, None, "a backfill", lambda sha, slug: f"backfill:{sha}:{slug}")
    for sha in reversed(shas):
        yield _submit(settings, source, sha, gpus, request, branch=revisions.partition("..")[2])


def _list_range(settings: Settings, source: WatchedRepository, revisions: str) -> list[str]:
    """Lists the hashes of a range A..B, the oldest first."""
    start, end = git_reads.resolve_range(source.folder, revisions)
    with session(settings.connection().database_url) as opened:
        order = watched.read_order(opened, source)
    if not order.has(end):
        return git_reads.between(source.folder, f"{start}..{end}")
    between = git_reads.list_range(source.folder, start, end)
    return sorted(filter(between.__contains__, order.positions), key=order.positions.__getitem__)


def open_source(settings: Settings, name: str | None) -> Source:
    """Returns the repository to submit from, fetched if possible. Raises RepositoryError."""
    servers = settings.connection()
    require_database(servers.database_url)
    require_head(servers.database_url)
    dispatch.require_broker(servers.broker_url)
    with session(servers.database_url) as opened:
        chosen = watched.choose(opened, settings, name)
    failure = watched.fetch(chosen)
    if chosen.clone is not None and failure is None:
        with session(servers.database_url) as opened:
            repositories.write_fetched(opened, chosen.name)
    return Source(chosen, failure, settings.library)


def _submit(
    settings: Settings,
    source: Source,
    revision: str | None,
    gpus: Sequence[str],
    request: _Request,
    *,
    branch: str | None = None,
) -> Submitted:
    """Submits a request for each GPU model. `branch`, by default `revision`, labels a commit off the main line."""
    servers = settings.connection()
    models = tuple(dict.fromkeys(device.gpu_model(slug) for slug in gpus))
    with session(servers.database_url) as opened:
        order = watched.read_order(opened, source.watched)
    revision = revision or _choose_revision(source.watched, order)
    commit = _resolve(source.watched, order, revision, branch or revision, request.toolchain)
    library = watched.library_of(source.watched, commit.sha, settings.library, settings.checkouts)
    with session(servers.database_url) as opened:
        measured = set(steps.list_gpu_models_measured_here(opened, lately=not gpus))
    # this machine's too, because `tilewatch up` submits before its workers have a heartbeat
    measured |= {gpu.model.slug for gpu in device.gpus() if gpu.model is not None}
    measured.add(SIMULATED.slug)  # any machine can be its worker
    others = measured | set(settings.watch)
    models = models or tuple(device.gpu_model(slug) for slug in sorted(others - {SIMULATED.slug}))
    if not models:
        raise NothingToSubmit("no GPU model is watched and no GPU worker was here lately: name a GPU model")
    kernels = None if request.kernel else source.list_kernels(settings)
    night = str(request.night) if request.reason == "nightly" else None
    wanted = PlansWanted(request.kernel, request.problem, kernels, request.wide, night)
    submodules = outside_files.list_submodules(source.watched.folder, commit.sha)
    read = _read(servers.database_url, library, commit.repository, models, wanted, submodules)
    planned = [model for model in models if read.plans.get(model.slug) != ()]
    targets = [_Target(model, model.slug in measured, read.plans.get(model.slug)) for model in planned]
    with session(servers.database_url) as opened:
        commit_id = fact_writes.add_commit(
            opened, **{**asdict(commit), "committed_at": dt.datetime.fromisoformat(commit.committed_at)}
        )
        removed = watched.order_commits(opened, source.watched, commit.repository, commit.sha)
        written = [_write(opened, source, commit, commit_id, target, request, wanted) for target in targets]
    queued = [job for _, _, jobs_of_one in written for job in jobs_of_one]
    dispatch.send(dispatch.sender(servers.broker_url), servers.database_url, queued)
    created = [target for target, (_, new, _) in zip(targets, written, strict=True) if new]
    return Submitted(
        submission_ids=tuple(submission_id for submission_id, _, _ in written),
        created=bool(created),
        sentence=_sentence(request, source, commit, targets, created)
        + read.words
        + _describe_rewrite(source.watched, removed)
        + _say_unknown(settings.toolchains, request.toolchain),
        fetch_failure=source.fetch_failure,
    )


def _describe_rewrite(source: WatchedRepository, removed: int) -> str:
    """Returns a clause about the measured commits that left the branch; "" if none did."""
    return f"; {count_text(removed, 'measured commit')} left {source.branch}, which was rewritten" if removed else ""


def _choose_revision(source: WatchedRepository, order: BranchOrder) -> str:
    """Returns HEAD, or the newest commit of the followed branch if HEAD is not on that branch."""
    is_followed = order.has(watched.resolve(source, "HEAD").sha)
    return "HEAD" if is_followed else git_reads.find_tips(source.folder, source.branch)[-1]


def _resolve(
    source: WatchedRepository, order: BranchOrder, revision: str, line: str, toolchain: str | None
) -> GitCommit:
    """Returns a commit with the repository name under which it is stored. The name may contain a branch or
    toolchain."""
    commit = watched.resolve(source, revision)
    branch = None
    if order.has(commit.sha):
        commit = replace(commit, position=order.positions[commit.sha])
    else:
        branch = short_sha(commit.sha) if commit.sha.startswith(line) else line
    if toolchain is not None:
        branch = name_under_toolchain(branch, toolchain)
    return commit if branch is None else replace(commit, repository=name_of_branch(commit.repository, branch))


def _read(
    database_url: str,
    library: Path,
    repository: str,
    models: Sequence[GpuSpec],
    wanted: PlansWanted,
    submodules: Sequence[str],
) -> _Read:
    """Returns a library's plans for each GPU model. Raises NothingToSubmit or LibraryError if there are none."""
    readings, refusals = dict[str, LibraryPlans](), dict[str, LibraryError]()
    for model in models:
        try:
            readings[model.slug] = wanted.read(database_url, library, repository, model)
        except LibraryError as error:  # the other models may have kernels
            refusals[model.slug] = error
    failures = tuple(dict.fromkeys(failure for reading in readings.values() for failure in reading.failures))
    advice = ""
    missing = [error for error in refusals.values() if isinstance(error, PackageMissing)]
    missing += [PackageMissing(each.package_missing) for each in readings.values() if each.package_missing is not None]
    if missing:
        _refuse_submodule(str(missing[0]), submodules)
        with session(database_url) as opened:
            if not readings:
                require_tracer(opened, missing[0])
            if steps.is_taken(opened, TRACE_QUEUE):
                return _Read(
                    {}, f"; a worker of the queue {TRACE_QUEUE} finds out what it sweeps, since here {missing[0]}"
                )
        advice = f"; {ADVICE}"
    if not readings:
        raise next(iter(refusals.values()))
    plans = {slug: tuple(filter(wanted.has, reading.plans)) for slug, reading in readings.items()}
    without = [f"{slug}, for which no kernel has a config" for slug in plans if not plans[slug]]
    without += [f"{slug}, for which no kernel is left: {error}" for slug, error in refusals.items()]
    plans |= dict.fromkeys(refusals, ())
    if len(without) == len(plans):
        named = f"of {', '.join(wanted.kernels)} (TILEWATCH_KERNELS) " if wanted.kernels is not None else ""
        raise NothingToSubmit(f"no kernel {named}in the library's suite has a config for {', '.join(plans)}")
    return _Read(plans, "".join(f"; left out: {each}" for each in (*failures, *without)) + advice)


def _refuse_submodule(reason: str, submodules: Sequence[str]) -> None:
    """Raises PackageMissing if the missing package is in a submodule, as nodes clone without submodules."""
    for package in re.findall(r"[\w.-]+", reason):
        if (submodule := outside_files.find_submodule(package, submodules)) is not None:
            raise PackageMissing(f"{reason}; {outside_files.describe_submodule(package, submodule)}")


def _write(
    opened: Session,
    source: Source,
    commit: GitCommit,
    commit_id: int,
    target: _Target,
    request: _Request,
    wanted: PlansWanted,
) -> tuple[int, bool, list[UnsentJob]]:
    """Writes a submission with its sweeps, trials and jobs. Returns its id, whether it is new, and the jobs to send."""
    model = target.model
    fact_writes.add_gpu_model(opened, **model.stored)
    key = request.key(commit.sha, model.slug)
    if source.watched.clone is not None:
        key += f":{source.watched.name}"  # two repositories may share a commit
    if is_branch(commit.repository):
        key += f":branch:{commit.repository}"  # the same commit may be on other branches, and on the main line later
    submission_id, new = fact_writes.add_submission(
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
    submission = PlannedSubmission(
        key=key,
        submission_id=submission_id,
        commit_id=commit_id,
        repository=commit.repository,
        sha=commit.sha,
        library=source.library,
        words=source.words + (f" under {request.toolchain}" if request.toolchain else ""),
        gpu_model=model.slug,
        measure=target.measure,
        priority=int(request.priority),
        toolchain=request.toolchain,
    )
    if target.plans is not None:
        return submission_id, True, write_plans(opened, submission, target.plans)
    subject = f"{request.what}{source.words} for {model.slug} at {short_sha(commit.sha)}"
    return submission_id, True, [trace_library.add_job(opened, submission, wanted, subject)]


def _sentence(
    request: _Request, source: Source, commit: GitCommit, targets: Sequence[_Target], created: Sequence[_Target]
) -> str:
    at = f"{short_sha(commit.sha)} ({commit.subject}){source.words}"
    if is_branch(commit.repository):
        why = "" if request.toolchain else "which is not on the main line and "
        at += f", {why}kept apart as '{commit.repository}',"
    if not created:
        return f"{request.what} for {at} was submitted before, for {_slugs(targets)}{source.stale_words}"
    static = [target for target in created if not target.measure]
    only = f"; static facts only for {_slugs(static)}, without a GPU worker" if static else ""
    return f"submitted {request.what} for {at} on {_slugs(created)}{only}{source.stale_words}"


def _say_unknown(toolchains: Path, name: str | None) -> str:
    """Returns a warning if this machine has no toolchain of this name; else ""."""
    if name is None or any(each.name == name for each in list_toolchains(toolchains)):
        return ""
    return f"; this machine has no toolchain named {name}, and what is compiled waits for a worker that has it"


def _slugs(targets: Sequence[_Target]) -> str:
    return ", ".join(target.model.slug for target in targets)
