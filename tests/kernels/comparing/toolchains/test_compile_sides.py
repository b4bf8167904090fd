"""Code of several toolchains, without a compiler: whose result is whose, and which cubins are kept."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from tilewatch.kernels.comparing.configs import Candidates, ConfigSource
from tilewatch.kernels.comparing.targets import Library, Selection, Target
from tilewatch.kernels.comparing.toolchains import compile_sides
from tilewatch.kernels.comparing.toolchains.compile_sides import (
    AT_ONCE,
    Chosen,
    ComparedSide,
    Workplace,
    compile_missing,
    compile_pairs,
    hash_code,
)
from tilewatch.kernels.comparing.toolchains.mma_waits import MmaWaits
from tilewatch.kernels.comparing.toolchains.pairs import ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import BadReport, ToolchainName, ToolchainReport
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.library_errors import NoConfigs
from tilewatch.kernels.results import Compiled, Params, Plan
from tilewatch.kernels.toolchains.toolchain import Toolchain

SMALL, LARGE = {"tile_m": 64}, {"tile_m": 128}


class MadePool:
    """Compiles a kernel to its name, for toolchains other than the base with its tile; those named "broken" fail."""

    opened: list[tuple[str, int, float]]
    batches: list[tuple[str, int]]

    def __init__(self, store_url: str, *, jobs: int, limit_s: float, toolchain: Toolchain) -> None:
        self._store, self._name = CubinStore(store_url), toolchain.name
        self.opened.append((toolchain.name, jobs, limit_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start_all(self, works: Sequence[Callable[["MadePool"], Compiled]]) -> list[Future[Compiled]]:
        self.batches.append((self._name, len(works)))
        started: list[Future[Compiled]] = [Future() for _ in works]
        for each, work in zip(started, works, strict=True):
            each.set_result(work(self))
        return started

    def compile(self, library: Path, kernel: str, _problem: str, config: Params, arch: str) -> Compiled:
        assert library == Path("library")
        compiler = f"tile of {self._name} limit 15"
        if kernel == f"broken by {self._name}":
            return Compiled("error", compiler, arch, 1.0, 1.0, False, "no such instruction")
        code = f"{kernel} {config['tile_m']}{'' if kernel == 'same' else f' of {self._name}'}"
        key = hashlib.sha256(code.encode()).hexdigest()
        self._store.put(key, {}, code.encode())
        return Compiled("ok", compiler, arch, 1.0, 1.0, False, None, key, code, f"symbol of {self._name}")


@pytest.fixture(autouse=True)
def made_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_sides, "CompilerPool", MadePool)
    monkeypatch.setattr(MadePool, "opened", [], raising=False)
    monkeypatch.setattr(MadePool, "batches", [], raising=False)
    monkeypatch.setattr(compile_sides, "list_code", lambda cubin: {"": cubin})
    monkeypatch.setattr(compile_sides, "hash_machine_code", lambda cubin, **_: cubin.decode())
    monkeypatch.setattr(compile_sides, "count_mma_waits", lambda cubins: MmaWaits(len(list(cubins)), 16))


def make_place(root: Path, *drivers: str, jobs: int = 7) -> Workplace:
    """The toolchain "old", and "one" and "two" with these drivers."""
    names = ("old", "one", "two")
    named = zip(names, ("", *drivers, "", "")[:3], strict=True)
    sides = tuple(
        ComparedSide(f"{name}@{driver}", Toolchain(name, root / name), driver=driver) for name, driver in named
    )
    return Workplace(Path("library"), sides, root / "cubins", jobs, 15.0)


def choose(kernel: str, *configs: Params, arch: str = "sm_100") -> Chosen:
    return Target(kernel, "1x1", arch, None, None), Candidates(ConfigSource.shipped, configs or (SMALL,), ())


def compare(place: Workplace, *chosen: Chosen) -> dict[tuple[str, str], ToolchainPair]:
    return {(pair.kernel, pair.head_name): pair for pair in compile_pairs(place, chosen, lambda _: None)}


def test_each_result_is_that_of_its_operator_config_and_toolchain(tmp_path: Path) -> None:
    chosen = [choose("a"), choose("b", SMALL, LARGE), choose("c", LARGE)]
    versions: list[Mapping[str, str]] = []
    pairs = list(compile_pairs(make_place(tmp_path), chosen, versions.append))
    assert [(pair.kernel, pair.head_name) for pair in pairs] == [
        (kernel, head) for kernel in "abc" for head in ("one@", "two@")
    ]
    for pair in pairs:
        tiles = {"a": [64], "b": [64, 128], "c": [128]}[pair.kernel]
        for name, side in (("old", pair.base), (pair.head_name.rstrip("@"), pair.head)):
            assert [each.code_sha256 for each in side] == [f"{pair.kernel} {tile} of {name}" for tile in tiles]
            assert [each.config["tile_m"] for each in side] == tiles
        assert (pair.kind, pair.config_source, pair.arch) == ("changed", "shipped", "sm_100")
    assert versions == [{"old": "tile of old", "one": "tile of one", "two": "tile of two"}]


@pytest.mark.parametrize(("jobs", "each"), [(7, 2), (3, 1), (1, 1)])
def test_toolchains_share_the_compilers_and_each_has_one(tmp_path: Path, jobs: int, each: int) -> None:
    compare(make_place(tmp_path, jobs=jobs), choose("a"))
    assert MadePool.opened == [(name, each, 15.0) for name in ("old", "one", "two")]


def test_many_operators_are_compiled_in_batches_of_all_toolchains(tmp_path: Path) -> None:
    versions: list[Mapping[str, str]] = []
    chosen = [choose(str(number)) for number in range(AT_ONCE + 1)]
    pairs = list(compile_pairs(make_place(tmp_path), chosen, versions.append))
    assert MadePool.batches == [(name, count) for count in (AT_ONCE, 1) for name in ("old", "one", "two")]
    assert [pair.kernel for pair in pairs] == [str(number) for number in range(AT_ONCE + 1) for _ in range(2)]
    assert len(versions) == 1


@pytest.mark.parametrize(
    ("kernel", "driver", "kind", "kept"),
    [
        ("same", "", "identical", (False, False)),
        ("same", "580.1", "identical", (True, True)),
        ("other", "", "changed", (True, True)),
        ("broken by one", "", "stopped compiling", (True, False)),
        ("broken by one", "580.1", "stopped compiling", (True, False)),
        ("broken by old", "", "compiles now", (False, False)),
        ("broken by old", "580.1", "compiles now", (False, False)),
    ],
)
def test_cubins_are_kept_where_both_sides_may_have_to_be_timed(
    tmp_path: Path, kernel: str, driver: str, kind: str, kept: tuple[bool, bool]
) -> None:
    place = make_place(tmp_path, driver)
    pair = compare(place, choose(kernel, SMALL, LARGE))[kernel, f"one@{driver}"]
    assert (pair.kind, (pair.base[0].cubin is not None, pair.head[0].cubin is not None)) == (kind, kept)
    assert {each.cubin for each in (*pair.base[1:], *pair.head[1:])} == {None}, "only the preferred config is timed"
    store = CubinStore(place.shared_store)
    for name, side in (("old", pair.base[0]), ("one", pair.head[0])):
        if side.cubin is not None:
            wanted = f"{kernel} 64{'' if kernel == 'same' else f' of {name}'}".encode()
            assert (store.cubin(side.cubin), side.cubin) == (wanted, hashlib.sha256(wanted).hexdigest())


def test_only_code_for_hopper_has_waits_for_its_mmas(tmp_path: Path) -> None:
    for arch, waits in (("sm_90", MmaWaits(1, 16)), ("sm_100", None)):
        pair = compare(make_place(tmp_path), choose("a", arch=arch))["a", "one@"]
        assert (pair.base[0].waits, pair.head[0].waits) == (waits, waits)


def test_stores_are_those_of_each_toolchain_unless_a_fleet_shares_one(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    assert place.find_store("one").endswith("/cubins/compiled/one")
    assert place.shared_store.endswith("/cubins/changed")
    shared = replace(place, store_url="s3://cubins")
    assert (shared.find_store("one"), shared.shared_store) == ("s3://cubins", "s3://cubins")
    assert place.find_side("two@").toolchain.name == "two"


@pytest.mark.parametrize(
    ("cubins", "other", "is_same"),
    [
        ({"": b"a"}, {"": b"a"}, True),
        ({"": b"a"}, {"": b"b"}, False),
        ({"x": b"a", "y": b"b"}, {"y": b"b", "x": b"a"}, True),
        ({"x": b"a", "y": b"b"}, {"x": b"b", "y": b"a"}, False),
        ({"x": b"a"}, {"x": b"a", "y": b"b"}, False),
    ],
)
def test_code_of_several_launches_is_equal_if_each_launch_is(cubins: Any, other: Any, is_same: bool) -> None:
    assert (hash_code(cubins) == hash_code(other)) is is_same


class Keeper:
    """Counts how often a report is saved."""

    def __init__(self) -> None:
        self.soon = self.surely = 0

    def save_soon(self) -> None:
        self.soon += 1

    def save(self) -> None:
        self.surely += 1


def begin_report(place: Workplace, **of_sides: Any) -> ToolchainReport:
    return ToolchainReport(tuple(ToolchainName(side.name, **of_sides) for side in place.sides), "2026-11-22 07:00 UTC")


def test_the_pairs_that_a_report_lacks_are_compiled_and_saved_one_by_one(tmp_path: Path) -> None:
    place, keeper, said = make_place(tmp_path), Keeper(), list[str]()
    report = begin_report(place)
    report.static_wall_s = 100.0
    kernels = [f"k{number}" for number in range(11)]
    chosen = [choose(kernel, SMALL, LARGE) for kernel in kernels]
    compile_missing(place, report, keeper, chosen, said.append)
    assert list(report.pairs) == [(kernel, "1x1", "sm_100", head) for kernel in kernels for head in ("one@", "two@")]
    assert (report.static_jobs, keeper.soon, keeper.surely) == (7, 22, 1)
    assert report.static_wall_s >= 100.0
    assert said[0] == "compiling 22 configs of 11 operators and problems with old@ and one@ and two@"
    assert [re.sub(r"\d+ s$", "seconds", line) for line in said[1:]] == [
        f"  {done} of 22 after seconds" for done in (20, 22)
    ]
    assert [side.compiler for side in report.sides] == ["tile of old", "tile of one", "tile of two"]
    MadePool.batches.clear()
    compile_missing(place, report, keeper, chosen, said.append)
    assert (MadePool.batches, len(said), keeper.surely) == ([], 3, 1)


@pytest.mark.parametrize("lost", ["lacking", "not final"])
def test_an_operator_is_compiled_again_unless_each_head_has_a_final_result(tmp_path: Path, lost: str) -> None:
    place, said = make_place(tmp_path), list[str]()
    report = begin_report(place)
    chosen = [choose("a"), choose("b")]
    compile_missing(place, report, Keeper(), chosen, said.append)
    known = dict(report.pairs)
    key = ("b", "1x1", "sm_100", "two@")
    pair = report.pairs.pop(key)
    if lost == "not final":
        report.pairs[key] = replace(pair, head=(replace(pair.head[0], is_final=False),))
    MadePool.batches.clear()
    compile_missing(place, report, Keeper(), chosen, said.append)
    assert report.pairs == known
    assert MadePool.batches == [(name, 1) for name in ("old", "one", "two")]


def test_a_report_is_not_continued_with_another_version_of_a_toolchain(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    report = begin_report(place)
    *others, last = report.sides
    report.sides = (*others, replace(last, compiler="tile of another"), ToolchainName("mix", "tile"))
    with pytest.raises(BadReport, match="two@ was tile of another and is now tile of two; name another file"):
        compile_missing(place, report, Keeper(), [choose("a")], lambda _: None)
    report.sides = (*others, replace(last, compiler="tile of two"), ToolchainName("mix", "tile"))
    compile_missing(place, report, Keeper(), [choose("a")], lambda _: None)
    assert [side.compiler for side in report.sides] == ["tile of old", "tile of one", "tile of two", "tile"]


@pytest.mark.parametrize(
    ("gpu", "arch", "asked"), [("h200", "sm_90", "h200"), ("h200", "sm_100", "sm_100"), ("", "sm_90", "sm_90")]
)
def test_configs_are_those_of_the_gpu_model_on_its_own_architecture_alone(
    monkeypatch: pytest.MonkeyPatch, gpu: str, arch: str, asked: str
) -> None:
    plan = Plan("k", "1x1", arch, "source", 1, (), 1, 1, (), ())
    target, broken = Target("k", "1x1", arch, plan, plan), Target("left out", "on both sides", arch, None, None)
    found, calls = Candidates(ConfigSource.shipped, (SMALL,), (SMALL,)), list[object]()

    def choose_configs(*given: object, may_sweep: bool) -> Candidates:
        calls.append((*given, may_sweep))
        return found

    monkeypatch.setattr(compile_sides, "list_targets", lambda base, head, _: (broken, target) if base == head else ())
    monkeypatch.setattr(compile_sides, "choose_configs", choose_configs)
    winners, source = (), ConfigSource.auto
    selections = [Selection((arch,), "k"), Selection((arch,), "k")]
    chosen = compile_sides.choose(Path("library"), selections, winners, source, gpu, pytest.fail)
    assert chosen == ((target, found),), "once"
    assert calls == [(target, asked, winners, source, False)] * 2


def test_a_kernel_without_configs_is_named_and_is_an_error_if_there_is_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, said = Plan("k", "1x1", "sm_90", "source", 1, (), 1, 1, (), ()), list[str]()
    found = Candidates(ConfigSource.shipped, (SMALL,), (SMALL,))

    def list_targets(_base: Library, _head: Library, selection: Selection) -> tuple[Target, ...]:
        if selection.kernel != "k":
            raise NoConfigs(f"{selection.kernel} has no config")
        return (Target("k", "1x1", "sm_90", plan, plan),)

    def select(*kernels: str) -> tuple[Chosen, ...]:
        selections = [Selection(("sm_90",), kernel) for kernel in kernels]
        return compile_sides.choose(Path("library"), selections, (), ConfigSource.auto, "", said.append)

    monkeypatch.setattr(compile_sides, "list_targets", list_targets)
    monkeypatch.setattr(compile_sides, "choose_configs", lambda *_, **__: found)
    assert [target.kernel for target, _ in select("a", "k", "b")] == ["k"]
    assert said == ["left out: a has no config", "left out: b has no config"]
    with pytest.raises(NoConfigs, match="a has no config"):
        select("a", "b")
    monkeypatch.setattr(compile_sides, "choose_configs", lambda *_, **__: None)
    assert select("k") == ()
