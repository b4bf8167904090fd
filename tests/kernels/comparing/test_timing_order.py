"""The order in which pairs are timed, on a scripted GPU: the worst first, none for ever, and all within the time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tilewatch.kernels.comparing.timing_order import (
    MOST_DEATHS,
    Key,
    Timing,
    TimingRun,
    _list_parts,
    _list_useful_looks,
)
from tilewatch.kernels.comparing.toolchains.safety_verdict import is_answered
from tilewatch.kernels.comparing.verdict import Design
from tilewatch.kernels.measuring.pair_bench import (
    PROBLEMS_AT_ONCE,
    Launched,
    LaunchFailed,
    LaunchResult,
    PairWork,
    ReplaySide,
)
from tilewatch.kernels.results import Cubin

CONFIG = {"tile_m": 64}


class ScriptedBench:
    """Each kernel's name is its ratio in per cent, or how it fails."""

    def __init__(self) -> None:
        self.processes: list[list[str]] = []

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        self.processes.append([])
        for work in works:
            self.processes[-1].append(work.kernel)
            if work.kernel == "dies":
                yield work, LaunchFailed("it ends its GPU process: SIGSEGV", is_of_head=True, is_final=False)
            elif work.kernel == "wrong":
                yield work, LaunchFailed("it gives wrong results: off", is_of_head=True, is_final=True)
            elif work.kernel == "noisy":
                yield work, Launched(100.0, (99.4, 100.6)[work.launches % 2])
            else:
                yield work, Launched(100.0, float(work.kernel) + 0.01 * (work.launches % 2))


def make_run(kernels: Sequence[str], known: dict[str, int] | None = None, most_launches: int = 40) -> TimingRun:
    side = ReplaySide(Path("/library"), Cubin(CONFIG, "key", "k"))
    times = {kernel: (100.0,) * launches for kernel, launches in (known or {}).items()}
    return TimingRun(
        [PairWork(kernel, "1x1", side, side) for kernel in kernels],
        Design(len(kernels), most_launches),
        lambda *_: None,
        known={(kernel, "1x1", ""): Timing(each, each) for kernel, each in times.items()},
        is_sure=is_answered,
    )


def counts(run: TimingRun) -> dict[str, int]:
    return {kernel: len(timing.base_us) for (kernel, _, _), timing in run.timings.items()}


def test_every_pair_is_launched_once_before_the_worst_get_more() -> None:
    run, bench = make_run(["100", "103", "101"]), ScriptedBench()
    run.run(bench, lambda: len(bench.processes) > 3)
    assert bench.processes[0] == ["100", "103", "101"]
    assert bench.processes[1] == ["103", "101", "100"]


def test_all_pairs_of_a_problem_are_launched_next_to_each_other() -> None:
    """A bench launches neighbours of one base together."""
    side = ReplaySide(Path("/library"), Cubin(CONFIG, "key", "k"))
    kernels = [str(100 + each) for each in range(PROBLEMS_AT_ONCE + 2)]
    works = [PairWork(kernel, "1x1", side, side, label=label) for label in ("b", "c") for kernel in kernels]
    run, bench = TimingRun(works, Design(len(works)), lambda *_: None, is_sure=is_answered), ScriptedBench()
    run.run(bench, lambda: len(bench.processes) > 3)
    of_both = [kernel for kernel in kernels for _ in ("b", "c")]
    assert bench.processes[0] == of_both[: 2 * PROBLEMS_AT_ONCE]
    assert bench.processes[1] == of_both[2 * PROBLEMS_AT_ONCE :]
    assert bench.processes[2][:4] == [kernels[-1], kernels[-1], kernels[-2], kernels[-2]], "the worst first"


@pytest.mark.parametrize(
    ("problems", "parts"),
    [
        (0, []),
        (1, [1]),
        (PROBLEMS_AT_ONCE, [PROBLEMS_AT_ONCE]),
        (PROBLEMS_AT_ONCE + 1, [PROBLEMS_AT_ONCE, 1]),
        (2 * PROBLEMS_AT_ONCE + 3, [PROBLEMS_AT_ONCE, PROBLEMS_AT_ONCE, 3]),
    ],
)
def test_a_part_has_so_many_problems_under_all_labels(problems: int, parts: list[int]) -> None:
    keys: list[Key] = [(f"k{each // 2}", f"{each % 2}", label) for label in ("b", "c") for each in range(problems)]
    found = _list_parts(keys)
    assert [len({key[:2] for key in part}) for part in found] == parts
    assert [key for part in found for key in part] == [
        (kernel, problem, label) for kernel, problem, _ in keys[:problems] for label in ("b", "c")
    ]


def test_pairs_without_a_launch_come_first_and_then_the_most_slowed_down() -> None:
    run = make_run(["faster", "slow", "new", "slower"])
    for kernel, head_us in (("faster", 90.0), ("slow", 101.0), ("slower", 103.0)):
        run.timings[kernel, "1x1", ""] = Timing((100.0,), (head_us,))
    assert [kernel for kernel, _, _ in run.list_open()] == ["new", "slower", "slow", "faster"]


def test_pairs_that_have_their_launches_take_no_place_in_a_part() -> None:
    """The twelve worst of thirty pairs have the launches of the next look, which leave them open."""
    kernels = [f"{100 + each}" for each in range(30)]
    run, bench = make_run(kernels, dict.fromkeys(kernels, 1)), ScriptedBench()
    for kernel in kernels[:12]:
        run.timings[kernel, "1x1", ""] = Timing((100.0,) * 16, (70.0, 190.0) * 8)
    assert {kernel for kernel, _, _ in run.list_open()[:12]} == set(kernels[:12])
    run.run(bench, lambda: bool(bench.processes) and len(bench.processes[0]) >= PROBLEMS_AT_ONCE)
    assert [sorted(each) for each in bench.processes] == [kernels[12 : 12 + PROBLEMS_AT_ONCE]]


@pytest.mark.parametrize(
    ("design", "looks"),
    [
        (Design(1), [12, 16, 22, 30, 40]),
        (Design(100), [16, 22, 30, 40]),
        (Design(1, 12), [9, 12]),
        (Design(1, 10), [9, 10]),
        (Design(10**6, 20), [20]),
    ],
)
def test_a_look_at_which_no_pair_can_be_slower_is_left_out_but_for_the_last(design: Design, looks: list[int]) -> None:
    """One pair may be called slower by mistake in 0.25 % of the cases, of which 9 of 40 launches may spend 0.15 %. That
    all nine are slower by chance has 0.2 %."""
    assert list(_list_useful_looks(design)) == looks


def test_all_answers_become_sure_and_then_nothing_is_launched() -> None:
    run, bench = make_run(["100", "103"]), ScriptedBench()
    run.run(bench, lambda: False)
    assert run.list_open() == []
    assert max(counts(run).values()) <= 40
    ended = len(bench.processes)
    run.run(bench, lambda: False)
    assert len(bench.processes) == ended


def test_what_is_surely_safe_is_launched_no_more_to_say_how_safe() -> None:
    """Its launches differ by 1.2 %: not slower than 0.7 % is sure long before not slower than 0.5 %."""
    run, bench = make_run(["noisy"]), ScriptedBench()
    run.run(bench, lambda: False)
    (timing,) = run.timings.values()
    verdict = timing.judge(Design(1))
    assert verdict is not None
    assert (verdict.kind, verdict.is_fine, verdict.is_final) == ("not slower", True, False)
    assert len(bench.processes) < 40
    assert run.list_open() == []


def test_the_worst_sixteen_are_sure_before_others_get_a_second_launch() -> None:
    kernels = [f"{100 + each}" for each in range(20)]
    run, bench = make_run(kernels), ScriptedBench()
    run.run(bench, lambda: not [each for each in run.list_open() if int(each[0]) >= 104])
    assert all(counts(run)[kernel] == 1 for kernel in kernels[:4])


def test_a_pair_that_keeps_dying_is_given_up_and_a_wrong_one_at_once() -> None:
    run, bench = make_run(["dies", "100", "wrong"]), ScriptedBench()
    run.run(bench, lambda: False)
    launched = [kernel for process in bench.processes for kernel in process]
    assert launched.count("dies") == MOST_DEATHS
    assert launched.count("wrong") == 1
    assert run.timings["dies", "1x1", ""].failure == "it ends its GPU process: SIGSEGV"
    assert run.timings["wrong", "1x1", ""].is_of_head
    assert {key[0] for key, timing in run.timings.items() if timing.may_pass} == {"dies"}


def test_earlier_launches_count() -> None:
    run, bench = make_run(["100"], {"100": 9}), ScriptedBench()
    run.run(bench, lambda: False)
    assert counts(run)["100"] == 9 + len(bench.processes)


def test_nothing_is_launched_when_the_time_is_spent() -> None:
    run, bench = make_run(["100"]), ScriptedBench()
    run.run(bench, lambda: True)
    assert bench.processes == []
    assert run.list_open() == [("100", "1x1", "")]
