"""Defines every table of the database.

A submission requests sweeps of a commit. A sweep tries many configs of a kernel, and each of them is a trial. A run
measures the winner and its baselines. A verdict judges the run. A change becomes a regression when replays confirm it.
"""

import datetime as dt
from typing import Annotated, Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    FetchedValue,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Text,
    UniqueConstraint,
    false,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

key = Annotated[int, mapped_column(BigInteger, Identity(), primary_key=True)]
instant = Annotated[dt.datetime, mapped_column(DateTime(timezone=True))]
born = Annotated[dt.datetime, mapped_column(DateTime(timezone=True), server_default=func.now())]
words = Annotated[str, mapped_column(Text)]
facts = Annotated[dict[str, Any], mapped_column(JSONB, server_default=text("'{}'::jsonb"))]
samples = Annotated[list[float], mapped_column(ARRAY(Double))]


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def one_of(column: str, *values: str) -> CheckConstraint:
    """Returns a constraint that limits a text column to these words."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} in ({listed})", name=column)


class GpuModel(Base):
    """A GPU model with its architecture and its peak rates."""

    __tablename__ = "gpu_models"
    slug: Mapped[words] = mapped_column(primary_key=True)
    name: Mapped[words]
    arch: Mapped[words]
    fp8_tflops: Mapped[float | None]  # dense, by the datasheet
    bandwidth_gbps: Mapped[float | None]  # of device memory, in GB/s


class Repository(Base):
    """A repository that `tilewatch watch add` added. Nightly jobs measure the repository until `removed_at`."""

    __tablename__ = "repositories"
    __table_args__ = (CheckConstraint("(failure is null) = (failing_since is null)", name="failure_has_time"),)
    name: Mapped[words] = mapped_column(primary_key=True)
    url: Mapped[words]  # without a password
    branch: Mapped[words]
    added_at: Mapped[born]
    removed_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    fetched_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    failing_since: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    failure: Mapped[str | None] = mapped_column(Text)  # of the scheduler's last fetch
    own_python: Mapped[bool] = mapped_column(server_default=false())


class Commit(Base):
    """A commit. Its position on the branch is after the positions of all its ancestors."""

    __tablename__ = "commits"
    __table_args__ = (
        UniqueConstraint("repository", "sha"),
        Index("ix_commits_newest", "repository", text("(left_branch_at is null)"), "position"),
    )
    id: Mapped[key]
    repository: Mapped[words]
    sha: Mapped[words]
    position: Mapped[int]
    committed_at: Mapped[instant]
    subject: Mapped[words]
    author: Mapped[str | None] = mapped_column(Text)
    left_branch_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))  # null on the branch


class Recording(Base):
    """An imported file of runs that were measured elsewhere."""

    __tablename__ = "recordings"
    id: Mapped[key]
    sha256: Mapped[words] = mapped_column(unique=True)  # shows that it was imported before
    file_name: Mapped[words]
    machine: Mapped[words]
    recorded_at: Mapped[instant]
    imported_at: Mapped[born]


class Submission(Base):
    """A request to sweep a commit for one GPU model. If `measure` is false, the configs are only compiled."""

    __tablename__ = "submissions"
    __table_args__ = (one_of("reason", "nightly", "manual", "backfill", "recorded"), Index(None, "requested_at"))
    id: Mapped[key]
    key: Mapped[words] = mapped_column(unique=True)  # of a nightly: unique per night, commit and GPU model
    reason: Mapped[words]
    night: Mapped[dt.date | None]
    commit_id: Mapped[int] = mapped_column(ForeignKey("commits.id"), index=True)
    gpu_model: Mapped[str] = mapped_column(ForeignKey("gpu_models.slug"))
    measure: Mapped[bool]
    recording_id: Mapped[int | None] = mapped_column(ForeignKey("recordings.id"))
    requested_at: Mapped[born]
    commit: Mapped[Commit] = relationship()


class Sweep(Base):
    """All trials of a kernel on a problem for a GPU model at a commit."""

    __tablename__ = "sweeps"
    __table_args__ = (
        UniqueConstraint("submission_id", "kernel", "problem"),
        Index("ix_sweeps_series", "repository", "kernel", "problem", "gpu_model", "commit_id"),
        Index("ix_sweeps_unpruned", "created_at", postgresql_where=text("pruned_at is null")),
    )
    id: Mapped[key]
    submission_id: Mapped[int] = mapped_column(ForeignKey("submissions.id"))
    commit_id: Mapped[int] = mapped_column(ForeignKey("commits.id"), index=True)
    kernel: Mapped[words]
    problem: Mapped[words]
    gpu_model: Mapped[str] = mapped_column(ForeignKey("gpu_models.slug"))
    arch: Mapped[words]
    source_sha256: Mapped[words]
    space: Mapped[facts]  # {"axes": [[name, [values]]]}, in order
    space_size: Mapped[int]
    flops: Mapped[int] = mapped_column(BigInteger)  # for TFLOP/s and, with `bytes`, the roofline
    bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[born]
    repository: Mapped[words] = mapped_column(server_default=FetchedValue())  # the commit's; a trigger fills it
    parts_of: Mapped[facts]  # {"decode": {"weight": 28.0, "parts": 12}}: one of 12 problems in a step of the model
    trial_facts: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    """The counts of db/trial_facts.py, stored when the sweep's last trial gets its compilation; null before that."""
    pruned_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    """The time when the samples of the losing trials were deleted; null before that."""
    submission: Mapped[Submission] = relationship()


class Config(Base):
    """One point of a search space, stored once for all sweeps that try it."""

    __tablename__ = "configs"
    id: Mapped[key]
    sha256: Mapped[words] = mapped_column(unique=True)  # of its canonical JSON
    params: Mapped[facts]


class Compilation(Base):
    """The outcome of one compilation: a cubin with its static facts, or a failure."""

    __tablename__ = "compilations"
    __table_args__ = (
        UniqueConstraint("code_key", "compiler"),
        one_of("status", "ok", "timeout", "error"),
        CheckConstraint("(status = 'ok') = (code_sha256 is not null)", name="ok_has_code"),
        CheckConstraint("(status = 'ok') = (failure is null)", name="failure_has_reason"),
        Index(None, "content_key"),
        Index(None, "code_sha256"),
    )
    id: Mapped[key]
    code_key: Mapped[words]  # hash of library source, signature, constants, hints and architecture
    compiler: Mapped[words]
    arch: Mapped[words]
    status: Mapped[words]
    failure: Mapped[str | None] = mapped_column(Text)
    content_key: Mapped[str | None] = mapped_column(Text)  # hash of the compiler's whole input; names the cubin
    code_sha256: Mapped[str | None] = mapped_column(Text)  # of the machine code alone
    symbol: Mapped[str | None] = mapped_column(Text)
    registers: Mapped[int | None]
    stack_bytes: Mapped[int | None]
    shared_bytes: Mapped[int | None]
    code_bytes: Mapped[int | None]
    cubin_bytes: Mapped[int | None]
    compile_s: Mapped[float]
    cpu_s: Mapped[float]
    tma_loads: Mapped[int | None]
    loads: Mapped[int | None]
    tensor_core_mmas: Mapped[int | None]
    mmas: Mapped[int | None]
    remarks: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    host: Mapped[words]
    created_at: Mapped[born]


class CodeDiff(Base):
    """The difference between the machine code of two cubins."""

    __tablename__ = "code_diffs"
    base_key: Mapped[words] = mapped_column(primary_key=True)  # a content key
    head_key: Mapped[words] = mapped_column(primary_key=True)
    sentence: Mapped[words]  # empty if the code is equal
    # Both lists have only the first few differences.
    changes: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    instructions: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    compared_at: Mapped[born]


class Trial(Base):
    """One config of one sweep, with its time or with the reason why it has no time."""

    # There are a hundred million of these rows, so every byte and every index counts (benchmarks/trial_bytes.py of
    # e7265af counted them).
    __tablename__ = "trials"
    __table_args__ = (
        UniqueConstraint("sweep_id", "config_id"),
        one_of("status", "waiting", "compiled", "not_compiled", "timed", "wrong", "launch_error", "crashed", "hung"),
        CheckConstraint("(status = 'timed') = (median_us is not null)", name="timed_has_time"),
        CheckConstraint(
            "(status in ('not_compiled', 'wrong', 'launch_error', 'crashed', 'hung')) = (failure is not null)",
            name="failure_has_reason",
        ),
        {"postgresql_with": {"fillfactor": 90}},
    )
    id: Mapped[int | None] = mapped_column(BigInteger)  # null in new rows; nothing reads it
    sweep_id: Mapped[int] = mapped_column(ForeignKey("sweeps.id", ondelete="cascade"))
    config_id: Mapped[int] = mapped_column(ForeignKey("configs.id"))
    code_key: Mapped[str | None] = mapped_column(Text)  # null once there is a compilation, which has the key
    compilation_id: Mapped[int | None] = mapped_column(ForeignKey("compilations.id"))
    status: Mapped[words] = mapped_column(server_default="waiting")
    failure: Mapped[str | None] = mapped_column(Text)
    samples_us: Mapped[list[float] | None] = mapped_column(ARRAY(Double))  # few, to choose the winner
    median_us: Mapped[float | None]
    error: Mapped[float | None]  # largest |out - reference| as a share of the reference's largest magnitude
    __mapper_args__ = {"primary_key": (sweep_id, config_id)}  # noqa: RUF012 - SQLAlchemy's own name and type


class Run(Base):
    """One session on one GPU that measured a sweep's winner and its baselines."""

    __tablename__ = "runs"
    __table_args__ = (
        one_of("origin", "measured", "recorded", "simulated"),
        one_of("timer", "cupti", "events", "simulated"),
        CheckConstraint("(origin = 'simulated') = (timer = 'simulated')", name="simulated_has_no_timer"),
        CheckConstraint("(origin = 'recorded') = (recording_id is not null)", name="recorded_has_recording"),
        Index(None, "sweep_id"),
        Index(None, "gpu_uuid", "started_at"),
    )
    id: Mapped[key]
    key: Mapped[words] = mapped_column(unique=True)
    sweep_id: Mapped[int] = mapped_column(ForeignKey("sweeps.id", ondelete="cascade"))
    origin: Mapped[words]
    recording_id: Mapped[int | None] = mapped_column(ForeignKey("recordings.id"))
    host: Mapped[words]
    gpu_uuid: Mapped[words]
    gpu_name: Mapped[words]
    timer: Mapped[words]
    toolchain: Mapped[facts]  # the version of each part
    toolchain_sha256: Mapped[words]
    # Readings of the GPU between groups of rounds.
    telemetry: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    sweep_gpu_s: Mapped[float]
    # The ids of configs that are as fast as the winner, within the measuring error.
    tie: Mapped[list[int]] = mapped_column(ARRAY(BigInteger), server_default=text("'{}'"))
    started_at: Mapped[instant]
    finished_at: Mapped[instant]
    code_compared_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))  # null before CodeDiff


class Measurement(Base):
    """The careful timing of one implementation in a run."""

    __tablename__ = "measurements"
    __table_args__ = (
        UniqueConstraint("run_id", "implementation"),
        one_of("role", "kernel", "baseline"),
        CheckConstraint("role = 'baseline' or config_id is not null", name="kernel_has_config"),
    )
    id: Mapped[key]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="cascade"))
    implementation: Mapped[words]
    role: Mapped[words]
    config_id: Mapped[int | None] = mapped_column(ForeignKey("configs.id"))
    samples_us: Mapped[samples]  # element i is from paired round i of the run
    median_us: Mapped[float]
    low_us: Mapped[float]  # low_us to high_us: the 95 % interval of the median
    high_us: Mapped[float]
    ratio: Mapped[float | None]  # the time of `baseline` divided by this time: over 1 is faster
    ratio_low: Mapped[float | None]
    ratio_high: Mapped[float | None]
    detail: Mapped[facts]  # what the baseline chose, how its inputs were laid out, why it is missing
    baseline: Mapped[str | None] = mapped_column(Text)  # None without a ratio


class Verdict(Base):
    """The verdict on a run. A change, if any, happened after `good_commit_id` and no later than `bad_commit_id`."""

    __tablename__ = "verdicts"
    __table_args__ = (one_of("verdict", "regression", "improvement", "unchanged", "undecided"),)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="cascade"), primary_key=True)
    verdict: Mapped[words]
    change: Mapped[float | None]  # relative change of the time over its history; +0.05 is 5 % slower
    noise: Mapped[float | None]  # relative, one standard deviation
    history_points: Mapped[int]
    policy: Mapped[words]
    reason: Mapped[words]
    judged_at: Mapped[born]
    low: Mapped[float | None]  # low to high: the 95 % interval of the change
    high: Mapped[float | None]
    smallest: Mapped[float | None]  # the smallest change that one night of this series could show
    good_commit_id: Mapped[int | None] = mapped_column(ForeignKey("commits.id"))
    bad_commit_id: Mapped[int | None] = mapped_column(ForeignKey("commits.id"))


class Suspicion(Base):
    """A possible change of a kernel's time that a run showed, with the outcome: confirmed, refuted or undecided."""

    __tablename__ = "suspicions"
    __table_args__ = (
        one_of("state", "open", "confirmed", "refuted", "undecided"),
        CheckConstraint("(state = 'open') = (closed_at is null)", name="open_has_no_end"),
        Index(None, "state"),
        Index(None, "opened_at"),
    )
    id: Mapped[key]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="cascade"), unique=True)
    kernel: Mapped[words]
    problem: Mapped[words]
    gpu_model: Mapped[str] = mapped_column(ForeignKey("gpu_models.slug"))
    good_commit_id: Mapped[int] = mapped_column(ForeignKey("commits.id"))
    bad_commit_id: Mapped[int] = mapped_column(ForeignKey("commits.id"))
    size: Mapped[float | None]  # relative, by nightly times; null if the suspicion has another reason
    state: Mapped[words] = mapped_column(server_default="open")
    reason: Mapped[words]
    launches: Mapped[int] = mapped_column(server_default="0")  # of its replays
    opened_at: Mapped[born]
    closed_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))


class Replay(Base):
    """A comparison of the times of two cubins, with a new process for each launch."""

    __tablename__ = "replays"
    __table_args__ = (
        one_of("origin", "measured", "simulated", "recorded"),
        CheckConstraint("cardinality(good_us) = cardinality(bad_us)", name="both_sides_of_each_launch"),
        CheckConstraint("(failure is null) = (cardinality(good_us) > 0)", name="failure_has_reason"),
        CheckConstraint("(origin = 'recorded') = (recording_id is not null)", name="recorded_has_recording"),
        Index(None, "kernel", "problem", "gpu_model"),
        Index(None, "suspicion_id"),
        Index(None, "at"),
    )
    id: Mapped[key]
    key: Mapped[words] = mapped_column(unique=True)
    suspicion_id: Mapped[int | None] = mapped_column(ForeignKey("suspicions.id", ondelete="set null"))
    kernel: Mapped[words]
    problem: Mapped[words]
    gpu_model: Mapped[str] = mapped_column(ForeignKey("gpu_models.slug"))
    # The difference between the cubins: "commit", "config" or "toolchain". For "node", each of two replays timed both
    # cubins on one node, `host`.
    axis: Mapped[words]
    good_commit_id: Mapped[int] = mapped_column(ForeignKey("commits.id"))
    bad_commit_id: Mapped[int] = mapped_column(ForeignKey("commits.id"))
    good_config_id: Mapped[int | None] = mapped_column(ForeignKey("configs.id"))
    bad_config_id: Mapped[int | None] = mapped_column(ForeignKey("configs.id"))
    good_content_key: Mapped[str | None] = mapped_column(Text)
    bad_content_key: Mapped[str | None] = mapped_column(Text)
    good_code_sha256: Mapped[str | None] = mapped_column(Text)
    bad_code_sha256: Mapped[str | None] = mapped_column(Text)
    good_toolchain: Mapped[str | None] = mapped_column(Text)  # the compiler
    bad_toolchain: Mapped[str | None] = mapped_column(Text)
    good_us: Mapped[samples]  # one median per launch
    bad_us: Mapped[samples]
    failure: Mapped[str | None] = mapped_column(Text)
    host: Mapped[str | None] = mapped_column(Text)
    gpu_uuid: Mapped[str | None] = mapped_column(Text)
    telemetry: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    gpu_s: Mapped[float]
    origin: Mapped[words]
    recording_id: Mapped[int | None] = mapped_column(ForeignKey("recordings.id"))
    at: Mapped[born]
    counters: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))


class Regression(Base):
    """A confirmed change with an owner and a state."""

    __tablename__ = "regressions"
    __table_args__ = (
        one_of("direction", "regression", "improvement"),
        one_of("category", "code", "toolchain", "node", "baseline", "search_space", "unknown"),
        one_of("state", "new", "acknowledged", "expected", "resolved", "reopened"),
        Index(None, "state"),
        Index(None, "repository", "kernel"),
        Index(None, "opened_at"),
    )
    id: Mapped[key]
    key: Mapped[words] = mapped_column(unique=True)  # one per cause
    direction: Mapped[words]
    repository: Mapped[words]
    kernel: Mapped[words]
    category: Mapped[words]
    cause: Mapped[words]  # a sentence
    explanation: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    good_commit_id: Mapped[int] = mapped_column(ForeignKey("commits.id"))  # the change came later
    bad_commit_id: Mapped[int] = mapped_column(ForeignKey("commits.id"))  # the change came no later
    size: Mapped[float]  # of its worst series
    low: Mapped[float]
    high: Mapped[float]
    state: Mapped[words] = mapped_column(server_default="new")
    owner: Mapped[str | None] = mapped_column(Text)
    note: Mapped[str | None] = mapped_column(Text)
    link: Mapped[str | None] = mapped_column(Text)
    opened_at: Mapped[born]
    changed_at: Mapped[born]


class RegressionSeries(Base):
    """A series that a regression changed."""

    __tablename__ = "regression_series"
    __table_args__ = (
        UniqueConstraint("regression_id", "kernel", "problem", "gpu_model", name="uq_regression_series_series"),
        Index(None, "kernel", "problem", "gpu_model"),
        Index(None, "run_id"),
    )
    id: Mapped[key]
    regression_id: Mapped[int] = mapped_column(ForeignKey("regressions.id", ondelete="cascade"))
    kernel: Mapped[words]
    problem: Mapped[words]
    gpu_model: Mapped[str] = mapped_column(ForeignKey("gpu_models.slug"))
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="cascade"))  # whose night confirmed it
    good_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="set null"))
    suspicion_id: Mapped[int | None] = mapped_column(ForeignKey("suspicions.id", ondelete="set null"))
    size: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    recovered_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))


class RegressionEvent(Base):
    """A change of a regression's state, owner or note. `who` is a person or "tilewatch"."""

    __tablename__ = "regression_events"
    __table_args__ = (Index(None, "regression_id"),)
    id: Mapped[key]
    regression_id: Mapped[int] = mapped_column(ForeignKey("regressions.id", ondelete="cascade"))
    at: Mapped[born]
    who: Mapped[words]
    action: Mapped[words]
    from_state: Mapped[str | None] = mapped_column(Text)
    to_state: Mapped[words]
    note: Mapped[str | None] = mapped_column(Text)


class Mark(Base):
    """A person's mark, right or wrong, on a run's verdict or a regression."""

    __tablename__ = "marks"
    __table_args__ = (
        CheckConstraint("(run_id is null) <> (regression_id is null)", name="of_one_thing"),
        UniqueConstraint("run_id", "who"),
        UniqueConstraint("regression_id", "who"),
    )
    id: Mapped[key]
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="cascade"))
    regression_id: Mapped[int | None] = mapped_column(ForeignKey("regressions.id", ondelete="cascade"))
    right: Mapped[bool]
    who: Mapped[words]
    note: Mapped[str | None] = mapped_column(Text)
    at: Mapped[born]


class Alarm(Base):
    """A problem that needs a person and is not a regression. The alarm is open until `closed_at`."""

    __tablename__ = "alarms"
    __table_args__ = (Index(None, "opened_at"),)
    id: Mapped[key]
    key: Mapped[words] = mapped_column(unique=True)
    kind: Mapped[words]
    subject: Mapped[words]
    detail: Mapped[words]
    opened_at: Mapped[born]
    closed_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))


class Message(Base):
    """A message to people, sent once per `key`. One transaction stores a change and the message about the change."""

    __tablename__ = "messages"
    __table_args__ = (
        one_of("state", "queued", "held", "sent", "failed"),
        CheckConstraint("(state = 'sent') = (sent_at is not null)", name="sent_has_time"),
        Index(None, "state"),
        Index(None, "regression_id"),
    )
    id: Mapped[key]
    key: Mapped[words] = mapped_column(unique=True)
    regression_id: Mapped[int | None] = mapped_column(ForeignKey("regressions.id", ondelete="cascade"))
    alarm_id: Mapped[int | None] = mapped_column(ForeignKey("alarms.id", ondelete="cascade"))
    kind: Mapped[words]
    channel: Mapped[words]
    subject: Mapped[words]
    body: Mapped[words]
    state: Mapped[words] = mapped_column(server_default="queued")  # held: until quiet hours end, or for the digest
    attempts: Mapped[int] = mapped_column(server_default="0")
    not_before: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    claimed_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))  # the last time
    sent_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    trouble: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[born]
    check_id: Mapped[int | None] = mapped_column(ForeignKey("checks.id", ondelete="cascade"), index=True)


class PullRequest(Base):
    """A pull request that replaces slow entries of a table of tuned configs."""

    __tablename__ = "pull_requests"
    __table_args__ = (
        one_of("state", "open", "closing", "withdrawn", "merged", "declined"),
        CheckConstraint("(state in ('open', 'closing')) = (closed_at is null)", name="closed_has_time"),
        Index(
            "uq_pull_requests_open",
            "repository",
            "kernel",
            "gpu_model",
            unique=True,
            postgresql_where=text("closed_at is null"),
        ),
    )
    id: Mapped[key]
    repository: Mapped[words]
    kernel: Mapped[words]
    gpu_model: Mapped[str] = mapped_column(ForeignKey("gpu_models.slug"))
    entries: Mapped[list[list[Any]]] = mapped_column(JSONB)  # for each problem, the shipped config and its replacement
    table_sha256: Mapped[words]  # of the file with the table
    number: Mapped[int | None]  # null until the forge has opened it, like `url`
    url: Mapped[str | None] = mapped_column(Text)
    state: Mapped[words] = mapped_column(server_default="open")  # closing: a worker will withdraw it
    opened_at: Mapped[born]
    closed_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))


class Check(Base):
    """A comparison of two commits before a merge. Verdicts on nightly runs do not use the times of checks."""

    __tablename__ = "checks"
    __table_args__ = (
        CheckConstraint("exit_code in (0, 1, 2)", name="exit_code"),
        CheckConstraint("(exit_code is null) = (ended_at is null)", name="ended_has_time"),
        Index(None, "requested_at"),
    )
    id: Mapped[key]
    key: Mapped[words] = mapped_column(unique=True)
    repository: Mapped[words]
    base_sha: Mapped[words]
    head_sha: Mapped[words]
    head_subject: Mapped[words]
    gpu_model: Mapped[str] = mapped_column(ForeignKey("gpu_models.slug"))
    kernel: Mapped[str | None] = mapped_column(Text)
    fail_over: Mapped[float]
    who: Mapped[words]
    changed: Mapped[int | None]  # operators to time, among which the error rate is divided; null until prepared
    exit_code: Mapped[int | None]  # 0: no operator is slower, 1: one is slower, 2: could not tell
    failure: Mapped[str | None] = mapped_column(Text)  # why it has no operators
    requested_at: Mapped[born]
    ended_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))


_WITHOUT_TIMES = ("failed", "neither", "added", "removed")


class CheckOperator(Base):
    """A kernel and problem of a check. `kind` is the outcome; null until all launches have ended."""

    __tablename__ = "check_operators"
    __table_args__ = (
        UniqueConstraint("check_id", "kernel", "problem"),
        one_of("kind", *("identical", "slower", "faster", "not slower", "undecided"), *_WITHOUT_TIMES),
        CheckConstraint("cardinality(base_us) = cardinality(head_us)", name="both_sides_of_each_launch"),
        Index("ix_check_operators_open", "check_id", postgresql_where=text("kind is null")),
    )
    id: Mapped[key]
    check_id: Mapped[int] = mapped_column(ForeignKey("checks.id", ondelete="cascade"))
    kernel: Mapped[words]
    problem: Mapped[words]
    kind: Mapped[str | None] = mapped_column(Text)
    reason: Mapped[words] = mapped_column(server_default="")
    sentence: Mapped[words] = mapped_column(server_default="")  # the outcome for people
    moved: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    config_source: Mapped[words] = mapped_column(server_default="")
    base_config: Mapped[dict[str, int] | None] = mapped_column(JSONB(none_as_null=True))
    head_config: Mapped[dict[str, int] | None] = mapped_column(JSONB(none_as_null=True))
    base_content_key: Mapped[str | None] = mapped_column(Text)
    head_content_key: Mapped[str | None] = mapped_column(Text)
    base_symbol: Mapped[str | None] = mapped_column(Text)
    head_symbol: Mapped[str | None] = mapped_column(Text)
    base_us: Mapped[samples] = mapped_column(server_default=text("'{}'"))  # one median per launch
    head_us: Mapped[samples] = mapped_column(server_default=text("'{}'"))
    change: Mapped[float | None]  # relative: +0.02 is 2 % slower
    low: Mapped[float | None]  # low to high: the 95 % interval; an infinite end is null
    high: Mapped[float | None]
    not_slower_than: Mapped[float | None]
    is_over: Mapped[bool] = mapped_column(server_default=text("false"))  # surely by more than `fail_over`
    is_unsure: Mapped[bool] = mapped_column(server_default=text("false"))  # may be over
    host: Mapped[str | None] = mapped_column(Text)
    gpu_uuid: Mapped[str | None] = mapped_column(Text)
    gpu_s: Mapped[float] = mapped_column(server_default=text("0"))
    ended_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    not_apart: Mapped[words] = mapped_column(server_default="")  # why its host code ran in the timed process


class ToolchainReport(Base):
    """A report on whether the first of `toolchains` may be replaced by one of the other toolchains."""

    __tablename__ = "toolchain_reports"
    id: Mapped[key]
    key: Mapped[words] = mapped_column(unique=True)  # a file is imported once per key
    made_at: Mapped[instant]
    contents: Mapped[facts]  # the file that `tilewatch toolchain compare` writes
    answer: Mapped[facts]  # the verdict, like `markdown`; empty until it is judged
    markdown: Mapped[words]
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="set null"))  # the newest
    toolchains: Mapped[list[str]] = mapped_column(ARRAY(Text))


_OF_COMPARISONS = ("prepare_check", "check", "compile_toolchains", "time_toolchains")


class Job(Base):
    """One unit of queued work. docs/reference/jobs.md explains its states."""

    __tablename__ = "jobs"
    __table_args__ = (
        one_of("kind", "record", "compile", "measure", "judge", "prepare", "confirm", *_OF_COMPARISONS),
        one_of("state", "waiting", "queued", "running", "done", "failed", "poison", "cancelled"),
        CheckConstraint("(state in ('failed', 'poison')) = (failure is not null)", name="failed_has_reason"),
        CheckConstraint("(state = 'running') = (owner is not null)", name="running_has_owner"),
        Index(None, "state", "queue"),
        Index(None, "submission_id"),
    )
    id: Mapped[key]  # all that the message in Redis contains
    key: Mapped[words] = mapped_column(unique=True)
    kind: Mapped[words]
    queue: Mapped[words]
    state: Mapped[words]  # poison: three leases ran out, because it kills its workers
    submission_id: Mapped[int | None] = mapped_column(ForeignKey("submissions.id", ondelete="cascade"))
    sweep_id: Mapped[int | None] = mapped_column(ForeignKey("sweeps.id", ondelete="cascade"))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="cascade"))
    subject: Mapped[words]  # its name on pages
    payload: Mapped[facts]  # the arguments of its step
    done_steps: Mapped[int] = mapped_column(server_default="0")
    total_steps: Mapped[int] = mapped_column(server_default="0")
    attempt: Mapped[int] = mapped_column(server_default="0")
    owner: Mapped[str | None] = mapped_column(Text)
    lease_until: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    sent_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    failure: Mapped[str | None] = mapped_column(Text)  # the first line of the error
    trace: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[born]
    started_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    finished_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    priority: Mapped[int] = mapped_column(server_default="3")  # db/lifecycle/jobs.py, Priority; 3 is a nightly's
    put_offs: Mapped[int] = mapped_column(server_default="0")  # failures that may pass, such as `trouble`
    not_before: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    trouble: Mapped[str | None] = mapped_column(Text)
    check_id: Mapped[int | None] = mapped_column(ForeignKey("checks.id", ondelete="cascade"), index=True)
    log: Mapped[str | None] = mapped_column(Text)  # the last lines of a failed job's log


class Worker(Base):
    """A worker process and its last heartbeat, `seen_at`. A worker whose heartbeat is old counts as gone."""

    __tablename__ = "workers"
    __table_args__ = (one_of("kind", "compile", "gpu", "judge", "tell"),)
    name: Mapped[words] = mapped_column(primary_key=True)
    kind: Mapped[words]
    host: Mapped[words]
    gpu_model: Mapped[str | None] = mapped_column(ForeignKey("gpu_models.slug"))
    gpu_uuid: Mapped[str | None] = mapped_column(Text)
    toolchain: Mapped[facts]
    started_at: Mapped[born]
    seen_at: Mapped[born]
    doing: Mapped[str | None] = mapped_column(Text)
    checks_since: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))  # it did only checks since
    queues: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))


class Action(Base):
    """An action that a person, a code forge or a judge worker requested, with the outcome."""

    __tablename__ = "actions"
    __table_args__ = (
        one_of("action", "cancel", "retry", "nightly", "sweep", "backfill", "check", "bisect", "toolchains"),
        one_of("state", "asked", "done", "refused"),
        CheckConstraint("(state = 'asked') = (said is null)", name="ended_says_how"),
        CheckConstraint("(state = 'asked') = (ended_at is null)", name="ended_has_time"),
        Index(None, "asked_at"),
    )
    id: Mapped[key]
    who: Mapped[words]
    action: Mapped[words]
    wanted: Mapped[facts]  # its arguments
    state: Mapped[words]
    outcome: Mapped[str | None] = mapped_column("said", Text)
    asked_at: Mapped[born]
    ended_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    key: Mapped[str | None] = mapped_column(Text, unique=True)  # of a forge's delivery or a request of the judge


class Token(Base):
    """A token with which a program may read or act."""

    __tablename__ = "tokens"
    __table_args__ = (
        CheckConstraint("rights <@ array['read', 'check']", name="rights"),
        CheckConstraint("(revoked_by is null) = (revoked_at is null)", name="revoked_by_somebody"),
    )
    id: Mapped[key]
    name: Mapped[words] = mapped_column(unique=True)
    sha256: Mapped[words] = mapped_column(unique=True)
    rights: Mapped[list[str]] = mapped_column(ARRAY(Text))
    gpu_s: Mapped[float]  # GPU seconds that its actions may use in 24 hours
    made_by: Mapped[words]
    made_at: Mapped[born]
    revoked_by: Mapped[str | None] = mapped_column(Text)  # the row stays, for its actions
    revoked_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))


class Quarantine(Base):
    """A period in which an ill GPU gets no sweeps. It ends when the GPU passes its tests again."""

    __tablename__ = "quarantines"
    __table_args__ = (
        one_of("kind", "xid", "ecc", "canary"),
        Index("uq_quarantines_open", "gpu_uuid", unique=True, postgresql_where=text("ended_at is null")),
        Index(None, "began_at"),
    )
    id: Mapped[key]
    gpu_uuid: Mapped[words]
    gpu_model: Mapped[str] = mapped_column(ForeignKey("gpu_models.slug"))
    host: Mapped[words]
    kind: Mapped[words]
    reason: Mapped[words]
    evidence: Mapped[facts]  # the readings, and the run that showed the illness, if any
    began_at: Mapped[born]
    canaries: Mapped[int] = mapped_column(server_default="0")  # run since; only the last one may be clean
    canary_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))
    canary_said: Mapped[str | None] = mapped_column(Text)
    ended_at: Mapped[dt.datetime | None] = mapped_column(DateTime(timezone=True))


TOTAL = "total"
"""The kernel's name in a sweep that is a weighted total. The problem's name is then that of the language model."""

RECORDED_HOST_END = " (recorded)"
"""The end of a host's name in compilations from a recording. Code that failed there is still compiled here."""

OPEN_JOB = ("waiting", "queued", "running")
"""The states of a job that has not ended."""

OPEN_REGRESSION = ("new", "acknowledged", "reopened")
"""The states in which a regression waits for a person. In "expected" people have accepted the new level."""

FAILED_JOB = ("failed", "poison")
ENDED_SHORT = ("failed", "poison", "cancelled")
"""The states of a job that ended before its work was done. `retry` queues a job in such a state again."""
