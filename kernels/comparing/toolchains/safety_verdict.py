"""Judges whether a head toolchain is safe, per operator, problem and GPU model, and overall.

Two times of each operator are compared with its time under the base. *Frozen*: the time of the base's config under the
head. *Re-tuned*: the time under the head of the winner of a new sweep."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tilewatch.configs import config_option
from tilewatch.kernels.comparing.outcome import FINE, OVER, UNSURE, write_verdict
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.verdict import Design, Verdict
from tilewatch.kernels.results import Params

Safety = Literal["safe", "safe if re-tuned", "not safe", "unknown"]

NOT_REACHED, TOO_FEW = "other machine code, not reached on the GPU", "too few launches to say anything"
"""Reasons why a verdict is unknown for lack of time."""
NOT_TIMED = "other machine code, not timed"

ORDER: tuple[Safety, ...] = ("not safe", "safe if re-tuned", "unknown", "safe")
"""All verdicts, the most urgent first."""


@dataclass(frozen=True)
class Retuning:
    """The result of a sweep with the head toolchain. `side` is the winning config, or None if no config won."""

    tried: int
    compiled: int
    side: CompiledSide | None = None
    tie: tuple[Params, ...] = ()
    failure: str | None = None
    space: int = 0  # all configs; 0 in reports from before 2026-11-28
    drawn: int = 0  # tried configs that were chosen at random

    @property
    def may_pass(self) -> bool:
        """Returns whether the sweep failed and may succeed if repeated."""
        return self.failure is not None

    @property
    def certificate(self) -> str:
        """Returns the end of a sentence that says how much of the search space was tried, or "" if unknown."""
        untried = self.space - self.tried
        if untried <= 0:
            return f"; all {self.space:,} configs were tried" if self.space else ""
        chance = 100 * untried // (untried + self.drawn)
        tried = f"; {self.tried:,} of {self.space:,} configs were tried"
        return f"{tried}: the fastest one outside the short list was not tried, with a chance of {chance} %"

    @property
    def winner(self) -> Params | None:
        return None if self.side is None else self.side.config


@dataclass(frozen=True)
class OperatorSafety:
    """The verdict on an operator, its evidence and the reason. `gpu_model` is empty if nothing was timed."""

    pair: ToolchainPair
    gpu_model: str
    safety: Safety
    reason: str
    frozen: Verdict | None = None
    retuned: Verdict | None = None
    moved_to: Params | None = None
    """The head's winner, if its config differs from the base's."""


def is_answered(verdict: Verdict) -> bool:
    """Returns whether the launches show if the operator is slower than allowed."""
    return verdict.is_final or verdict.is_fine


def judge_operator(
    pair: ToolchainPair,
    gpu_model: str,
    design: Design,
    *,
    frozen: Timing | None = None,
    retuned: Timing | None = None,
    retuning: Retuning | None = None,
) -> OperatorSafety:
    """Returns the verdict on an operator. `frozen` is a timing of the base's config, `retuned` of the head's winner."""
    of_frozen, of_retuned = (None if each is None else each.judge(design) for each in (frozen, retuned))
    winner = None if retuning is None else retuning.winner
    moved_to = winner if winner is not None and winner != pair.base[0].config else None
    safety, reason = _judge_frozen(pair, gpu_model, frozen, of_frozen)
    if safety == "not safe":
        safety, after_retuning = _judge_retuned(pair, retuning, retuned, of_retuned)
        reason = f"{reason}; {after_retuning}{'' if retuning is None else retuning.certificate}"
    return OperatorSafety(pair, gpu_model, safety, reason, of_frozen, of_retuned, moved_to)


def _judge_frozen(
    pair: ToolchainPair, gpu_model: str, frozen: Timing | None, verdict: Verdict | None
) -> tuple[Safety, str]:
    """Returns the verdict on the base's config under the head, and the reason."""
    if pair.kind == "identical":
        return "safe", "identical machine code"
    if pair.kind in ("compiles now", "compiles with neither"):
        return "safe", pair.kind
    if pair.kind == "not compiled":
        return "unknown", "not compiled: the machine was too busy; run the command again"
    if pair.kind == "stopped compiling":
        return "not safe", f"with the head it {pair.moved[0]}"
    if frozen is not None and frozen.failure is not None:
        if frozen.is_of_head:
            return "not safe", frozen.failure
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
    """Returns the verdict on the winner of the sweep with the head, and the reason."""
    if retuning is None:
        return "not safe", "not re-tuned"
    if retuning.winner is None:
        return "not safe", f"re-tuned: {retuning.failure or 'no config gives right results'}"
    if retuning.winner == pair.base[0].config:
        return "not safe", f"re-tuned: the same config wins of {retuning.compiled}"
    moved = f"re-tuned to {config_option(retuning.winner)}"
    if retuned is not None and retuned.failure is not None:
        return "not safe", f"{moved}: {retuned.failure}"
    if verdict is None:
        return "not safe", f"{moved}: not timed beside the base's winner"
    base = f"; the base's config ({pair.config_source}) was not re-tuned" if verdict.kind == "faster" else ""
    return "safe if re-tuned" if verdict.is_fine else "not safe", f"{moved}: {write_verdict(verdict)}{base}"


def judge_all(operators: Sequence[OperatorSafety]) -> Safety:
    """Returns the most urgent verdict, or "unknown" if there are no operators."""
    return min((each.safety for each in operators), key=ORDER.index, default="unknown")


def safety_exit_code(operators: Sequence[OperatorSafety]) -> int:
    """Returns the exit code: OVER if an operator is surely slower than allowed, UNSURE if unknown, else FINE."""
    overall = judge_all(operators)
    return FINE if overall == "safe" else UNSURE if overall == "unknown" else OVER
