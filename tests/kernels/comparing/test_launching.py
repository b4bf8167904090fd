"""The outcomes of changed kernels from launches on a made-up bench: which configs are timed, and what fails."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tilewatch.kernels.comparing.changes import Changed, Code, Comparison
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.launching import NO_TIME, end_by_launches
from tilewatch.kernels.comparing.outcome import Outcome
from tilewatch.kernels.comparing.targets import Library, Target
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.compiling.compiler import CodeIdentity
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.pair_bench import Launched, LaunchFailed, LaunchResult, PairWork
from tilewatch.kernels.results import Compiled, Cubin, Params

SMALL, MIDDLE, LARGE = ({"tile_m": each} for each in (64, 128, 256))
LOOKS = (9, 12, 16, 22, 30, 40)


def make_code(code: str, config: Params = SMALL) -> Code:
    compiled = Compiled("ok", "c", "sm_90", 1.0, 1.0, False, None, f"key of {code}", code, "k")
    return Code(config, CodeIdentity(f"key of {code}", "grid"), compiled)


def make_codes(side: str, *configs: Params) -> tuple[Code, ...]:
    return tuple(make_code(f"{side} {config['tile_m']}", config) for config in configs)


def make_changed(kernel: str, base: tuple[Code, ...], head: tuple[Code, ...]) -> Changed:
    return Changed(Target(kernel, "1x1", "sm_90", None, None), ConfigSource.auto, base, head)


@dataclass
class MadeBench:
    """Each kernel's name is the head's time in per cent of the base's; a race ends in the order that `orders` has."""

    orders: dict[str, Sequence[Params] | MeasureFailed] = field(default_factory=dict)
    works: list[PairWork] = field(default_factory=list)
    raced: list[tuple[str, list[Params]]] = field(default_factory=list)

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        for work in works:
            self.works.append(work)
            if work.kernel == "wrong":
                yield work, LaunchFailed("it gives wrong results: off", is_of_head=True, is_final=True)
            else:
                head_us = float(work.kernel) + 0.01 * (work.launches % 2)
                yield work, Launched(100.0, head_us, not_apart="its kernels move" if work.kernel == "103" else "")

    def race(
        self, library: Path, _kernel: str, _problem: str, store_url: str, cubins: Sequence[Cubin]
    ) -> tuple[Params, ...]:
        assert store_url == "file:///store"
        self.raced.append((library.name, [each.config for each in cubins]))
        order = self.orders[library.name]
        if isinstance(order, MeasureFailed):
            raise order
        return tuple(order)


def end(
    changed: Sequence[Changed], bench: MadeBench, is_spent: Callable[[], bool] = lambda: False, **settings: Any
) -> tuple[dict[str, Outcome], list[str]]:
    """Returns the outcomes by kernel, and the lines of progress."""
    pool = cast("CompilerPool", SimpleNamespace(store_url="file:///store", jobs=1))
    libraries = (Library("main", Path("old")), Library("branch", Path("new")))
    comparison = Comparison(*libraries, "h200", pool, tuple, **settings)
    said: list[str] = []
    end_by_launches(comparison, changed, bench, Design(operators=1), is_spent, said.append)
    return {target.kernel: outcome for target, outcome in comparison.outcomes.items()}, said


def test_each_kernel_has_a_verdict_by_its_launches() -> None:
    changed = [make_changed(each, (make_code("a"),), (make_code("b"),)) for each in ("103", "100", "wrong")]
    bench = MadeBench()
    outcomes, _ = end(changed, bench, metric="energy")
    assert {kernel: each.kind for kernel, each in outcomes.items()} == {
        "103": "slower",
        "100": "not slower",
        "wrong": "failed",
    }
    slower = outcomes["103"]
    assert slower.verdict is not None
    assert slower.verdict.change == pytest.approx(0.03, abs=1e-3)
    assert (slower.base_us[0], slower.head_us[0], slower.metric) == (100.0, 103.0, "energy")
    assert len(slower.base_us) == len(slower.head_us) == slower.verdict.launches
    assert (slower.not_apart, outcomes["100"].not_apart) == ("its kernels move", "")
    assert (slower.base_config, slower.head_config, slower.arch) == (SMALL, SMALL, "sm_90")
    assert outcomes["wrong"].reason == "it gives wrong results: off"
    assert {(each.base.library.name, each.head.library.name, each.metric) for each in bench.works} == {
        ("old", "new", "energy")
    }
    assert {(each.base.cubin.content_key, each.head.cubin.content_key) for each in bench.works} == {
        ("key of a", "key of b")
    }
    assert bench.raced == [], "one config needs no race"


def test_progress_is_told_when_a_verdict_is_read() -> None:
    bench = MadeBench()
    outcomes, said = end([make_changed("100", (make_code("a"),), (make_code("b"),))], bench)
    launches = len(outcomes["100"].base_us)
    assert launches in LOOKS
    assert len(said) == LOOKS.index(launches) + 1
    assert said[-1] == f"100 1x1: {outcomes['100'].sentence}"


def test_more_kernels_need_stronger_evidence() -> None:
    """A probability of an error is divided among all that are timed, not among those that were given."""
    alone, _ = end([make_changed("103", (make_code("a"),), (make_code("b"),))], MadeBench())
    others = [make_changed(str(number), (make_code("a"),), (make_code("b"),)) for number in range(104, 304)]
    among, _ = end([make_changed("103", (make_code("a"),), (make_code("b"),)), *others], MadeBench())
    same = [make_changed(str(number), (make_code("a"),), (make_code("a"),)) for number in range(104, 304)]
    with_same, _ = end([make_changed("103", (make_code("a"),), (make_code("b"),)), *same], MadeBench())
    assert len(among["103"].base_us) > len(alone["103"].base_us) == len(with_same["103"].base_us)


def test_what_was_not_launched_in_time_is_no_verdict() -> None:
    bench = MadeBench()
    changed = [make_changed(each, (make_code("a"),), (make_code("b"),)) for each in ("103", "100")]
    outcomes, _ = end(changed, bench, lambda: len(bench.works) == 1)
    assert (outcomes["103"].kind, len(outcomes["103"].base_us)) == ("undecided", 1)
    assert (outcomes["100"].kind, outcomes["100"].reason) == ("failed", NO_TIME)


@pytest.mark.parametrize(
    ("of_base", "of_head", "timed"),
    [
        ([MIDDLE], [LARGE], (MIDDLE, LARGE)),
        ([MIDDLE, SMALL], [LARGE], (SMALL, LARGE)),
        ([LARGE, MIDDLE], [MIDDLE, LARGE], (LARGE, LARGE)),
        ([MIDDLE, SMALL], [LARGE, SMALL], (SMALL, SMALL)),
        ([MIDDLE, LARGE], [SMALL, LARGE], (MIDDLE, SMALL)),
    ],
)
def test_each_side_s_fastest_config_is_timed_and_of_ties_the_one_that_both_have(
    of_base: list[Params], of_head: list[Params], timed: tuple[Params, Params]
) -> None:
    bench = MadeBench({"old": of_base, "new": of_head})
    sides = [make_codes(side, SMALL, MIDDLE, LARGE) for side in ("base", "head")]
    outcomes, _ = end([make_changed("103", sides[0], sides[1])], bench)
    assert bench.raced == [("old", [SMALL, MIDDLE, LARGE]), ("new", [SMALL, MIDDLE, LARGE])]
    assert {(each.base.cubin.config["tile_m"], each.head.cubin.config["tile_m"]) for each in bench.works} == {
        (timed[0]["tile_m"], timed[1]["tile_m"])
    }
    assert (outcomes["103"].base_config, outcomes["103"].head_config) == timed


def test_a_config_that_does_not_compile_is_not_raced() -> None:
    refused = Code(MIDDLE, CodeIdentity(failure="off"))
    bench = MadeBench({"old": [LARGE], "new": [LARGE]})
    sides = [(*make_codes(side, SMALL, LARGE), refused) for side in ("base", "head")]
    end([make_changed("103", sides[0], sides[1])], bench)
    assert bench.raced == [("old", [SMALL, LARGE]), ("new", [SMALL, LARGE])]


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (MeasureFailed("the GPU process stopped"), "the GPU process stopped"),
        ([], "no config of branch gives right results"),
    ],
)
def test_a_race_without_a_winner_is_a_failure_of_its_kernel_alone(
    order: Sequence[Params] | MeasureFailed, reason: str
) -> None:
    bench = MadeBench({"old": [SMALL], "new": order})
    sides = [make_codes(side, SMALL, LARGE) for side in ("base", "head")]
    changed = [make_changed("101", sides[0], sides[1]), make_changed("103", (make_code("a"),), (make_code("b"),))]
    outcomes, _ = end(changed, bench)
    assert (outcomes["101"].kind, outcomes["101"].reason) == ("failed", reason)
    assert outcomes["103"].kind == "slower"


def test_equal_machine_code_of_both_winners_is_not_timed() -> None:
    bench = MadeBench({"old": [LARGE], "new": [LARGE]})
    base = (*make_codes("base", SMALL), make_code("both", LARGE))
    head = (*make_codes("head", SMALL), make_code("both", LARGE))
    outcomes, _ = end([make_changed("103", base, head)], bench)
    assert (outcomes["103"].kind, bench.works) == ("identical", [])
