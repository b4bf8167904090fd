"""Sweeps with B: its configs are compiled with B, those that compile are raced, and the winner is kept for the GPU."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from tests.kernels.recording.test_recording_file import HEADER, MEASUREMENT, MODEL, RUN, SWEEP, TRIAL
from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.comparing.toolchains import retuning
from tilewatch.kernels.comparing.toolchains.compile_sides import ComparedSide, Workplace
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.retuning import (
    DRAWN,
    REACH,
    RetunedSpace,
    choose_space,
    read_recorded_times,
    retune_each,
)
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.pair_bench import PairBench
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.results import Compiled, Cubin, Params, Plan, PlannedTrial
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


def record(number: int, day: int, times_us: Sequence[float], slug: str = "h200", **detail: str) -> list[dict[str, Any]]:
    """The rows of a sweep that timed its first configs."""
    sweep = {**SWEEP, "id": number, "gpu_model": {**MODEL, "slug": slug}}
    run = {**RUN, "key": f"run {number}", "sweep": number, "finished_at": f"2026-11-{day:02}T03:00:01+00:00"}
    timed = [{**TRIAL, "sweep": number, "config": {"m": m}, "samples_us": [each]} for m, each in enumerate(times_us)]
    return [sweep, *timed, run, {**MEASUREMENT, "run": run["key"], "detail": detail}]


TIMED_AGAIN = record(2, 22, [9.0], last_sweep="2026-11-21")


@pytest.mark.parametrize(
    ("rows", "newest"),
    [
        (record(1, 21, [2.0, 3.0]) + record(2, 22, [4.0, 5.0]), [4.0, 5.0]),
        (record(1, 21, [2.0, 3.0]) + record(2, 22, [4.0, 5.0], slug="h100"), [2.0, 3.0]),
        (record(1, 21, [2.0, 3.0]) + TIMED_AGAIN, [2.0, 3.0]),
        (record(1, 21, [2.0, 3.0], slug="h100") + TIMED_AGAIN, [2.0, 3.0]),
        (record(1, 21, [2.0, 3.0], slug="h100") + record(2, 22, [9.0])[:2], [2.0, 3.0]),
        (TIMED_AGAIN, [9.0]),
    ],
    ids=["newer", "on this GPU model", "timed again", "timed again on this GPU model", "cut off", "nothing else"],
)
def test_times_are_those_of_the_newest_whole_sweep(
    tmp_path: Path, rows: list[dict[str, Any]], newest: list[float]
) -> None:
    recording_file.write(tmp_path / "a.jsonl.gz", HEADER, rows)
    (times,) = read_recorded_times([tmp_path / "a.jsonl.gz"], "h200").values()
    assert list(times.values()) == newest


def test_only_sweeps_with_timed_configs_have_times(tmp_path: Path) -> None:
    """A file of JSON is no recording, a wrong config has no time, and the newest sweep timed nothing."""
    (tmp_path / "about.json").write_text("{}")
    wrong = {**TRIAL, "config": {"m": 7}, "status": "wrong", "samples_us": None}
    rows = [*record(1, 21, [2.0]), {**wrong, "sweep": 1}, *record(2, 22, []), {**wrong, "sweep": 2}]
    recording_file.write(tmp_path / "a.jsonl.gz", HEADER, rows)
    (times,) = read_recorded_times(sorted(tmp_path.iterdir()), "h200").values()
    assert list(times.values()) == [2.0]


def make_plan(listed: int, drawn: int) -> Plan:
    trials = tuple(PlannedTrial({"tile_m": each}, str(each)) for each in range(listed + drawn))
    return Plan("k", "1x1", "sm_90", "", 1, (), 1, 1, (), trials, drawn=drawn, rest=drawn)


def list_tiles(space: RetunedSpace) -> list[int]:
    return [config["tile_m"] for config in space.configs]


def test_the_space_is_what_was_near_the_fastest_then_the_list_then_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {("k", "1x1", "sm_90"): {'{"tile_m": 1}': 130.1, '{"tile_m": 7}': 100.0 * REACH, '{"tile_m": 4}': 100.0}}
    space = choose_space(make_plan(2, 198), times)
    assert list_tiles(space)[:4] == [4, 7, 0, 1]
    assert len(set(list_tiles(space))) == 4 + DRAWN == 4 + space.drawn
    assert max(list_tiles(space)) > 150, "from the whole space"
    assert (space.size, choose_space(make_plan(2, 8), times).drawn) == (200, 6)
    monkeypatch.setattr(retuning, "MOST_NEAR", 1)
    assert list_tiles(choose_space(make_plan(2, 198), times))[:3] == [4, 0, 1]


def test_a_space_without_a_list_and_a_recording_is_swept_as_a_whole() -> None:
    whole = choose_space(make_plan(200, 0), {})
    assert (sorted(list_tiles(whole)), whole.drawn) == (list(range(200)), 200)
    assert list_tiles(whole) != list(range(200)), "mixed"
    listed = choose_space(make_plan(2, 198), {})
    assert (list_tiles(listed)[:2], listed.drawn) == ([0, 1], DRAWN)


class MadePool:
    """Compiles as many of the configs as `compile_ok` says, under the settings that a test expects."""

    compile_ok = 2
    closed = 0

    def __init__(self, store_url: str, *, jobs: int, limit_s: float, toolchain: Toolchain) -> None:
        assert (jobs, limit_s, toolchain.name) == (2, 15.0, INSTALLED)
        assert store_url.endswith("/compiled/installed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        MadePool.closed += 1

    def start_all(self, works: Sequence[object]) -> list[Future[Compiled]]:
        ok = Compiled("ok", "tile 2", "sm_90", 1.0, 1.0, False, None, "kept", "code", "double")
        failed = replace(ok, status="error", failure="no", content_key=None, symbol=None)
        started: list[Future[Compiled]] = [Future() for _ in works]
        for number, each in enumerate(started):
            each.set_result(ok if number < self.compile_ok else failed)
        return started


@pytest.fixture
def made_place(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setattr(retuning, "CompilerPool", MadePool)
    monkeypatch.setattr(MadePool, "closed", 0)
    CubinStore(place.find_store(INSTALLED)).put("kept", {}, b"a cubin")
    return place


@pytest.mark.parametrize(("compile_ok", "raced"), [(0, []), (1, [1]), (3, [3])])
def test_only_what_compiles_is_raced(
    made_place: Workplace, monkeypatch: pytest.MonkeyPatch, compile_ok: int, raced: list[int]
) -> None:
    monkeypatch.setattr(MadePool, "compile_ok", compile_ok)
    counts: list[int] = []

    def race(_: str, cubins: Sequence[Cubin]) -> tuple[Params, ...]:
        counts.append(len(cubins))
        return (CONFIGS[0],)

    (found,) = retune(made_place, race)
    assert counts == raced
    assert (found.tried, found.compiled, found.winner) == (3, compile_ok, CONFIGS[0] if raced else None)
    assert (found.space, found.drawn, found.tie) == (7, 1, (CONFIGS[0],) if raced else ())


def test_a_sweep_ends_when_the_time_is_spent(made_place: Workplace) -> None:
    of_a = (CompiledSide(CONFIGS[0], "ok", 1.0, 1.0),)
    pair, raced = ToolchainPair("double", "1024", "sm_90", "shipped", of_a, of_a, "new"), list[str]()
    works = [(replace(pair, problem=each), RetunedSpace(CONFIGS, 1, 7)) for each in ("1024", "2048", "4096")]
    bench = RacingBench(lambda kernel, _: raced.append(kernel) or (CONFIGS[0],))
    assert len(list(retune_each(made_place, works, bench, lambda: len(raced) == 2))) == 2
    assert len(raced) == 2
    assert MadePool.closed == 1


def test_no_winner_and_a_failed_race_are_results(made_place: Workplace) -> None:
    def fail(*_: object) -> tuple[Params, ...]:
        raise MeasureFailed("the GPU process stopped")

    (none,) = retune(made_place, lambda *_: ())
    (failed,) = retune(made_place, fail)
    assert (none.side, none.failure) == (None, None)
    assert (failed.side, failed.failure) == (None, "the GPU process stopped")
