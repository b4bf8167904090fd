"""Defines the payload of a replay's jobs, which time two versions of a kernel side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from tilewatch.db.worker_reads.judging import Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.text import short_sha

Axis = Literal["commit", "toolchain", "node", "config"]
"""Names what differs between the two sides of a replay, or between the two GPUs that replay them."""


@dataclass(frozen=True)
class MachineCode:
    """A cubin: its key in the store, entry point, code hash and compiler."""

    content_key: str
    symbol: str
    code_sha256: str
    compiler: str


@dataclass(frozen=True)
class BuildSide:
    """A version in a replay. `code` is None before compiling. If `measured` is False, the config is a guess."""

    commit_id: int
    sha: str
    config_id: int
    params: Mapping[str, Any]
    measured: bool
    code: MachineCode | None

    @classmethod
    def of_winner(cls, won: Winner, commit_id: int, sha: str, *, measured: bool = True, compiled: bool = True) -> Self:
        """Makes a version to replay from a best config and a commit, with the stored cubin if `compiled`."""
        code = MachineCode(won.content_key, won.symbol, won.code_sha256, won.compiler) if compiled else None
        return cls(commit_id, sha, won.config_id, won.params, measured, code)


@dataclass(frozen=True)
class BuildQuestion:
    """A request for `launches` more launches of two versions, after `start` stored launches. If `gpu_uuid` is None, any
    GPU of the model may be used."""

    key: str
    kernel: str
    problem: str
    gpu_model: str
    arch: str
    origin: str
    axis: Axis
    start: int
    launches: int
    base: BuildSide
    head: BuildSide
    gpu_uuid: str | None = None
    host: str | None = None

    @classmethod
    def of(
        cls,
        scope: Scope,
        about: tuple[str, str],
        ends: str,
        sides: tuple[BuildSide, BuildSide],
        *,
        launches: int,
        axis: Axis = "commit",
        start: int = 0,
        gpu_uuid: str | None = None,
        host: str | None = None,
    ) -> Self:
        """Makes a request for a replay. `about` is (kernel, problem), and `ends` identifies the two versions."""
        key = question_key(scope, *about, ends, start, launches)
        place = (scope.gpu_model, scope.arch, scope.origin)
        return cls(key, *about, *place, axis, start, launches, *sides, gpu_uuid, host)

    @property
    def is_compiled(self) -> bool:
        return self.base.code is not None and self.head.code is not None

    @property
    def subject(self) -> str:
        """Describes the replay in one line for people."""
        where = self.gpu_model if self.host is None else f"{self.gpu_model} of {self.host}"
        base, head = short_sha(self.base.sha), short_sha(self.head.sha)
        return f"{self.kernel} {self.problem} on {where}: replay {base} against {head}"


def question_key(scope: Scope, kernel: str, problem: str, ends: str, start: int, launches: int) -> str:
    """Returns the key of a wanted replay. `ends` names two commits or two runs."""
    return f"{scope.repository}:{scope.gpu_model}:{scope.origin}:{kernel}:{problem}:{ends}:{start}+{launches}"


@dataclass(frozen=True)
class ReplayJob:
    """A requested replay with its job's data. `run_id` and `submission_id` identify the night that waits for it."""

    question: BuildQuestion
    repository: str
    library: str
    run_id: int
    submission_id: int
    suspicion_id: int | None = None
