"""The judge's made worlds: what a replay of them answers."""

from dataclasses import replace

from benchmarks.judge import KINDS, make_world
from benchmarks.judge_worlds import Kind

ALL_CHANGE = replace(next(kind for kind in KINDS if kind.level == "quiet"), changed=1.0)


def replay(kind: Kind, builds: tuple[int, int]) -> list[tuple[float, ...]]:
    world = make_world(kind, 5000, code=False, nights=60)
    return world.replay(3, world.changes[0].series, builds, 8)


def test_a_build_before_the_first_has_the_code_of_the_first() -> None:
    """Catches a build of -1 that is taken from the end, where every change has been made."""
    assert replay(ALL_CHANGE, (-1, 3)) == replay(ALL_CHANGE, (0, 3)) != replay(ALL_CHANGE, (59, 3))
