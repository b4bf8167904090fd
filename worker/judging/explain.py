"""Explains a change: compares the facts of the last good run and of the first bad one, and names a cause. Pure.

A replay has shown that the change is real. Facts can show no more than what moved with it, so each line says what
differs and by how much, and the cause is one that a replay can tell apart: the commit's code, its search space, the
toolchain, the node, the baseline.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewatch.configs import config_text
from tilewatch.db.lifecycle.regression_causes import Category
from tilewatch.db.worker_reads.winners import RunFacts
from tilewatch.mechanisms.find import Mechanism, find_mechanisms, write_mechanisms
from tilewatch.mechanisms.pairs import WinnerFacts

MOVED = 0.003
"""A time or a clock that moved by less did not move: the smallest change that the judge believes."""

TOO_SMALL = 0.1
"""A move this much smaller than the other's explains nothing of it: on an H200 DeepGEMM lay 0.3 to 0.5 % elsewhere in
runs between which our kernel had become 28 to 50 % slower (benchmarks/story.py, 2026-11)."""

WARMER_C = 8
"""Degrees that a GPU's temperature differs by from night to night without anything being wrong."""

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
    """Why a series changed, in words. `sentence` names the cause; each of `lines` is one fact that differs, most
    telling first."""

    category: Category
    sentence: str
    lines: tuple[str, ...]


def explain_replayed(base: RunFacts, head: RunFacts) -> Explanation:
    """Explains two commits whose cubins differ in a replay: the commit is the cause, and this is what it changed."""
    lines = tuple(_lines(base, head))
    # A lost config makes nothing faster; recordings of a history try a part of the space at each commit (2026-11-22).
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


def other_differences(base: RunFacts, head: RunFacts) -> str:
    """Names what may have moved a time that no replay blames on the commit."""
    differences = [whose(base, head)]
    if (moves := _toolchain_moves(base.toolchain, head.toolchain)) is not None:
        differences.append(f"toolchain {moves}")
    if base.host != head.host:
        differences.append(f"node {base.host} -> {head.host}")
    return "; ".join([*differences, *_gpu_moves(base.telemetry, head.telemetry)])


def whose(base: RunFacts, head: RunFacts) -> str:
    """Says what moved from run to run: our kernel, the baseline, or both."""
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
    yield whose(base, head)
    if base.params != head.params:
        tied = ", which are tied" if _is_tie(base, head) else ""
        yield f"winner: {_config(base.params, base.axes)} -> {_config(head.params, head.axes)}{tied}"
    if base.axes != head.axes:
        yield f"search space: {_axes_moves(base.axes, head.axes)}"
    if (moves := _code_moves(base, head)) is not None:
        yield f"machine code: {moves}"
    elif base.code_sha256 == head.code_sha256:
        yield "machine code: identical"
    if (moves := _toolchain_moves(base.toolchain, head.toolchain)) is not None:
        yield f"toolchain: {moves}; the replay compiled both sides with one"
    if base.host != head.host:
        yield f"node: {base.host} -> {head.host}"
    yield from _gpu_moves(base.telemetry, head.telemetry)
    yield f"mechanism: {write_mechanisms(_find_mechanisms(base, head))}"


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
    """Writes which static facts differ between two cubins; None if none does."""
    before, after = base.statics, head.statics
    moves = [
        f"{before[name]} -> {after[name]} {what}"
        for name, what in STATICS.items()
        if name in before and name in after and before[name] != after[name]
    ]
    for name in sorted({*base.instructions, *head.instructions}):
        counts = base.instructions.get(name, 0), head.instructions.get(name, 0)
        if counts[0] != counts[1]:
            moves.append(f"{counts[0]} -> {counts[1]} times {name}")
    return ", ".join(moves) or None


def _toolchain_moves(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return ", ".join(f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}" for name in names) or None


def _axes_moves(before: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]]) -> str:
    moves = []
    for name in dict.fromkeys([*before, *after]):
        gone = [value for value in before.get(name, ()) if value not in after.get(name, ())]
        new = [value for value in after.get(name, ()) if value not in before.get(name, ())]
        if gone:
            moves.append(f"{name} lost {', '.join(map(str, gone))}")
        if new:
            moves.append(f"{name} gained {', '.join(map(str, new))}")
    return "; ".join(moves) or "the same values in another order"


def _gpu_moves(before: tuple[Mapping[str, Any], ...], after: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    """Clocks, temperature and throttling, which make a GPU slow without any change of code."""
    clocks = _middle(before, "sm_clock_mhz"), _middle(after, "sm_clock_mhz")
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1.0) > MOVED:
        yield f"clock: {clocks[0]:.0f} -> {clocks[1]:.0f} MHz"
    warmth = _middle(before, "temperature_c"), _middle(after, "temperature_c")
    if warmth[0] and warmth[1] and abs(warmth[1] - warmth[0]) > WARMER_C:
        yield f"temperature: {warmth[0]:.0f} -> {warmth[1]:.0f} degrees"
    reasons = [
        sorted({why for each in readings for why in each.get("throttled") or ()}) for readings in (before, after)
    ]
    if reasons[0] != reasons[1]:
        yield f"throttling: {', '.join(reasons[0]) or 'none'} -> {', '.join(reasons[1]) or 'none'}"


def _middle(telemetry: tuple[Mapping[str, Any], ...], name: str) -> float | None:
    values = sorted(float(each[name]) for each in telemetry if each.get(name) is not None)
    return values[len(values) // 2] if values else None


def _is_in_space(params: Mapping[str, int], axes: Mapping[str, tuple[int, ...]]) -> bool:
    return set(params) == set(axes) and all(value in axes[name] for name, value in params.items())


def _is_tie(base: RunFacts, head: RunFacts) -> bool:
    """Returns True where another config won, and in one of the two runs both were as fast as each other: which of them
    wins is then chance."""
    return head.params in base.tied or base.params in head.tied


def _config_moves(base: RunFacts, head: RunFacts) -> str:
    """Returns the parameters in which two configs differ, the new values first."""
    names = [name for name in {**head.axes, **base.axes} if base.params.get(name) != head.params.get(name)]
    sides = ({name: each.params[name] for name in names if name in each.params} for each in (head, base))
    new, old = map(config_text, sides)
    return f"{new} instead of {old}"


def _config(params: Mapping[str, int], axes: Mapping[str, tuple[int, ...]]) -> str:
    """Writes a config in the order of the search space, which the database does not keep."""
    names = [*(name for name in axes if name in params), *(name for name in params if name not in axes)]
    return config_text({name: params[name] for name in names})
