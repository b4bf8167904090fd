"""Which code of two sides is equal, which is broken and which is compared, without a compiler."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tilewatch.kernels.comparing import changes as module
from tilewatch.kernels.comparing.changes import (
    Changed,
    Code,
    Comparison,
    end_if_identical,
    find_changed,
    machine_codes,
)
from tilewatch.kernels.comparing.configs import Candidates, ConfigSource
from tilewatch.kernels.comparing.targets import Library, Target
from tilewatch.kernels.compiling.compiler import CodeIdentity
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.results import Compiled, Params, Plan, StaticFacts

CONFIG, OTHER = {"tile_m": 64}, {"tile_m": 128}


def compiled(code: str | None, launch: str = "grid", config: dict[str, int] = CONFIG, failure: str = "no") -> Code:
    """A config whose machine code has this hash, or that does not compile."""
    identity = CodeIdentity(f"key of {code}", launch)
    if code is None:
        return Code(config, identity, Compiled("error", "c", "sm_90", 1.0, 1.0, False, failure))
    return Code(config, identity, Compiled("ok", "c", "sm_90", 1.0, 1.0, False, None, f"key of {code}", code, "k"))


def refused(failure: str, config: dict[str, int] = CONFIG) -> Code:
    return Code(config, CodeIdentity(failure=failure))


def make_changed(base: tuple[Code, ...], head: tuple[Code, ...]) -> Changed:
    return Changed(Target("gemm", "1x2x3", "sm_90", None, None), ConfigSource.auto, base, head)


def make_comparison() -> Comparison:
    pool = cast("CompilerPool", SimpleNamespace(store_url="file:///store", jobs=1))
    return Comparison(Library("old", Path("old")), Library("new", Path("new")), "", pool, tuple)


@pytest.mark.parametrize(
    ("base", "head", "is_same"),
    [
        ((compiled("a"),), (compiled("a"),), True),
        ((compiled("a"),), (compiled("b"),), False),
        ((compiled("a"),), (compiled("a", launch="larger grid"),), False),
        ((compiled("a"),), (compiled("a", config=OTHER),), True),
        ((compiled("a"), compiled(None, config=OTHER)), (compiled("a"), compiled(None, config=OTHER)), True),
        ((compiled("a"), compiled("b", config=OTHER)), (compiled("a"), compiled("c", config=OTHER)), False),
        ((compiled("a"), compiled("b", config=OTHER)), (compiled("b"), compiled("a", config=OTHER)), False),
        ((compiled(None),), (compiled(None),), False),
    ],
)
def test_code_is_equal_if_each_config_has_equal_machine_code_and_an_equal_launch(
    base: tuple[Code, ...], head: tuple[Code, ...], is_same: bool
) -> None:
    comparison, changed = make_comparison(), make_changed(base, head)
    assert end_if_identical(comparison, changed, machine_codes) == is_same
    assert [each.kind for each in comparison.outcomes.values()] == ["identical"] * is_same


@pytest.mark.parametrize(
    ("base", "head", "kind", "reason"),
    [
        ((compiled("a"),), (compiled("b"),), None, ""),
        ((compiled("a"),), (compiled(None),), "failed", "new does not compile: no"),
        ((refused("no such name"),), (compiled("a"),), "failed", "old does not compile: no such name"),
        ((refused("off"),), (refused("off"),), "neither", "off"),
        ((compiled(None),), (compiled(None),), "neither", "no"),
        ((compiled(None),), (compiled(None, failure="other"),), "failed", "old does not compile: no"),
        ((compiled(None), compiled("a", config=OTHER)), (compiled("b"),), None, ""),
    ],
)
def test_a_side_of_which_no_config_compiles_is_named(
    base: tuple[Code, ...], head: tuple[Code, ...], kind: str | None, reason: str
) -> None:
    comparison, changed = make_comparison(), make_changed(base, head)
    assert module._end_if_broken(comparison, changed) == (kind is not None)
    found = [(each.kind, each.reason) for each in comparison.outcomes.values()]
    assert found == ([] if kind is None else [(kind, reason)])


def test_lines_are_compared_where_both_preferred_configs_have_a_cubin(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def write(_: object, wanted: list[tuple[str, str]], *, jobs: int) -> dict[tuple[str, str], str]:
        asked.extend(wanted)
        return {pair: f"{pair[0]} to {pair[1]} by {jobs}" for pair in wanted}

    monkeypatch.setattr(module, "write_code_sentences", write)
    both = make_changed((compiled("a"),), (compiled("b"),))
    alone = [make_changed((compiled(base),), (compiled(head),)) for base, head in (("a", None), (None, "b"))]
    found = module._explain(make_comparison(), [both, *alone])
    assert asked == [("key of a", "key of b")]
    assert [each.code_sentence for each in found] == ["key of a to key of b by 1", "", ""]


def test_code_of_equal_static_facts_is_unchanged_and_of_another_config_changed() -> None:
    comparison = make_comparison()
    equal = make_changed((compiled("a"),), (compiled("b"),))
    other = make_changed((compiled("a"),), (compiled("a", config=OTHER),))
    module.end_by_static_facts(comparison, [equal, other])
    assert [each.kind for each in comparison.outcomes.values()] == ["unchanged", "changed"]
    assert comparison.outcomes[other.target].moved == ("config tile_m=64 -> tile_m=128",)


def test_an_outcome_has_what_is_known_of_both_preferred_configs() -> None:
    facts = StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ())

    def add_facts(code: Code, **moved: int) -> Code:
        assert code.compiled is not None
        return replace(code, compiled=replace(code.compiled, facts=replace(facts, **moved)))

    base, head = add_facts(compiled("a")), add_facts(compiled("b", config=OTHER), registers=168)
    changed = replace(make_changed((base, head), (head, base)), code_sentence="line 3 differs")
    found = changed.outcome()
    assert found.moved == ("config tile_m=64 -> tile_m=128", "registers 128 -> 168", "code: line 3 differs")
    assert (found.base_facts, found.head_facts) == (facts, replace(facts, registers=168))
    assert (found.base_config, found.head_config, found.config_source) == (CONFIG, OTHER, ConfigSource.auto)
    assert (found.kernel, found.problem, found.arch, found.kind) == ("gemm", "1x2x3", "sm_90", "changed")
    assert changed.outcome(kind="slower", reason="why") == replace(found, kind="slower", reason="why")
    before = make_changed((Code(CONFIG, base.identity),), (Code(CONFIG, head.identity),)).outcome()
    assert (before.moved, before.base_facts, before.head_facts) == ((), None, None)
    comparison = make_comparison()
    same_config = make_changed((add_facts(compiled("a")),), (add_facts(compiled("b"), registers=168),))
    module.end_by_static_facts(comparison, [same_config])
    assert comparison.outcomes[same_config.target].kind == "changed"


class MadePool:
    """Compiles what `codes` has by folder, kernel and tile: a hash, or None for code that does not compile."""

    store_url, jobs = "file:///store", 1

    def __init__(self, codes: dict[tuple[str, str, int], str | None]) -> None:
        self._codes = codes
        self.identified: list[tuple[str, str, str, str, Params]] = []
        self.compiled: list[tuple[str, str, str, str, Params]] = []

    def run_all(self, works: Sequence[Callable[["MadePool"], Any]]) -> list[Any]:
        return [work(self) for work in works]

    def identify(self, library: Path, kernel: str, problem: str, config: Params, arch: str) -> CodeIdentity:
        self.identified.append((library.name, kernel, problem, arch, config))
        code = self._codes[library.name, kernel, config["tile_m"]]
        return CodeIdentity(failure="off") if code == "refused" else CodeIdentity(f"key of {code}", "grid")

    def compile(self, library: Path, kernel: str, problem: str, config: Params, arch: str) -> Compiled:
        self.compiled.append((library.name, kernel, problem, arch, config))
        found = compiled(self._codes[library.name, kernel, config["tile_m"]]).compiled
        assert found is not None
        return found


def make_plan(kernel: str, arch: str, source: str) -> Plan:
    return Plan(kernel, "1x1", arch, source, 1, (), 1, 1, (), ())


def make_target(kernel: str, base: str | None = "old", head: str | None = "new", arch: str = "sm_90") -> Target:
    """A kernel whose file has these texts in both versions."""
    plans = [None if source is None else make_plan(kernel, arch, source) for source in (base, head)]
    return Target(kernel, "1x1", arch, plans[0], plans[1])


def start(pool: MadePool, **settings: Any) -> Comparison:
    libraries = (Library("old", Path("old")), Library("new", Path("new")))
    return Comparison(*libraries, **{"gpu": "", "pool": cast("CompilerPool", pool), "winners": tuple, **settings})


def list_kinds(comparison: Comparison) -> dict[str, str]:
    return {target.kernel: outcome.kind for target, outcome in comparison.outcomes.items()}


SAME, OTHERS = Candidates(ConfigSource.given, (CONFIG,), (CONFIG,)), Candidates(ConfigSource.given, (CONFIG,), (OTHER,))


def test_only_a_kernel_that_both_versions_have_in_other_files_is_compiled() -> None:
    failing = Target("failing", "1x1", "sm_90", make_plan("failing", "sm_90", "old"), None, "new: no such table")
    left_out = Target("left out", "on both sides", "sm_90", None, None, "no such table")
    targets = [make_target("same", "old", "old"), make_target("added", None), make_target("removed", head=None)]
    pool = MadePool({})
    comparison = start(pool, winners=lambda: pytest.fail("no winner is needed"))
    assert find_changed(comparison, [*targets, failing, left_out]) == []
    assert pool.identified == []
    assert list_kinds(comparison) == {
        "same": "identical",
        "added": "added",
        "removed": "removed",
        "failing": "failed",
        "left out": "neither",
    }
    reasons = {target.kernel: outcome.reason for target, outcome in comparison.outcomes.items()}
    assert (reasons["failing"], reasons["left out"], reasons["same"]) == ("new: no such table", "no such table", "")


@pytest.fixture
def no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "write_code_sentences", lambda _, pairs, **__: dict.fromkeys(pairs, "other lines"))


@pytest.mark.usefixtures("no_disassembler")
@pytest.mark.parametrize(("given", "kind"), [(SAME, "identical"), (OTHERS, None)])
def test_an_equal_file_is_compared_where_two_configs_are_given(given: Candidates, kind: str | None) -> None:
    comparison = start(MadePool({("old", "same", 64): "a", ("new", "same", 128): "b"}), given=given)
    changed = find_changed(comparison, [make_target("same", "old", "old")])
    assert list_kinds(comparison) == ({"same": kind} if kind else {})
    assert [(each.source, each.base[0].config, each.head[0].config) for each in changed] == (
        [] if kind else [(ConfigSource.given, CONFIG, OTHER)]
    )


@pytest.mark.usefixtures("no_disassembler")
def test_equal_code_is_compiled_once_and_told_from_other_code() -> None:
    codes: dict[tuple[str, str, int], str | None] = {
        ("old", "equal", 64): "a", ("new", "equal", 64): "a", ("old", "changed", 64): "a", ("new", "changed", 64): "b",
        ("old", "also changed", 64): "b", ("new", "also changed", 64): "c",
        ("old", "broken", 64): "d", ("new", "broken", 64): None,
        ("old", "refused", 64): "d", ("new", "refused", 64): "refused",
    }  # fmt: skip
    pool = MadePool(codes)
    comparison = start(pool, given=SAME, winners=lambda: pytest.fail("no winner is needed"))
    kernels = ("equal", "changed", "also changed", "broken", "refused")
    targets = [make_target(each) for each in kernels]
    changed = find_changed(comparison, [*targets, make_target("changed", arch="sm_100")])
    assert [(each.target.kernel, each.target.arch, each.code_sentence) for each in changed] == [
        ("changed", "sm_90", "other lines"),
        ("also changed", "sm_90", "other lines"),
        ("changed", "sm_100", "other lines"),
    ]
    assert list_kinds(comparison) == {"equal": "identical", "broken": "failed", "refused": "failed"}
    assert [(library, kernel, arch) for library, kernel, _, arch, _ in pool.compiled] == [
        ("old", "changed", "sm_90"),
        ("new", "changed", "sm_90"),
        ("new", "also changed", "sm_90"),
        ("old", "broken", "sm_90"),
        ("new", "broken", "sm_90"),
        ("old", "changed", "sm_100"),
        ("new", "changed", "sm_100"),
    ]
    assert [[code.cubin.content_key for code in (*each.base, *each.head) if code.cubin] for each in changed[:2]] == [
        ["key of a", "key of b"],
        ["key of b", "key of c"],
    ]


@pytest.mark.usefixtures("no_disassembler")
@pytest.mark.parametrize(
    ("gpu", "may_race", "wanted"),
    [("h200", True, ("h200", True)), ("h200", False, ("h200", False)), ("", True, ("sm_90", False))],
)
def test_configs_are_chosen_for_the_gpu_and_swept_on_it_alone(
    monkeypatch: pytest.MonkeyPatch, gpu: str, may_race: bool, wanted: tuple[str, bool]
) -> None:
    asked: list[tuple[object, ...]] = []

    def choose(target: Target, of: str, winners: object, source: ConfigSource, *, may_sweep: bool) -> Candidates | None:
        asked.append((target.kernel, of, winners, source, may_sweep))
        return None if target.kernel == "unknown" else Candidates(ConfigSource.recording, (CONFIG, OTHER), (OTHER,))

    monkeypatch.setattr(module, "choose_configs", choose)
    pool = MadePool({("old", "k", 64): "a", ("old", "k", 128): "b", ("new", "k", 128): "b"})
    settings = {"gpu": gpu, "may_race": may_race, "source": ConfigSource.recording, "winners": lambda: ("winner",)}
    comparison = start(pool, **settings)
    (changed,) = find_changed(comparison, [make_target("k"), make_target("unknown")])
    assert asked == [(name, wanted[0], ("winner",), ConfigSource.recording, wanted[1]) for name in ("k", "unknown")]
    assert [[each.config for each in side] for side in (changed.base, changed.head)] == [[CONFIG, OTHER], [OTHER]]
    assert [(*each[:2], each[4]["tile_m"]) for each in pool.identified] == [
        ("old", "k", 64),
        ("old", "k", 128),
        ("new", "k", 128),
    ]
    (unknown,) = comparison.outcomes.values()
    assert unknown.reason == "there is no recording of it to take a config from"
