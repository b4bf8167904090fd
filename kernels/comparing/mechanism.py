"""Converts the static facts and code differences of two compiled sides to the input of tilewatch.mechanisms.find."""

from dataclasses import asdict

from tilewatch.kernels.results import Params, StaticFacts
from tilewatch.mechanisms.pairs import WinnerFacts


def read_winner_facts(config: Params, facts: StaticFacts) -> WinnerFacts:
    return WinnerFacts(config, {name: value for name, value in asdict(facts).items() if isinstance(value, int)})
