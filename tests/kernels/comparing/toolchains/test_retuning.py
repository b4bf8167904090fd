"""Sweeps with B: its configs are compiled with B, those that compile are raced, and the winner is kept for the GPU."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.comparing.toolchains.compile_sides import ComparedSide, Workplace
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.retuning import RetunedSpace, retune_each
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.pair_bench import PairBench
from tilewatch.kernels.results import Cubin, Params
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Toolchain

CONFIGS = ({"width": 64}, {"width": 128}, {"width": 96})
"""The last one does not compile."""


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    library = tiny_repository.make(tmp_path / "watched") / "library"
    installed = Toolchain(INSTALLED, None)
    return Workplace(
        library, (ComparedSide("old", installed), ComparedSide("new", installed)), tmp_path / "cubins", 2, 15.0
    )


class RacingBench(PairBench):
    """Races by a function of the kernel and the cubins."""

    def __init__(self, race: Callable[[str, Sequence[Cubin]], tuple[Params, ...]]) -> None:
        self._race = race

    def race(
        self, _library: Path, kernel: str, _problem: str, _url: str, cubins: Sequence[Cubin]
    ) -> tuple[Params, ...]:
        return self._race(kernel, cubins)


def retune(
    place: Workplace, race: Callable[[str, Sequence[Cubin]], tuple[Params, ...]], problems: Sequence[str] = ("1024",)
) -> list[Retuning]:
    of_a = (CompiledSide(CONFIGS[0], "ok", 1.0, 1.0),)
    space = RetunedSpace(CONFIGS, 1, 7)
    works = [(ToolchainPair("double", each, "sm_90", "shipped", of_a, of_a, "new"), space) for each in problems]
    return list(retune_each(place, works, RacingBench(race), lambda: False))


def test_the_winner_of_what_compiles_is_kept(place: Workplace) -> None:
    raced: list[Params] = []

    def race(kernel: str, cubins: Sequence[Cubin]) -> tuple[Params, ...]:
        assert kernel == "double"
        raced.extend(each.config for each in cubins)
        return (CONFIGS[1], CONFIGS[0])

    found = retune(place, race, ["1024", "2048"])
    assert raced == [*CONFIGS[:2], *CONFIGS[:2]]
    assert [(each.tried, each.compiled, each.winner) for each in found] == [(3, 2, CONFIGS[1])] * 2
    assert (found[0].space, found[0].drawn) == (7, 1)
    winner = found[0].side
    assert winner is not None
    assert winner.cubin is not None
    assert CubinStore(place.shared_store).cubin(winner.cubin).startswith(b"\x7fELF")


def test_no_winner_and_a_failed_race_are_results(place: Workplace) -> None:
    def fail(*_: object) -> tuple[Params, ...]:
        raise MeasureFailed("the GPU process stopped")

    (none,) = retune(place, lambda *_: ())
    (failed,) = retune(place, fail)
    assert (none.side, none.failure) == (None, None)
    assert (failed.side, failed.failure) == (None, "the GPU process stopped")
