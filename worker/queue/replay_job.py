"""Defines the payload of the jobs "prepare" and "confirm": one question of the judge, and the night that asked it."""

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
    """A cubin: its key in the store, its entry point, the hash of its machine code, and the compiler that made it."""

    content_key: str
    symbol: str
    code_sha256: str
    compiler: str


@dataclass(frozen=True)
class BuildSide:
    """One side of a question: a commit and a config. `code` is None until the prepare step has compiled the config. If
    no night measured the commit, `measured` is False and the config is a guess."""

    commit_id: int
    sha: str
    config_id: int
    params: Mapping[str, Any]
    measured: bool
    code: MachineCode | None

    @classmethod
    def of_winner(cls, won: Winner, commit_id: int, sha: str, *, measured: bool = True, compiled: bool = True) -> Self:
        """Returns the side with a winner's config at a commit. If `compiled` is False, the prepare step compiles it."""
        code = MachineCode(won.content_key, won.symbol, won.code_sha256, won.compiler) if compiled else None
        return cls(commit_id, sha, won.config_id, won.params, measured, code)


@dataclass(frozen=True)
class BuildQuestion:
    """A request to replay two sides, for `launches` launches after the first `start`, which are stored already. Equal
    questions have the same `key`, so that one replay answers them. `gpu_uuid` and `host` name the only GPU that may run
    the replay. Both are None if any GPU of the model may run it."""

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
        """Returns a question in a scope. `about` is a kernel and a problem. `ends` names two commits or two runs."""
        key = question_key(scope, *about, ends, start, launches)
        place = (scope.gpu_model, scope.arch, scope.origin)
        return cls(key, *about, *place, axis, start, launches, *sides, gpu_uuid, host)

    @property
    def is_compiled(self) -> bool:
        return self.base.code is not None and self.head.code is not None

    @property
    def subject(self) -> str:
        """Describes the question in one line for people."""
        where = self.gpu_model if self.host is None else f"{self.gpu_model} of {self.host}"
        base, head = short_sha(self.base.sha), short_sha(self.head.sha)
        return f"{self.kernel} {self.problem} on {where}: replay {base} against {head}"


def question_key(scope: Scope, kernel: str, problem: str, ends: str, start: int, launches: int) -> str:
    """Returns the key of a question. Equal questions have equal keys. `ends` names two commits or two runs."""
    return f"{scope.repository}:{scope.gpu_model}:{scope.origin}:{kernel}:{problem}:{ends}:{start}+{launches}"


@dataclass(frozen=True)
class ReplayJob:
    """A question with the data that its job needs. `library` is the library's folder in the repository. `run_id` and
    `submission_id` name the night that waits for the result."""

    question: BuildQuestion
    repository: str
    library: str
    run_id: int
    submission_id: int
    suspicion_id: int | None = None
