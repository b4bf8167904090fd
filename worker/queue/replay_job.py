"""The payload of the jobs "prepare" and "confirm": one question of the judge, and the night that asked it.

The JSON keys are older than these classes and stay as they are: a job may have been queued by the release before.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from tilewatch.db.worker_reads.judging import Scope
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.text import short_sha

Axis = Literal["commit", "toolchain", "node"]
"""The thing that differs between the two sides, or between the two GPUs that replay them."""


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
    """One build of a question. `code` is None where the prepare step is still to compile it; `measured` is False for a
    commit that no night measured, whose config is a guess."""

    commit_id: int
    sha: str
    config_id: int
    params: Mapping[str, int]
    measured: bool
    code: MachineCode | None

    @classmethod
    def of_winner(cls, won: Winner, commit_id: int, sha: str, *, measured: bool = True, compiled: bool = True) -> Self:
        """Makes the side of a config that won, at this commit, with the code that ran unless it is to be `compiled`
        again."""
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
    """Replay these two builds: `launches` launches, after the `start` that are on record.

    `key` names the question for ever, so one that is asked twice is one job. `gpu_uuid` and `host` name the one GPU
    that may answer; None for any GPU of the model.
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
        """Returns the line that people read."""
        where = self.gpu_model if self.host is None else f"{self.gpu_model} of {self.host}"
        base, head = short_sha(self.base.sha), short_sha(self.head.sha)
        return f"{self.kernel} {self.problem} on {where}: replay {base} against {head}"


def question_key(scope: Scope, kernel: str, problem: str, ends: str, start: int, launches: int) -> str:
    """Names a question, so that an equal one is found. `ends` says what is replayed: two commits, or two runs."""
    return f"{scope.repository}:{scope.gpu_model}:{scope.origin}:{kernel}:{problem}:{ends}:{start}+{launches}"


@dataclass(frozen=True)
class ReplayJob:
    """A question with what its job needs: the repository with its library's folder, the night that waits for the answer
    (one of its runs, and its submission), its suspicion, and `round`, the keys of all questions that are asked together
    with it."""

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
