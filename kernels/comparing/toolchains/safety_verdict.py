"""Judges whether B is safe: per operator, problem and GPU model, and over all. Launches in, verdicts out. Pure.

Each operator is asked twice. *Frozen*: the config that wins or ships under A, its cubin of A beside its cubin of B.
*Re-tuned*: the winner of A beside the winner of B's own sweep. Either is judged by kernels/comparing/verdict.py with
the operators of this GPU model whose machine code differs as one family: a wrong "slower" or "faster" among all frozen
answers has a probability of FAMILY_ERROR at most, and so has one among all re-tuned answers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tilewatch.configs import config_option
from tilewatch.kernels.comparing.outcome import FINE, OVER, UNSURE, write_verdict
from tilewatch.kernels.comparing.toolchains.pairs import ToolchainPair
from tilewatch.kernels.comparing.verdict import MOST_LAUNCHES, Design, Verdict, judge
from tilewatch.kernels.results import Params

Safety = Literal["safe", "safe if re-tuned", "not safe", "unknown"]
Question = Literal["frozen", "re-tuned"]

NOT_REACHED, TOO_FEW = "other machine code, not reached on the GPU", "too few launches to say anything"
"""Why an answer is unknown for lack of time."""
NOT_TIMED = "other machine code, not timed"

ORDER: tuple[Safety, ...] = ("not safe", "safe if re-tuned", "unknown", "safe")
"""All verdicts, the most urgent first."""


@dataclass(frozen=True)
class Timing:
    """The launches that answer one question on one GPU model. Element i of both times is one fresh process, in us.

    `failure` is a sentence where B's side fails on the GPU (`is_of_b`), or where nothing can be compared.
    """

    kernel: str
    problem: str
    gpu_model: str
    question: Question
    a_config: Params
    b_config: Params
    a_us: tuple[float, ...] = ()
    b_us: tuple[float, ...] = ()
    failure: str | None = None
    is_of_b: bool = False


@dataclass(frozen=True)
class Retuning:
    """The result of B's own sweep. `tried` configs were compiled with B, `compiled` of them did compile; `winner` is
    None where none gives right results or `failure` says why there was no sweep."""

    kernel: str
    problem: str
    gpu_model: str
    tried: int
    compiled: int
    winner: Params | None
    tie: tuple[Params, ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class OperatorSafety:
    """The verdict on one operator on one GPU model, and what it rests on. `gpu_model` is empty for the compiler's
    half alone. `reason` is a sentence."""

    pair: ToolchainPair
    gpu_model: str
    safety: Safety
    reason: str
    frozen: Verdict | None = None
    retuned: Verdict | None = None
    moved_to: Params | None = None
    """B's winner, where it is another config than A's."""


@dataclass(frozen=True)
class Family:
    """The limits of a judgement: `operators` is how many are asked on this GPU model."""

    operators: int
    fail_over: float = 0.0
    most_launches: int = MOST_LAUNCHES

    @property
    def design(self) -> Design:
        return Design(max(1, self.operators), self.most_launches, self.fail_over)


def judge_timing(timing: Timing | None, family: Family) -> Verdict | None:
    """Judges the launches of a pair; None if it was never launched."""
    return judge(timing.a_us, timing.b_us, family.design) if timing is not None and timing.a_us else None


def is_answered(timing: Timing, family: Family) -> bool:
    """Returns whether no further launch is needed to say if B is safe here: surely slower than `fail_over`, or surely
    not. How much faster it is, and whether it is under a smaller limit too, is not asked."""
    verdict = judge_timing(timing, family)
    return timing.failure is not None or (verdict is not None and (verdict.is_final or verdict.is_fine))


def judge_operator(
    pair: ToolchainPair,
    gpu_model: str,
    family: Family,
    *,
    frozen: Timing | None = None,
    retuned: Timing | None = None,
    retuning: Retuning | None = None,
) -> OperatorSafety:
    """Returns the verdict on one operator. Frozen and re-tuned answers are None where the GPU was not asked."""
    before, after = judge_timing(frozen, family), judge_timing(retuned, family)
    winner = None if retuning is None else retuning.winner
    moved_to = winner if winner is not None and winner != pair.a[0].config else None
    safety, reason = _judge_frozen(pair, gpu_model, frozen, before)
    if safety == "not safe":
        safety, after_retuning = _judge_retuned(pair, retuning, retuned, after)
        reason = f"{reason}; {after_retuning}"
    return OperatorSafety(pair, gpu_model, safety, reason, before, after, moved_to)


def _judge_frozen(
    pair: ToolchainPair, gpu_model: str, frozen: Timing | None, verdict: Verdict | None
) -> tuple[Safety, str]:
    """Returns what B does to the config that A uses."""
    if pair.kind == "identical":
        return "safe", "identical machine code"
    if pair.kind in ("compiles now", "compiles with neither"):
        return "safe", pair.kind
    if pair.kind == "not compiled":
        return "unknown", "not compiled: the machine was too busy; run the command again"
    if pair.kind == "stopped compiling":
        return "not safe", f"with B it {pair.moved[0]}"
    if frozen is not None and frozen.failure is not None:
        if frozen.is_of_b:
            return "not safe", f"with B it {frozen.failure}"
        return "unknown", f"could not be compared: {frozen.failure}"
    if verdict is None:
        waits = "; it waits for each of its MMAs now, which costs time" if pair.waits_for_each_mma else ""
        return "unknown", f"{NOT_REACHED if gpu_model else NOT_TIMED}{waits}"
    if math.isinf(verdict.high):
        return "unknown", f"{TOO_FEW}: {verdict.launches}"
    if verdict.is_over:
        return "not safe", write_verdict(verdict)
    return "safe" if verdict.is_fine else "unknown", write_verdict(verdict)


def _judge_retuned(
    pair: ToolchainPair, retuning: Retuning | None, retuned: Timing | None, verdict: Verdict | None
) -> tuple[Safety, str]:
    """Returns what B's own best config is worth where A's config is surely worse under B."""
    if retuning is None:
        return "not safe", "not re-tuned"
    if retuning.winner is None:
        return "not safe", f"re-tuned: {retuning.failure or 'no config gives right results'}"
    if retuning.winner == pair.a[0].config:
        return "not safe", f"re-tuned: the same config wins of {retuning.compiled}"
    moved = f"re-tuned to {config_option(retuning.winner)}"
    if retuned is not None and retuned.failure is not None:
        return "not safe", f"{moved}, which {retuned.failure}"
    if verdict is None:
        return "not safe", f"{moved}: not timed beside A's winner"
    return "safe if re-tuned" if verdict.is_fine else "not safe", f"{moved}: {write_verdict(verdict)}"


def judge_all(operators: Sequence[OperatorSafety]) -> Safety:
    """Returns the most urgent verdict; "safe" where there is nothing to judge."""
    return min((each.safety for each in operators), key=ORDER.index, default="safe")


def safety_exit_code(operators: Sequence[OperatorSafety]) -> int:
    """Returns OVER where something is surely worse under B as it is, re-tuned or not; UNSURE where something is not
    known."""
    overall = judge_all(operators)
    return FINE if overall == "safe" else UNSURE if overall == "unknown" else OVER
