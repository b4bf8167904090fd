"""The GPU's half on a made-up bench: frozen, then B's sweep of what is worse, and a later run that goes on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kernels.fixtures.fake_gpu import THIS_GPU
from tilewatch.kernels.catalog.share import Shares
from tilewatch.kernels.comparing.baseline_bench import BaselineWork
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains import time_sides as module
from tilewatch.kernels.comparing.toolchains.compile_sides import Chosen, ComparedSide, Workplace
from tilewatch.kernels.comparing.toolchains.ladders import list_ladders, name_driver
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    BadReport,
    GpuUsed,
    ReportFile,
    ToolchainName,
    ToolchainReport,
    read_report,
)
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_everything, judge_report, make_design
from tilewatch.kernels.comparing.toolchains.rungs import name_rungs
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.comparing.toolchains.time_sides import FROZEN_SHARE, ToolchainTimer
from tilewatch.kernels.comparing.toolchains.writing import (
    write_answer,
    write_json,
    write_lines,
    write_markdown,
    write_pins,
)
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.measuring.pair_bench import Launched, LaunchResult, PairWork
from tilewatch.kernels.results import Params, Plan, PlannedTrial, StaticFacts
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Toolchain

CONFIG, OTHER = {"tile_m": 64}, {"tile_m": 128}
TIMES_US = {"cubin of A": 100.0, "same speed": 100.0, "slow": 103.0, "retuned": 100.0}


class MadeBench:
    def __init__(self) -> None:
        self.launches = 0
        self.labels: list[str] = []
        self.slower = 1.0

    def launch_each(self, works: Sequence[PairWork]) -> Iterator[tuple[PairWork, LaunchResult]]:
        for work in works:
            self.launches += 1
            self.labels.append(work.label)
            noise = 0.02 * (work.launches % 3)
            base_us, head_us = (TIMES_US[each.cubin.content_key] for each in (work.base, work.head))
            yield work, Launched(self.slower * base_us, self.slower * (head_us + noise))

    def race(self, *_: object) -> tuple[Params, ...]:
        raise AssertionError("the fixture `sweeps` replaces what races")


def make_pair(kernel: str, code: str, head: str = "new") -> ToolchainPair:
    of_a = CompiledSide(CONFIG, "ok", 1.0, 1.0, None, "code of A", kernel, "cubin of A")
    of_head = replace(of_a, code_sha256=code, cubin=code)
    return ToolchainPair(kernel, "1x1", "sm_90", "recording", (of_a,), (of_head,), head)


def make_report(*pairs: ToolchainPair) -> ToolchainReport:
    heads = dict.fromkeys(pair.head_name for pair in pairs)
    sides = (ToolchainName("old", "cuda-tile 1"), *(ToolchainName(name, "cuda-tile 2") for name in heads))
    report = ToolchainReport(sides, "2026-11-22")
    report.pairs = {pair.key: pair for pair in pairs}
    report.gpus["h200"] = GpuUsed("h200", "NVIDIA H200", "580.1", 60.0)
    return report


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were swept; B's winner of each is OTHER, in the cubin "retuned"."""
    swept: list[str] = []

    def retune_each(
        place: Workplace,  # noqa: ARG001
        works: Sequence[tuple[ToolchainPair, object]],
        bench: object,
        is_spent: Callable[[], bool],
    ) -> Iterator[Retuning]:
        assert isinstance(bench, MadeBench)
        assert not is_spent()
        for pair, _configs in works:
            swept.append(pair.kernel)
            yield Retuning(9, 8, replace(pair.head[0], config=OTHER, cubin="retuned"), (OTHER,))

    trials = tuple(PlannedTrial(config, str(config)) for config in (CONFIG, OTHER))

    def read(_: Path, *, arch: str, kernel: str, shares: Shares) -> tuple[Plan, ...]:
        assert shares.wide, "the short list is one compiler's"
        return (Plan(kernel, "1x1", arch, "", 1, (), 1, 1, (), trials),)

    monkeypatch.setattr(module.catalog, "read", read)
    monkeypatch.setattr(module, "retune_each", retune_each)
    return swept


def make_half(report: ToolchainReport, folder: Path, bench: MadeBench) -> ToolchainTimer:
    sides = tuple(ComparedSide(each.name, Toolchain(INSTALLED, None)) for each in report.sides)
    place = Workplace(Path("library"), sides, folder, 1, 15.0)
    file = ReportFile(folder / "r.json", report)
    return ToolchainTimer(place, report, file, THIS_GPU, bench, lambda _: None)


def test_only_what_is_worse_is_swept_and_an_optimum_that_moved_is_named(tmp_path: Path, sweeps: list[str]) -> None:
    report = make_report(make_pair("even", "same speed"), make_pair("worse", "slow"), make_pair("equal", "code of A"))
    bench = MadeBench()
    half = make_half(report, tmp_path, bench)
    half.time_frozen(lambda: False)
    half.retune(dict, lambda: False)
    assert sweeps == ["worse"]
    judged = {each.pair.kernel: each for each in judge_report(report, "h200")}
    assert {kernel: each.safety for kernel, each in judged.items()} == {
        "even": "safe",
        "worse": "safe if re-tuned",
        "equal": "safe",
    }
    assert judged["worse"].moved_to == OTHER
    assert "optimum tile_m=64 -> tile_m=128" in write_markdown(report)
    answer = write_answer(report)
    assert answer.startswith("new is safe to take in place of old if some operators are re-tuned")
    assert "1 safe if re-tuned, 2 safe (1 identical machine code); the worst is worse 1x1, slower +3.02 %" in answer
    assert any(line.startswith("  safe if re-tuned: worse 1x1: slower +3.02 %") for line in write_lines(report))
    assert '"safety": "safe if re-tuned", "exit_code": 1' in write_json(report)


def test_several_heads_share_a_run_and_a_page_and_the_newest_safe_one_is_pinned(tmp_path: Path) -> None:
    heads = {"one": "same speed", "two": "slow", "three": "code of A"}
    report = make_report(*(make_pair("even", "code of A", head) for head in heads))
    report.pairs |= {pair.key: pair for pair in (make_pair("worse", code, head) for head, code in heads.items())}
    report.sides = tuple(replace(side, packages={"cuda-tile": side.name}) for side in report.sides)
    bench = MadeBench()
    half = make_half(report, tmp_path, bench)
    half.time_frozen(lambda: False)
    assert {key[3] for key in report.frozen} == {"one", "two"}
    assert bench.labels[:2] == ["one", "two"], "in one process"
    again = read_report(tmp_path / "r.json")
    assert again == report
    text = write_markdown(again)
    assert all(not before for before, line in pairwise(text.splitlines()) if line.startswith("#"))
    assert text.startswith("# old → one, two, three\n")
    assert "Take three: the last of these that is safe." in write_answer(again)
    row, ladder = [line for line in text.splitlines() if line.startswith("| worse | 1x1 |")]
    assert ladder.startswith("| worse | 1x1 | two | +3.0 | cuda-tile +3.0")
    assert [cell.split(":")[0].strip() for cell in row.split("|")[3:6]] == ["safe", "not safe", "identical"]
    assert "| worse | safe | not safe | safe | three |" in text
    assert write_pins(again).splitlines()[1:] == ["cuda-tile==three"]
    again.sides = tuple(side for side in again.sides if side.name not in ("one", "three"))
    assert write_pins(again).splitlines()[1:] == ["cuda-tile==old"], "no head is safe"


def test_more_heads_on_a_page_need_no_more_launches_of_each() -> None:
    """Each head's answer has the error of a comparison of that head alone."""
    of_one = [make_pair(kernel, "slow", "one") for kernel in ("a", "b", "c")]
    of_both = [
        *of_one,
        *(make_pair(kernel, "slow", "two") for kernel in ("a", "b")),
        make_pair("c", "code of A", "two"),
    ]
    assert make_design(make_report(*of_both), "sm_90") == make_design(make_report(*of_one), "sm_90")
    assert make_design(make_report(*of_one), "sm_90").operators == 3
    assert make_design(make_report(*of_one), "sm_100").operators == 1, "nothing differs there"


def test_what_lost_is_split_among_what_the_head_has_in_other_versions(tmp_path: Path) -> None:
    lost, fine = make_pair("worse", "slow"), make_pair("even", "same speed")
    report = make_report(lost, fine)
    versions = [dict.fromkeys(("cuda-tile", "nvidia-nvvm"), number) for number in ("1", "2")]
    report.sides = (
        ToolchainName("old", packages=versions[0]),
        ToolchainName("new", packages=versions[1]),
    )
    for rung, code in zip(name_rungs(report, report.heads[0]), ("slow", "same speed"), strict=True):
        pair = make_pair("worse", code, rung.name)
        report.pairs[pair.key] = pair
    bench = MadeBench()
    half = make_half(report, tmp_path, bench)
    half.time_frozen(lambda: False)
    assert list_ladders(report)[0].ladder.blamed == ("compiler and cuda-tile",), "no rung is timed"
    half.time_rungs(lambda: False)
    assert set(bench.labels) == {"new", "new~compiler", "new~cuda-tile"}
    (found,) = list_ladders(report)
    assert (found.kernel, found.ladder.blamed) == ("worse", ("compiler",))
    assert [round(share.points, 1) for share in found.ladder.shares] == [3.0, 0.0]
    assert any(line.startswith("  new: worse 1x1: +3.0: compiler +3.0 (") for line in write_lines(report))
    assert "| worse | 1x1 | new | +3.0 | compiler +3.0 (" in write_markdown(report)
    assert len(judge_report(report, "h200")) == 2, "a rung is no head"


def test_a_driver_is_timed_by_the_code_of_the_base_under_each(tmp_path: Path) -> None:
    report = make_report(make_pair("even", "same speed"))
    drivers = {"old": "575", "new": THIS_GPU.driver}
    report.sides = tuple(ToolchainName(name, packages={"driver": driver}) for name, driver in drivers.items())
    for driver, slower in (("575", 1.0), (THIS_GPU.driver, 1.03)):
        bench = MadeBench()
        bench.slower = slower
        half = replace(make_half(report, tmp_path, bench), gpu=replace(THIS_GPU, driver=driver))
        half.time_frozen(lambda: False)
        half.time_rungs(lambda: False)
        assert ("new" in bench.labels) == (driver == THIS_GPU.driver), "a head is timed under its own driver"
    (found,) = list_ladders(report)
    assert (found.ladder.blamed, round(found.ladder.loss, 1)) == (("driver",), 3.0)


def test_what_took_most_comes_first() -> None:
    report = make_report(*(make_pair(kernel, "slow") for kernel in ("little", "much")))
    report.sides = tuple(ToolchainName(name, packages={"cuda-tile": name}) for name in ("old", "new"))
    for kernel, ratio in (("little", 1.02), ("much", 1.05)):
        head_us = tuple(100.0 * ratio + 0.02 * (launch % 3) for launch in range(20))
        report.frozen[kernel, "1x1", "h200", "new"] = Timing((100.0,) * 20, head_us)
    assert [each.kernel for each in list_ladders(report)] == ["much", "little"]


def test_the_code_of_the_base_is_timed_once_for_all_heads_if_one_of_them_names_a_driver(tmp_path: Path) -> None:
    report = make_report(*(make_pair("even", "same speed", head) for head in ("one", "two")))
    packages = {"old": {}, "one": {}, "two": {"driver": THIS_GPU.driver}}
    report.sides = tuple(ToolchainName(name, "cuda-tile 1", packages=each) for name, each in packages.items())
    bench, said = MadeBench(), list[str]()
    replace(make_half(report, tmp_path, bench), on_progress=said.append).time_rungs(lambda: False)
    assert set(bench.labels) == {name_driver(THIS_GPU.driver)}
    assert said[-1] == "driver: 0 of 1 operators and problems are open"


def test_rungs_that_do_not_compile_cost_no_other_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BuildError("no such compiler")

    monkeypatch.setattr(module, "compile_missing", refuse)
    report = make_report(make_pair("worse", "slow"))
    half, said = make_half(report, tmp_path, MadeBench()), list[str]()
    rung = ComparedSide("new~compiler", Toolchain("mixed", tmp_path))
    replace(half, on_progress=said.append)._compile_rungs([rung], list(report.pairs.values()))
    assert said == ["dependencies cannot be told apart: no such compiler"]


def test_a_head_that_does_not_compile_here_costs_no_other_head_its_re_tuning(
    tmp_path: Path, sweeps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = make_report(make_pair("worse", "slow", "broken"), make_pair("worse", "slow", "new"))
    said, retune_each = list[str](), module.retune_each

    def refuse(place: Workplace, works: Sequence[tuple[ToolchainPair, object]], *rest: object) -> Iterator[Retuning]:
        if works[0][0].head_name == "broken":
            raise BuildError("no such compiler")
        return retune_each(place, works, *rest)

    monkeypatch.setattr(module, "retune_each", refuse)
    half = replace(make_half(report, tmp_path, MadeBench()), on_progress=said.append)
    assert not half.run(None, dict)
    assert sweeps == ["worse"]
    assert "nothing more is re-tuned with broken: no such compiler" in said
    judged = {each.pair.head_name: each.safety for each in judge_report(report, "h200")}
    assert judged == {"broken": "not safe", "new": "safe if re-tuned"}


def test_mixes_are_compiled_beside_the_base_where_code_is_mixed_and_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[tuple[list[str], list[tuple[str, Sequence[Params]]]]] = []

    def compile_missing(place: Workplace, _report: object, _file: object, chosen: Sequence[Chosen], _: object) -> None:
        found = [(target.kernel, candidates.base) for target, candidates in chosen]
        compiled.append(([each.name for each in place.sides], found))

    monkeypatch.setattr(module, "compile_missing", compile_missing)
    lost = make_pair("worse", "slow")
    half = make_half(make_report(lost), tmp_path, MadeBench())
    code = ComparedSide("new~compiler", Toolchain("mixed", tmp_path))
    baselines = ComparedSide("new~torch", half.place.sides[0].toolchain, Toolchain("other", tmp_path))
    for rungs, pairs in (([code], []), ([baselines], [lost]), ([], [lost]), ([baselines, code], [lost])):
        half._compile_rungs(rungs, pairs)
    assert compiled == [(["old", "new~compiler"], [("worse", (CONFIG,))])]


@pytest.mark.parametrize(
    ("code", "baseline", "spent", "mixed"),
    [
        ("slow", 1.0, False, ["new"]),
        ("same speed", 0.9, False, ["new"]),
        ("code of A", 0.9, False, ["new"]),
        ("same speed", 1.1, False, []),
        ("slow", 0.9, True, []),
    ],
)
def test_only_a_head_with_a_loss_is_mixed_with_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, baseline: float, spent: bool, mixed: list[str]
) -> None:
    asked: list[str] = []

    def make_rungs(root: Path, place: Workplace, of: ToolchainReport, head: ToolchainName) -> tuple[ComparedSide, ...]:
        assert (root.is_dir(), root.is_absolute(), place, of) == (True, True, half.place, report)
        asked.append(head.name)
        return ()

    monkeypatch.setattr(module, "make_rungs", make_rungs)
    report = make_report(make_pair("worse", code), make_pair("even", "code of A", "even"))
    half = make_half(report, tmp_path, MadeBench())
    half.time_frozen(lambda: False)
    head_us = tuple(100.0 * baseline + 0.02 * (launch % 3) for launch in range(20))
    report.baselines["worse", "1x1", "h200", "new"] = Timing((100.0,) * 20, head_us)
    report.baselines["worse", "1x1", "b200", "even"] = Timing((100.0,) * 20, (50.0,) * 20)
    report.baselines["even", "1x1", "h200", "even"] = Timing(failure="it does not run")
    half.climb(lambda: spent)
    assert asked == mixed
    assert list(half.place.cubins.glob("rungs-*")) == [], "the mixes are removed"


class Keeper:
    """Counts the launches of a bench at each save."""

    def __init__(self, bench: MadeBench) -> None:
        self.bench, self.soon, self.surely = bench, list[int](), list[int]()

    def save_soon(self) -> None:
        self.soon.append(self.bench.launches)

    def save(self) -> None:
        self.surely.append(self.bench.launches)


def test_a_report_is_saved_after_each_launch_and_surely_at_the_end(
    tmp_path: Path, sweeps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is ended loses the launches of a moment, not all of them."""
    monkeypatch.setattr(module, "SAY_EVERY", 10)
    bench, said = MadeBench(), list[str]()
    report = make_report(make_pair("even", "same speed"), make_pair("worse", "slow"))
    keeper = Keeper(bench)
    half = replace(make_half(report, tmp_path, bench), file=keeper, on_progress=said.append)
    half.time_frozen(lambda: False)
    launches = bench.launches
    assert keeper.soon == list(range(1, launches + 1))
    assert keeper.surely == [launches]
    assert len(said) == 2 + launches // 10 > 3
    assert (said[0], said[-1]) == (
        "frozen: 2 of 2 operators and problems are open",
        "frozen: 0 of 2 operators and problems are open",
    )
    half.retune(dict, lambda: False)
    assert sweeps == ["worse"]
    assert keeper.soon[launches] == launches, "the sweep is kept before its winner is timed"
    assert "worse 1x1: swept 8 configs with new" in said


@pytest.mark.parametrize(
    ("winner", "timed"), [({"config": OTHER}, ["new"]), ({"config": CONFIG}, []), (None, []), ("unswept", [])]
)
def test_only_a_winner_of_another_config_is_timed_after_a_sweep(
    tmp_path: Path, winner: dict[str, Params] | str | None, timed: list[str]
) -> None:
    report = make_report(make_pair("worse", "slow"))
    bench = MadeBench()
    half = make_half(report, tmp_path, bench)
    half.time_frozen(lambda: False)
    bench.labels.clear()
    if winner != "unswept":
        side = replace(report.pairs["worse", "1x1", "sm_90", "new"].head[0], cubin="retuned", **(winner or {}))  # type: ignore[arg-type]
        report.retunings["worse", "1x1", "h200", "new"] = Retuning(9, 8, side if winner else None)
    half.retune(dict, lambda: winner == "unswept")
    assert list(dict.fromkeys(bench.labels)) == timed
    assert len(report.retuned) == len(timed)


def test_a_head_that_does_not_compile_is_not_launched(tmp_path: Path) -> None:
    broken = make_pair("broken", "slow")
    broken = replace(broken, head=(CompiledSide(CONFIG, "error", 1.0, 1.0, "no such instruction"),))
    report = make_report(broken, make_pair("even", "same speed"))
    make_half(report, tmp_path, MadeBench()).time_frozen(lambda: False)
    assert [key[0] for key in report.frozen] == ["even"]


def test_a_failure_that_may_have_passed_is_tried_again_by_a_later_run(tmp_path: Path) -> None:
    """The GPU had no room while another program ran on it."""
    kernels = ("full", "wrong")
    report, bench = make_report(*(make_pair(kernel, "same speed") for kernel in kernels)), MadeBench()
    keys = {kernel: (kernel, "1x1", "h200", "new") for kernel in kernels} | {"b200": ("full", "1x1", "b200", "new")}
    full = Timing(failure="something ended the GPU process: out of memory", may_pass=True)
    report.frozen = {keys["full"]: full, keys["wrong"]: replace(full, may_pass=False), keys["b200"]: full}
    half = make_half(report, tmp_path, bench)
    half.file.save()
    again = read_report(tmp_path / "r.json")
    again.drop_passing_failures("h200")
    make_half(again, tmp_path, bench).time_frozen(lambda: False)
    assert {name: again.frozen[key].failure is None for name, key in keys.items()} == {
        "full": True,
        "wrong": False,
        "b200": False,
    }


def test_a_report_that_is_read_again_needs_no_launch_more(tmp_path: Path, sweeps: list[str]) -> None:
    report = make_report(make_pair("even", "same speed"), make_pair("worse", "slow"))
    half = make_half(report, tmp_path, MadeBench())
    half.time_frozen(lambda: False)
    half.retune(dict, lambda: False)
    again, bench = read_report(tmp_path / "r.json"), MadeBench()
    assert write_lines(again) == write_lines(report)
    half = make_half(again, tmp_path, bench)
    half.time_frozen(lambda: False)
    half.retune(dict, lambda: False)
    assert (bench.launches, sweeps) == (0, ["worse"])


def test_launches_on_another_gpu_model_answer_for_nothing_here(tmp_path: Path) -> None:
    report, bench = make_report(make_pair("even", "same speed")), MadeBench()
    report.frozen["even", "1x1", "b200", "new"] = Timing((100.0,) * 40, (100.0,) * 40)
    make_half(report, tmp_path, bench).time_frozen(lambda: False)
    assert len(report.frozen["even", "1x1", "h200", "new"].base_us) == bench.launches > 0


def test_what_was_not_reached_is_said_and_makes_the_answer_unknown(tmp_path: Path) -> None:
    report = make_report(make_pair("even", "same speed"), make_pair("other", "slow"))
    bench = MadeBench()
    make_half(report, tmp_path, bench).time_frozen(lambda: bench.launches > 0)
    assert bench.launches == 1
    lines = write_lines(report)
    assert "  unknown, not timed enough in the time given: even 1x1, other 1x1" in lines
    assert "cannot be called safe or not" in lines[0]


def test_minutes_are_minutes_and_frozen_pairs_leave_re_tuning_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each launch takes 10 s of a clock. At 120 s of 2 minutes there is time for one more."""
    bench, retuned_at, climbed_at = MadeBench(), list[int](), list[int]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 10.0 * bench.launches))
    monkeypatch.setattr(ToolchainTimer, "retune", lambda *_: retuned_at.append(bench.launches))
    monkeypatch.setattr(ToolchainTimer, "climb", lambda *_: climbed_at.append(bench.launches))
    for times, until in ((None, []), (dict, [int(FROZEN_SHARE * 12) + 1])):
        report = make_report(*(make_pair(f"even {number}", "same speed") for number in range(20)))
        bench.launches = 0
        assert make_half(report, tmp_path, bench).run(2.0, times)
        assert (bench.launches, retuned_at, climbed_at) == (13, until, [13] * len(until))
        assert report.gpus["h200"].wall_s == 60.0 + 130.0


def test_a_broken_architecture_without_a_gpu_counts_and_one_that_only_changed_does_not() -> None:
    changed = make_pair("even", "same speed")
    report = make_report(replace(changed, arch="sm_100"))
    assert judge_everything(report) == ()
    broken = replace(changed, arch="sm_100", head=(CompiledSide(CONFIG, "error", 1.0, 1.0, "no"),))
    on_gpu = make_pair("equal", "code of A")
    assert [each.safety for each in judge_everything(make_report(on_gpu, broken))] == ["safe", "not safe"]


def test_what_moved_in_the_code_is_listed_by_operator_for_architectures_without_a_gpu() -> None:
    facts = StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ())
    pair = make_pair("spills", "slow")
    moved = replace(
        pair,
        arch="sm_100",
        base=(replace(pair.base[0], facts=facts),),
        head=(replace(pair.head[0], facts=replace(facts, stack_bytes=40, code_bytes=8192)),),
    )
    longer = replace(moved, kernel="longer", head=(replace(moved.head[0], facts=replace(facts, code_bytes=8192)),))
    report = make_report(moved, replace(moved, problem="2x2"), longer)
    assert "    spills 1x1, 2x2: spills 0 -> 40 bytes, instructions 256 -> 512" in write_lines(report)
    assert "- sm_100 spills 1x1, 2x2: spills 0 -> 40 bytes, instructions 256 -> 512" in write_markdown(report)
    assert not any("longer" in line for line in write_lines(report)[1:])


def test_what_moved_in_the_code_is_said_of_operators_that_need_attention(tmp_path: Path) -> None:
    facts = StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ())
    pairs = (make_pair("even", "same speed"), make_pair("worse", "slow"))
    spills = [
        replace(
            pair,
            base=(replace(pair.base[0], facts=facts),),
            head=(replace(pair.head[0], facts=replace(facts, stack_bytes=40)),),
        )
        for pair in pairs
    ]
    report = make_report(*spills)
    make_half(report, tmp_path, MadeBench()).time_frozen(lambda: False)
    said = [line for line in write_lines(report) if line.startswith(("  safe: ", "  not safe: "))]
    assert [line.split(": ")[1] for line in said] == ["worse 1x1", "even 1x1"]
    assert [line.endswith(" (spills 0 -> 40 bytes)") for line in said] == [True, False]


def test_a_rung_times_the_baselines_that_became_faster_with_its_head_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = replace(make_pair("newer", "same speed"), arch="sm_100")  # the catalog knows it for no other
    report = make_report(make_pair("gemm", "same speed"), make_pair("norm", "same speed"), elsewhere)
    report.sides = (*report.sides, ToolchainName("rung", rung_of="new"))
    for kernel, ratio in (("gemm", 0.9), ("norm", 1.0)):
        head_us = tuple(100.0 * ratio + 0.02 * (launch % 3) for launch in range(20))
        report.baselines[kernel, "1x1", "h200", "new"] = Timing((100.0,) * 20, head_us)
    installed, other = Toolchain(INSTALLED, None), Toolchain("other", tmp_path)
    sides = [ComparedSide(each.name, installed, other if each.name != "old" else None) for each in report.sides]
    plans = {name: Plan(name, "1x1", "sm_90", "", 1, (), 1, 1, ("deepgemm",), ()) for name in ("gemm", "norm")}
    monkeypatch.setattr(module.catalog, "read", lambda *_, kernel, **__: [plans[kernel]])
    works: list[BaselineWork] = []
    monkeypatch.setattr(ToolchainTimer, "time_baselines", lambda _self, found, _is_spent: works.extend(found))
    half = make_half(report, tmp_path, MadeBench())
    half = replace(half, place=replace(half.place, sides=tuple(sides), cubins=tmp_path))
    half.climb(lambda: True)
    assert [(each.label, each.kernel) for each in works] == [("new", "gemm"), ("new", "norm"), ("rung", "gemm")]
    assert {(each.base, each.head) for each in works} == {(None, tmp_path)}


def test_mixes_of_base_and_head_are_timed_where_a_baseline_became_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = make_report(make_pair("gemm", "same speed"), make_pair("norm", "same speed"))
    report.sides = (*report.sides, ToolchainName("rung", rung_of="new"))
    fast_us = tuple(90.0 + 0.02 * (launch % 3) for launch in range(20))
    report.baselines["gemm", "1x1", "h200", "new"] = Timing((100.0,) * 20, fast_us)
    rung = ComparedSide("rung", Toolchain(INSTALLED, None), Toolchain("mixed", tmp_path / "mixed"))
    monkeypatch.setattr(module, "make_rungs", lambda *_: (rung,))
    plans = {name: Plan(name, "1x1", "sm_90", "", 1, (), 1, 1, ("deepgemm",), ()) for name in ("gemm", "norm")}
    monkeypatch.setattr(module.catalog, "read", lambda *_, kernel, **__: [plans[kernel]])
    works: list[BaselineWork] = []
    monkeypatch.setattr(ToolchainTimer, "time_baselines", lambda _self, found, _is_spent: works.extend(found))
    half = make_half(report, tmp_path, MadeBench())
    half.climb(lambda: False)
    assert [(each.label, each.kernel, each.base, each.head) for each in works] == [
        ("rung", "gemm", None, tmp_path / "mixed")
    ]


class BaselinesBench:
    """Times a head's baseline in 98 us, and the base's in 100."""

    def launch_each(self, works: Sequence[BaselineWork]) -> Iterator[tuple[BaselineWork, LaunchResult]]:
        for work in works:
            yield work, Launched(100.0, 98.0 + 0.02 * (work.launches % 3))


@pytest.mark.parametrize(("has_bench", "count", "timed"), [(True, 1, 1), (True, 0, 0), (False, 1, 0), (False, 0, 0)])
def test_baselines_are_timed_where_there_is_a_bench_for_them(
    tmp_path: Path, has_bench: bool, count: int, timed: int
) -> None:
    report, said = make_report(make_pair("gemm", "same speed")), list[str]()
    half = make_half(report, tmp_path, MadeBench())
    half = replace(half, baselines=BaselinesBench() if has_bench else None, on_progress=said.append)
    works = [BaselineWork("gemm", "1x1", "deepgemm", None, tmp_path, label="new")]
    half.time_baselines(works[:count], lambda: False)
    assert list(report.baselines) == [("gemm", "1x1", "h200", "new")] * timed
    assert bool(said) == bool(timed)
    if timed:
        (timing,) = report.baselines.values()
        assert len(timing.base_us) >= 9
        assert said[0] == "baselines: 1 of 1 operators and problems are open"


def test_a_file_that_is_no_report_is_named(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text("{}")
    with pytest.raises(BadReport, match=r"r.json is not a report of `tilewatch toolchain compare`"):
        read_report(file)
