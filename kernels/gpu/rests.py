"""Says how many rounds come at once, and for how long the GPU rests after them."""

BURST_US = 8_000.0
REST_S = 0.04
"""Launches come in bursts with rests between them. Without rests an H200 meets its power cap after some 50 ms of FP8
products, and the same cubin goes from 174 us to 199 us while DeepGEMM goes from 150 us to 156 us (2026-11): the ratio
would depend on how long the GPU had been busy. With rests the clock stays where it is."""


def count_at_once(round_us: float) -> int:
    """Returns how many rounds of this length are a burst."""
    return max(1, int(BURST_US / round_us))


def needs_rest(burst_us: float) -> bool:
    """Says whether the GPU rests after launches of this length."""
    return burst_us > BURST_US / 4


def find_rests_us(rounds: int, round_us: float) -> float:
    """Returns for how long the GPU rests in so many rounds of this length."""
    at_once = count_at_once(round_us)
    return rounds // at_once * REST_S * 1e6 if needs_rest(at_once * round_us) else 0.0
