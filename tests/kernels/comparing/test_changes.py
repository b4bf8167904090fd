"""Which code of two sides is equal, which is broken and which is compared, without a compiler."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tilewatch.kernels.comparing import changes as module
from tilewatch.kernels.comparing.changes import Changed, Code, Comparison, end_if_identical, machine_codes
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.targets import Library, Target
from tilewatch.kernels.compiling.compiler import CodeIdentity
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.results import Compiled

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
    both, one = make_changed((compiled("a"),), (compiled("b"),)), make_changed((compiled("a"),), (compiled(None),))
    found = module._explain(make_comparison(), [both, one])
    assert asked == [("key of a", "key of b")]
    assert [each.code_sentence for each in found] == ["key of a to key of b by 1", ""]


def test_code_of_equal_static_facts_is_unchanged_and_of_another_config_changed() -> None:
    comparison = make_comparison()
    equal = make_changed((compiled("a"),), (compiled("b"),))
    other = make_changed((compiled("a"),), (compiled("a", config=OTHER),))
    module.end_by_static_facts(comparison, [equal, other])
    assert [each.kind for each in comparison.outcomes.values()] == ["unchanged", "changed"]
    assert comparison.outcomes[other.target].moved == ("config tile_m=64 -> tile_m=128",)
