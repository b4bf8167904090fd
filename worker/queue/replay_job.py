"""The payload of the jobs "prepare" and "confirm": one question of the judge, and the night that asked it.

The JSON keys are older than these classes, and stay, because jobs of an earlier release may be queued.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from tilewatch.db.worker_reads.judging import Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.text import short_sha

Axis = Literal["commit", "toolchain", "node"]
"""What differs between the two sides, or between the two GPUs that replay them."""


@dataclass(frozen=True)
class MachineCode:
    """A cubin: its key in the store, its entry point, the hash of its code, and the compiler that made it."""

    content_key: str
    symbol: str
    code_sha256: str
    compiler: str


NOT_COMPILED: dict[str, None] = dict.fromkeys(MachineCode.__dataclass_fields__)


@dataclass(frozen=True)
class BuildSide:
    """One side of a question: a commit and a config. `code` is None until the prepare step has compiled it. `measured`
    is False if no night measured the commit, so that the config is a guess."""

    commit_id: int
    sha: str
    config_id: int
    params: Mapping[str, int]
    measured: bool
    code: MachineCode | None

    @classmethod
    def of_winner(cls, won: Winner, commit_id: int, sha: str, *, measured: bool = True, compiled: bool = True) -> Self:
        """Makes a side from a winner's config at a commit. With `compiled`, it has the winner's machine code; otherwise
        the prepare step compiles it."""
        code = MachineCode(won.content_key, won.symbol, won.code_sha256, won.compiler) if compiled else None
        return cls(commit_id, sha, won.config_id, won.params, measured, code)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        code = MachineCode(**{name: payload[name] for name in NOT_COMPILED}) if payload["content_key"] else None
        return cls(
            payload["commit_id"], payload["sha"], payload["config_id"], payload["params"], payload["measured"], code
        )

    def to_payload(self) -> dict[str, Any]:
        return {
            "commit_id": self.commit_id,
            "sha": self.sha,
            "config_id": self.config_id,
            "params": dict(self.params),
            "measured": self.measured,
            **(NOT_COMPILED if self.code is None else asdict(self.code)),
        }


@dataclass(frozen=True)
class BuildQuestion:
    """A request to replay two sides, for `launches` launches after the `start` launches that are stored.

    `key` is the question's name, so that a question asked twice has one job. `gpu_uuid` and `host` name the only GPU
    that may answer; None if any GPU of the model may.
    """

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

    @property
    def is_compiled(self) -> bool:
        return self.base.code is not None and self.head.code is not None

    @property
    def subject(self) -> str:
        """Returns the question in one line for people."""
        where = self.gpu_model if self.host is None else f"{self.gpu_model} of {self.host}"
        base, head = short_sha(self.base.sha), short_sha(self.head.sha)
        return f"{self.kernel} {self.problem} on {where}: replay {base} against {head}"


def question_key(scope: Scope, kernel: str, problem: str, ends: str, start: int, launches: int) -> str:
    """Returns the key of a question; equal questions have equal keys. `ends` names two commits or two runs."""
    return f"{scope.repository}:{scope.gpu_model}:{scope.origin}:{kernel}:{problem}:{ends}:{start}+{launches}"


@dataclass(frozen=True)
class ReplayJob:
    """A question with what its job needs.

    `library` is the library's folder in the repository. `run_id` and `submission_id` name the night that waits for the
    answer. `round` holds the keys of all questions that were asked together with this one.
    """

    question: BuildQuestion
    repository: str
    library: str
    run_id: int
    submission_id: int
    suspicion_id: int | None
    round: tuple[str, ...]

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        question = BuildQuestion(
            **{name: payload[name] for name in _ALIKE},
            base=BuildSide.from_payload(payload["good"]),
            head=BuildSide.from_payload(payload["bad"]),
            gpu_uuid=payload.get("board"),
            host=payload.get("host"),
        )
        return cls(
            question,
            payload["repository"],
            payload["library"],
            payload["run_id"],
            payload["submission_id"],
            payload["suspicion_id"],
            tuple(payload["round"]),
        )

    def to_payload(self) -> dict[str, Any]:
        question = self.question
        where = {} if question.gpu_uuid is None else {"board": question.gpu_uuid, "host": question.host}
        return {
            **{name: getattr(question, name) for name in _ALIKE},
            **where,
            "good": question.base.to_payload(),
            "bad": question.head.to_payload(),
            "repository": self.repository,
            "library": self.library,
            "run_id": self.run_id,
            "submission_id": self.submission_id,
            "suspicion_id": self.suspicion_id,
            "round": list(self.round),
        }


_ALIKE = ("key", "kernel", "problem", "gpu_model", "arch", "origin", "axis", "start", "launches")
"""Fields of a question that are keys of the payload."""
