"""Explains a confirmed change by the differences between the runs before and after it. It only computes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewatch.configs import config_text
from tilewatch.db.lifecycle.regression_causes import Category
from tilewatch.db.worker_reads.winners import RunFacts
from tilewatch.mechanisms.find import Mechanism, find_mechanisms, write_mechanisms
from tilewatch.mechanisms.pairs import WinnerFacts

MOVED = 0.003
"""The smallest relative move of a time or a clock that is mentioned. The judge never confirms a smaller change."""

TOO_SMALL = 0.1
"""The kernel counts as unmoved if its move is below this share of its baseline's move, and vice versa. DeepGEMM moved
by 0.3 to 0.5 % while our kernel became 28 to 50 % slower (H200, benchmarks/story.py, 2026-11)."""

WARMER_C = 8
"""The difference in degrees Celsius that counts as normal for a healthy GPU from night to night."""

STATICS = {
    "registers": "registers a thread",
    "stack_bytes": "spilled bytes a thread",
    "shared_bytes": "bytes of shared memory",
    "code_bytes": "bytes of code",
    "tma_loads": "loads by TMA",
    "tensor_core_mmas": "products on Tensor Cores",
}


@dataclass(frozen=True)
class Explanation:
    """A change explained in words: `sentence` names the cause, and `lines` describe the differences."""

    category: Category
    sentence: str
    lines: tuple[str, ...]


def explain_replayed(base: RunFacts, head: RunFacts) -> Explanation:
    """Explains how a commit changed a kernel between two runs. Replays must have confirmed the change before."""
    lines = tuple(_lines(base, head))
    # Only of a slower run: recordings of a history try a different part of the space at each commit (2026-11-22).
    if head.time_us > base.time_us and not _is_in_space(base.params, head.axes):
        won = _config_moves(base, head)
        return Explanation("search_space", f"the search space lost the config that won before: {won}", lines)
    if _is_tie(base, head):
        how = f"the machine code differs, of two configs that are tied: {_config_moves(base, head)}"
    elif base.params != head.params:
        how = f"another config wins: {_config_moves(base, head)}"
    else:
        how = _code_moves(base, head) or "the machine code differs"
    return Explanation("code", f"the commit changed the kernel: {how}", lines)


def describe_differences(base: RunFacts, head: RunFacts) -> str:
    """Describes the differences between two runs, for a change without a confirmed cause."""
    differences = [describe_move(base, head)]
    if (moves := _toolchain_moves(base.toolchain, head.toolchain)) is not None:
        differences.append(f"toolchain {moves}")
    if base.host != head.host:
        differences.append(f"node {base.host} -> {head.host}")
    return "; ".join([*differences, *_gpu_moves(base.telemetry, head.telemetry)])


def describe_move(base: RunFacts, head: RunFacts) -> str:
    """Describes which times moved between two runs: the kernel's, the baseline's, or both."""
    ours = head.time_us / base.time_us - 1.0
    if base.baseline_us is None or head.baseline_us is None:
        return f"the kernel's time moved {ours:+.1%}; there is no baseline to compare with"
    if base.baseline != head.baseline:
        return f"the kernel's time moved {ours:+.1%}; the main baseline is {head.baseline} and was {base.baseline}"
    theirs = head.baseline_us / base.baseline_us - 1.0
    moved = f"the kernel's time moved {ours:+.1%}, the baseline's {theirs:+.1%}"
    if abs(theirs) < max(MOVED, TOO_SMALL * abs(ours)):
        return f"{moved}: ours"
    if abs(ours) < max(MOVED, TOO_SMALL * abs(theirs)):
        return f"{moved}: the baseline"
    return f"{moved}: both"


def _lines(base: RunFacts, head: RunFacts) -> Iterator[str]:
    yield describe_move(base, head)
    if base.params != head.params:
        tied = ", which are tied" if _is_tie(base, head) else ""
        yield f"winner: {_config(base.params, base.axes)} -> {_config(head.params, head.axes)}{tied}"
    if base.axes != head.axes:
        yield f"search space: {_axes_moves(base.axes, head.axes)}"
    of = "" if base.params == head.params else " of the two configs"  # not all of it is the commit's doing
    if (moves := _code_moves(base, head)) is not None:
        yield f"machine code{of}: {moves}"
    elif base.code_sha256 == head.code_sha256:
        yield "machine code: identical"
    if (moves := _toolchain_moves(base.toolchain, head.toolchain)) is not None:
        yield f"toolchain: {moves}; the replay compiled both sides with one"
    if base.host != head.host:
        yield f"node: {base.host} -> {head.host}"
    yield from _gpu_moves(base.telemetry, head.telemetry)
    yield f"mechanism{of}: {write_mechanisms(_find_mechanisms(base, head))}"


def _find_mechanisms(base: RunFacts, head: RunFacts) -> tuple[Mechanism, ...]:
    is_slower = head.time_us > base.time_us
    ratio = max(base.time_us, head.time_us) / min(base.time_us, head.time_us)
    return find_mechanisms(
        _build(base), _build(head), (), is_slower=is_slower, problem=head.problem, arch=head.arch, ratio=ratio
    )


def _build(facts: RunFacts) -> WinnerFacts:
    clock_mhz = _middle(facts.telemetry, "sm_clock_mhz")
    return WinnerFacts(facts.params, facts.statics, facts.counters, clock_mhz, facts.is_swizzled)


def _code_moves(base: RunFacts, head: RunFacts) -> str | None:
    """Describes how two cubins differ in static facts such as registers; None if they are equal."""
    moves = [
        f"{base.statics[name]} -> {head.statics[name]} {what}"
        for name, what in STATICS.items()
        if name in base.statics and name in head.statics and base.statics[name] != head.statics[name]
    ]
    for name in sorted({*base.instructions, *head.instructions}):
        counts = base.instructions.get(name, 0), head.instructions.get(name, 0)
        if counts[0] != counts[1]:
            moves.append(f"{counts[0]} -> {counts[1]} times {name}")
    return ", ".join(moves) or None


def _toolchain_moves(base: Mapping[str, str], head: Mapping[str, str]) -> str | None:
    names = sorted(name for name in {*base, *head} if base.get(name) != head.get(name))
    return ", ".join(f"{name} {base.get(name, 'none')} -> {head.get(name, 'none')}" for name in names) or None


def _axes_moves(base: Mapping[str, tuple[int, ...]], head: Mapping[str, tuple[int, ...]]) -> str:
    moves = []
    for name in dict.fromkeys([*base, *head]):
        gone = [value for value in base.get(name, ()) if value not in head.get(name, ())]
        new = [value for value in head.get(name, ()) if value not in base.get(name, ())]
        if gone:
            moves.append(f"{name} lost {', '.join(map(str, gone))}")
        if new:
            moves.append(f"{name} gained {', '.join(map(str, new))}")
    return "; ".join(moves) or "the same values in another order"


def _gpu_moves(base: tuple[Mapping[str, Any], ...], head: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    """Yields the differences of two runs in clock, temperature and throttling."""
    clocks = _middle(base, "sm_clock_mhz"), _middle(head, "sm_clock_mhz")
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1.0) > MOVED:
        yield f"clock: {clocks[0]:.0f} -> {clocks[1]:.0f} MHz"
    warmth = _middle(base, "temperature_c"), _middle(head, "temperature_c")
    if warmth[0] and warmth[1] and abs(warmth[1] - warmth[0]) > WARMER_C:
        yield f"temperature: {warmth[0]:.0f} -> {warmth[1]:.0f} degrees"
    reasons = [sorted({why for each in readings for why in each.get("throttled") or ()}) for readings in (base, head)]
    is_known = all(any(each.get("throttled") is not None for each in readings) for readings in (base, head))
    if is_known and reasons[0] != reasons[1]:
        yield f"throttling: {', '.join(reasons[0]) or 'none'} -> {', '.join(reasons[1]) or 'none'}"


def _middle(telemetry: tuple[Mapping[str, Any], ...], name: str) -> float | None:
    values = sorted(float(each[name]) for each in telemetry if each.get(name) is not None)
    return values[len(values) // 2] if values else None


def _is_in_space(params: Mapping[str, int], axes: Mapping[str, tuple[int, ...]]) -> bool:
    """Returns whether the search space `axes` contains every parameter value of a config."""
    return params.keys() <= axes.keys() and all(value in axes[name] for name, value in params.items())


def _is_tie(base: RunFacts, head: RunFacts) -> bool:
    """Returns whether the best configs of two runs were equally fast in at least one of the runs."""
    return head.params in base.tied or base.params in head.tied


def _config_moves(base: RunFacts, head: RunFacts) -> str:
    """Describes how the configs of two runs differ, new values first."""
    names = [name for name in {**head.axes, **base.axes} if base.params.get(name) != head.params.get(name)]
    sides = ({name: each.params[name] for name in names if name in each.params} for each in (head, base))
    new, old = map(config_text, sides)
    return f"{new} instead of {old}"


def _config(params: Mapping[str, int], axes: Mapping[str, tuple[int, ...]]) -> str:
    """Describes a config by its parameters, in the order of the search space."""
    names = [*(name for name in axes if name in params), *(name for name in params if name not in axes)]
    return config_text({name: params[name] for name in names})
