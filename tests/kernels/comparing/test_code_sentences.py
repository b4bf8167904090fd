"""Pairing the launches of two operators, and what differs in how they are launched."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewatch.kernels.code_diff.code_diff import CodeText
from tilewatch.kernels.code_diff.tile_ir import BadTileIR
from tilewatch.kernels.comparing import code_sentences as module
from tilewatch.kernels.comparing.code_sentences import diff_cubins, pair_launches, write_code_sentences
from tilewatch.kernels.compiling.disassembly import NotDisassembled
from tilewatch.kernels.compiling.operator_code import store_bundle
from tilewatch.kernels.compiling.programs import ProgramMissing
from tilewatch.kernels.compiling.store import CubinStore, folder

LAUNCHES = ("load", "square", "sum", "scale", "store")


def make_texts(suffix: str, kept: str) -> dict[str, CodeText]:
    """Makes launches whose keys differ between suffixes, but for one."""
    return {name if name == kept else f"{name}-{suffix}": CodeText(f"{name}-{suffix}", None) for name in LAUNCHES}


def test_launches_whose_code_changed_are_paired_in_their_order() -> None:
    """A set would give them in another order in each process, and pair the loads of one with the stores of another."""
    pairs = pair_launches(make_texts("old", "sum"), make_texts("new", "sum"))
    wanted = [("sum-old", "sum-new"), *((f"{each}-old", f"{each}-new") for each in LAUNCHES if each != "sum")]
    assert [(base.sass, head.sass) for base, head in pairs or ()] == wanted


def test_another_number_of_launches_is_not_paired() -> None:
    head = make_texts("new", "sum")
    del head["load-new"]
    assert pair_launches(make_texts("old", "sum"), head) is None


@dataclass(frozen=True)
class Launch:
    launch_key: str
    symbol: str
    programmatic_dependent_launch: bool


def store_operator(store: CubinStore, *dependent: bool) -> str:
    """Stores an operator whose launches are the same code, with these of them dependent; its content key."""
    facts = {"registers": 1, "stack_bytes": 0, "shared_bytes": 0, "code_bytes": 16, "cubin_bytes": 1, "remarks": []}
    facts |= dict.fromkeys(("tma_loads", "loads", "tensor_core_mmas", "mmas"), 0)
    common: dict[str, Any] = {"status": "ok", "reused": False, "compile_s": 1.0, "cpu_s": 1.0, "facts": facts}
    launches = [Launch(f"key {symbol}", symbol, each) for symbol, each in zip(LAUNCHES, dependent, strict=False)]
    outcomes = {}
    for each in launches:
        outcomes[each.launch_key] = {**common, "content_key": f"code-{each.symbol}", "code_sha256": each.symbol}
        store.put(f"code-{each.symbol}", outcomes[each.launch_key], b"no cubin")
    return str(store_bundle(store, launches, outcomes)["content_key"])


@pytest.mark.parametrize(
    ("base", "head", "wanted"),
    [
        ((False, False), (False, True), ["launch 2, square: off -> on"]),
        ((True, True), (False, False), ["launch 1, load: on -> off", "launch 2, square: on -> off"]),
        ((False, True), (False, True), []),
    ],
)
def test_a_programmatic_dependent_launch_on_one_side_is_named(
    tmp_path: Path, base: tuple[bool, ...], head: tuple[bool, ...], wanted: list[str]
) -> None:
    """Even where no disassembler can read the code."""
    store = CubinStore(folder(tmp_path))
    sentence = diff_cubins(store, store_operator(store, *base), store_operator(store, *head)).sentence
    named = [each for each in sentence.split(". ") if each.startswith("programmatic")]
    assert named == [f"programmatic dependent launch of {each}" for each in wanted]


def test_a_bundle_that_does_not_say_how_it_is_launched_is_not_taken_for_another(tmp_path: Path) -> None:
    store = CubinStore(folder(tmp_path))
    store.put("before-2026-11-29", {"status": "ok", "symbol": "load+square"}, b"no cubin")
    assert "programmatic" not in diff_cubins(store, "before-2026-11-29", store_operator(store, False, True)).sentence


def give_texts(monkeypatch: pytest.MonkeyPatch, **texts: tuple[str, ...] | Exception) -> None:
    """Makes these the texts of the launches of each cubin. Launches of other texts differ in a word."""

    def read(_: CubinStore, key: str) -> dict[str, CodeText]:
        found = texts[key]
        if isinstance(found, Exception):
            raise found
        return {f"launch {number}": CodeText(text, None) for number, text in enumerate(found)}

    def diff(base: CodeText, head: CodeText) -> SimpleNamespace:
        return SimpleNamespace(sentence="" if base == head else f"{base.sass} -> {head.sass}")

    monkeypatch.setattr(module, "read_code_texts", read)
    monkeypatch.setattr(module, "diff_code", diff)


@pytest.mark.parametrize(
    ("head", "sentence", "compared"),
    [
        (("x", "y", "z"), "", 3),
        (("x", "Y", "z"), "launch 2 y -> Y", 3),
        (("X", "y", "Z"), "launch 1 x -> X. launch 3 z -> Z", 3),
        (("x", "y"), "other launches", 0),
        (BadTileIR("line 3"), "not compared line by line: line 3", 0),
        (NotDisassembled("no text"), "not compared line by line: no text", 0),
        (ProgramMissing("no nvdisasm"), "not compared line by line: no nvdisasm", 0),
    ],
)
def test_each_launch_that_differs_is_named_or_why_none_was_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    head: tuple[str, ...] | Exception,
    sentence: str,
    compared: int,
) -> None:
    give_texts(monkeypatch, base=("x", "y", "z"), head=head)
    found = diff_cubins(CubinStore(folder(tmp_path)), "base", "head")
    assert (found.sentence, len(found.launches)) == (sentence, compared)


def test_an_only_launch_has_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_texts(monkeypatch, a=("x",), b=("y",), c=("x", "y"))
    pairs = [("a", "b"), ("b", "a"), ("a", "b"), ("a", "a"), ("a", "c")]
    found = write_code_sentences(CubinStore(folder(tmp_path)), pairs, jobs=2)
    sentences = {("a", "b"): "x -> y", ("b", "a"): "y -> x", ("a", "a"): "", ("a", "c"): "other launches"}
    assert found == sentences
