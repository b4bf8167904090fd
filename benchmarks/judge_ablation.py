"""Takes each number and each part of the judge away in turn: what does it cost in made worlds?

    nice python -m benchmarks.judge_ablation [--worlds 1] [--seed 5000] [--nights 100] [--only NAME] [--out | --halves]

A part (PARTS) is replaced by the simplest thing that could stand there. A number of the policy is set to where it has
no effect, if there is such a value (OFF), and is halved and doubled. Each line scores the same worlds of the mix and of
"life: all of it" together, without and with the machine code known. The nights of a world are the same on every line.
Nothing here has a bound. Seeds from 5000 are for tuning; benchmarks/judge.py reports on others.
"""

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import cache
from math import inf
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import bounds
from benchmarks.judge import KINDS, LIFE, PlayedWorld, play, score_worlds
from tilewatch.worker.detection import nights, node_noise, scope_state, step_scan
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Floats, read_level

SCORED = [kind for kind in (*KINDS, *LIFE) if kind.name in ("mix of everything", "life: all of it")]

OFF: dict[str, float] = {
    "clip_deviations": 1e6,
    "nightly_log_odds": 1e6,
    "believed_deviations": 0.0,
    "least_launches": 1,
    "most_launches": 10**6,
    "sizing_launches": 1,
    "budget": 1e6,
}


def _nothing(*_: Any) -> None:
    return None


def _no_shared(levels: Floats, _learned: Any, _kernels: Any, of: Floats) -> Floats:
    return np.zeros((len(levels), len(of)))


def _no_factors(scaled: Floats, _nights: int) -> Floats:
    return np.empty((scaled.shape[1], 0))


def _no_shares(moves: Floats, _node_moves: Floats) -> Floats:
    return np.ones(moves.shape[1])


def _no_common_moves(*of_nights_and_nodes: Floats) -> tuple[Floats, Floats]:
    series = len(of_nights_and_nodes[-1])
    return np.zeros(series), np.full(series, inf)


PARTS: dict[str, tuple[Any, str, Any]] = {
    "the node's part subtracted": (node_noise, "estimate_shared", _no_shared),
    "several factors of a node": (node_noise, "_factors", _no_factors),
    "a learned share of the node's part": (node_noise, "learn_shares", _no_shares),
    "siblings of a confirmed change": (scope_state.ScopeState, "sibling_checks", lambda *_: []),
    "history across a new machine": (step_scan, "_common_moves", _no_common_moves),
    "a check after a new machine": (scope_state.ScopeState, "_plan_checks", _nothing),
    "answers about other series' new code": (scope_state.ScopeState, "note_code_answer", _nothing),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=1, help="worlds of each kind, without and with code")
    parser.add_argument("--seed", type=int, default=5000, help="the first world's seed")
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--only", default="", help="only numbers and parts whose name holds this")
    parser.add_argument("--out", action="store_true", help="only parts and numbers taken out")
    parser.add_argument("--halves", action="store_true", help="only numbers halved and doubled")
    options = parser.parse_args()
    print(bounds.describe_run())
    # Launches of a night are read alike on each line.
    with patch.object(nights, "read_level", cache(read_level)):
        print(f"{'without code:':>58}{'with code:':>43}")
        titles = "".join(f"{each:>8}" for each in ("prec.", "recall", "F1", "p90", "replays"))
        print(f"{'':42}{titles}   {titles}", flush=True)
        for name, policy, without in _list_judges(options):
            with without:
                scores = [_score(policy, code, options) for code in (False, True)]
            print(f"{name:42}{'   '.join(scores)}", flush=True)


def _list_judges(options: argparse.Namespace) -> Iterator[tuple[str, Policy, AbstractContextManager[Any]]]:
    usual = Policy()
    yield f"the judge as it is ({usual.name})", usual, nullcontext()
    numbers = {name: value for name, value in asdict(usual).items() if name != "name" and options.only in name}
    if not options.halves:
        for name, patched in PARTS.items():
            if options.only in name:
                yield f"without {name}", usual, patch.object(*patched)
        for name in [each for each in numbers if each in OFF]:
            yield f"{name} out", replace(usual, **dict[str, Any]({name: OFF[name]})), nullcontext()
    if not options.out:
        for name, value in numbers.items():
            for other in (value / 2, value * 2):
                changed: dict[str, Any] = {name: max(1, int(other)) if isinstance(value, int) else other}
                yield f"{name} {changed[name]:g}", replace(usual, **changed), nullcontext()


def _score(policy: Policy, code: bool, options: argparse.Namespace) -> str:
    seeds = range(options.seed, options.seed + options.worlds)
    worlds: list[PlayedWorld] = [play(kind, seed, code, policy, options.nights) for kind in SCORED for seed in seeds]
    score = score_worlds(worlds)
    numbers = (score.precision, score.recall, score.exact_f1, score.delay_p90, score.replays)
    return "".join("       -" if number is None else f"{number:8.3f}" for number in numbers)


if __name__ == "__main__":
    main()
