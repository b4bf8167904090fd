"""Verdicts on a toolchain from made launches: frozen, re-tuned, broken, not reached; and all of them together."""

from dataclasses import replace

import pytest

from tilewatch.kernels.comparing.outcome import FINE, OVER, UNSURE
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair, add_compile_times
from tilewatch.kernels.comparing.toolchains.safety_verdict import (
    OperatorSafety,
    Retuning,
    Safety,
    judge_all,
    judge_operator,
    safety_exit_code,
)
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.results import StaticFacts

CONFIG, OTHER = {"tile_m": 64}, {"tile_m": 128}
FACTS = StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ())
A = CompiledSide(CONFIG, "ok", 1.0, 1.0, None, "code of A", "k", "cubin-a", FACTS)
B = CompiledSide(CONFIG, "ok", 1.0, 1.0, None, "code of B", "k", "cubin-b", replace(FACTS, registers=168))
PAIR = ToolchainPair("gemm", "1x1", "sm_90", "recording", (A,), (B,), "new")
DESIGN = Design(operators=1)
WINNER_MOVED = Retuning(20, 19, replace(B, config=OTHER))


def timing(ratio: float, launches: int = 20, **fields: object) -> Timing:
    """Launches that differ by 0.1 % around a ratio of B to A."""
    head_us = tuple(100 * ratio * (1 + 0.0005 * (-1) ** each) for each in range(launches))
    return Timing((100.0,) * launches, head_us, **fields)  # type: ignore[arg-type]


def judge(pair: ToolchainPair = PAIR, gpu_model: str = "h200", **answers: object) -> OperatorSafety:
    return judge_operator(pair, gpu_model, DESIGN, **answers)  # type: ignore[arg-type]


def test_equal_machine_code_is_safe_without_a_launch() -> None:
    assert judge(replace(PAIR, head=(replace(B, code_sha256="code of A"),))).safety == "safe"


@pytest.mark.parametrize(("ratio", "safety"), [(1.0, "safe"), (0.97, "safe"), (1.03, "not safe")])
def test_frozen_launches_decide(ratio: float, safety: Safety) -> None:
    assert judge(frozen=timing(ratio)).safety == safety


def test_worse_frozen_and_equal_when_retuned_is_safe_if_retuned() -> None:
    found = judge(frozen=timing(1.03), retuning=WINNER_MOVED, retuned=timing(1.0))
    assert found.safety == "safe if re-tuned"
    assert found.moved_to == OTHER
    assert "re-tuned to tile_m=128: not slower than" in found.reason
    assert "was not re-tuned" not in found.reason


def test_a_gain_by_re_tuning_is_said_to_be_over_a_config_that_was_not_re_tuned() -> None:
    """Or the reader takes it for a gain of the toolchain."""
    found = judge(frozen=timing(1.03), retuning=WINNER_MOVED, retuned=timing(0.7))
    assert found.safety == "safe if re-tuned"
    assert "launches; the base's config (recording) was not re-tuned" in found.reason


def test_worse_frozen_and_worse_when_retuned_is_not_safe() -> None:
    found = judge(frozen=timing(1.03), retuning=WINNER_MOVED, retuned=timing(1.02))
    assert (found.safety, found.moved_to) == ("not safe", OTHER)


@pytest.mark.parametrize(
    ("space", "drawn", "tried", "chance"),
    [(7456, 12, "20 of 7,456", "99 %"), (44, 6, "20 of 44", "80 %"), (20, 12, "all 20", None), (0, 0, None, None)],
)
def test_a_retuned_answer_says_how_much_of_the_space_was_tried(
    space: int, drawn: int, tried: str | None, chance: str | None
) -> None:
    """A chance is rounded down, so that it is never said to be certain."""
    retuning = replace(WINNER_MOVED, space=space, drawn=drawn)
    certificate = f"; {tried} configs were tried" if tried else ""
    if chance:
        certificate += f": the fastest one outside the short list was not tried, with a chance of {chance}"
    for ratio in (1.0, 1.02):
        reason = judge(frozen=timing(1.03), retuning=retuning, retuned=timing(ratio)).reason
        assert reason.endswith(certificate)
        assert ("tried" in reason) == bool(certificate)


def test_a_sweep_that_failed_may_pass_another_time() -> None:
    assert replace(WINNER_MOVED, side=None, failure="the GPU is busy").may_pass
    assert not WINNER_MOVED.may_pass


def test_undecided_after_retuning_is_no_promise() -> None:
    assert judge(frozen=timing(1.03), retuning=WINNER_MOVED, retuned=timing(1.0, 3)).safety == "not safe"


@pytest.mark.parametrize(
    ("retuning", "reason"),
    [
        (None, "not re-tuned"),
        (replace(WINNER_MOVED, side=B), "the same config wins of 19"),
        (replace(WINNER_MOVED, side=None), "no config gives right results"),
        (WINNER_MOVED, "not timed beside the base's winner"),
    ],
)
def test_without_a_better_config_it_stays_not_safe(retuning: Retuning | None, reason: str) -> None:
    found = judge(frozen=timing(1.03), retuning=retuning)
    assert found.safety == "not safe"
    assert found.reason.endswith(reason)


def test_a_winner_that_fails_beside_the_base_is_not_safe_and_the_failure_is_the_reason() -> None:
    """Also if some launches went well before."""
    for launches in (0, 20):
        wrong = timing(1.0, launches, failure="with the head it gives wrong results")
        found = judge(frozen=timing(1.03), retuning=WINNER_MOVED, retuned=wrong)
        assert found.safety == "not safe"
        assert found.reason.endswith("; re-tuned to tile_m=128: with the head it gives wrong results")


def test_too_few_launches_are_unknown_and_none_are_not_reached() -> None:
    assert judge(frozen=timing(1.03, 5)).reason == "too few launches to say anything: 5"
    assert judge(frozen=timing(1.03, 5)).safety == "unknown"
    assert judge().reason == "other machine code, not reached on the GPU"
    assert judge(gpu_model="").reason == "other machine code, not timed"


def test_what_stops_compiling_is_not_safe_unless_another_config_is_as_fast() -> None:
    broken = replace(PAIR, head=(CompiledSide(CONFIG, "timeout", 15.0, 15.0, "not compiled within 15 s"),))
    found = judge(broken, gpu_model="")
    assert (found.safety, found.reason) == (
        "not safe",
        "with the head it times out: not compiled within 15 s; not re-tuned",
    )
    assert judge(broken, retuning=WINNER_MOVED, retuned=timing(1.0)).safety == "safe if re-tuned"


@pytest.mark.parametrize(("head", "reason"), [(B, "compiles now"), (None, "compiles with neither")])
def test_what_did_not_compile_before_can_only_become_better(head: CompiledSide | None, reason: str) -> None:
    broken = CompiledSide(CONFIG, "error", 1.0, 1.0, "no")
    found = judge(replace(PAIR, base=(broken,), head=(head or broken,)))
    assert (found.safety, found.reason) == ("safe", reason)


def test_a_machine_that_was_too_busy_is_no_fault_of_b() -> None:
    stopped = CompiledSide(CONFIG, "timeout", 120.0, 0.7, "stopped after 120 s", is_final=False)
    found = judge(replace(PAIR, head=(stopped,)))
    assert (found.safety, found.pair.kind) == ("unknown", "not compiled")
    assert found.reason == "not compiled: the machine was too busy; run the command again"


def test_wrong_results_under_b_are_not_safe_and_those_under_a_are_no_answer() -> None:
    wrong = timing(1.0, 0, failure="with the head it gives wrong results: the output is off", is_of_head=True)
    assert judge(frozen=wrong).reason == "with the head it gives wrong results: the output is off; not re-tuned"
    assert judge(frozen=wrong).safety == "not safe"
    of_base = judge(frozen=replace(wrong, is_of_head=False))
    assert of_base.safety == "unknown"
    assert of_base.reason == "could not be compared: with the head it gives wrong results: the output is off"


def test_a_slowdown_within_the_limit_is_safe() -> None:
    assert judge_operator(PAIR, "h200", Design(1, fail_over=0.05), frozen=timing(1.03)).safety == "safe"


@pytest.mark.parametrize(
    ("each", "overall", "code"),
    [
        (["safe", "safe"], "safe", FINE),
        (["safe", "unknown"], "unknown", UNSURE),
        (["unknown", "safe if re-tuned"], "safe if re-tuned", OVER),
        (["not safe", "safe if re-tuned", "unknown", "safe"], "not safe", OVER),
        ([], "unknown", UNSURE),
    ],
)
def test_the_most_urgent_verdict_decides(each: list[Safety], overall: Safety, code: int) -> None:
    judged = [OperatorSafety(PAIR, "h200", safety, "") for safety in each]
    assert (judge_all(judged), safety_exit_code(judged)) == (overall, code)


def test_compile_times_count_what_both_compile() -> None:
    slow = replace(B, cpu_s=1.0, compile_s=3.0)
    failed = CompiledSide(OTHER, "error", 50.0, 50.0, "no")
    pairs = [replace(PAIR, base=(A, replace(A, config=OTHER)), head=(slow, failed))] * 6
    times = add_compile_times(pairs)
    assert (times.configs, times.base_wall_s, times.head_wall_s, times.head_cpu_s) == (6, 6.0, 18.0, 6.0)
    assert times.is_slower
    assert not add_compile_times(pairs[:5]).is_slower
    assert not add_compile_times([PAIR] * 6).is_slower
