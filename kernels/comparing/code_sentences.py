"""Describes how the code of two cubins differs."""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tilewatch.kernels.code_diff.code_diff import CodeDiff, CodeText, diff_code
from tilewatch.kernels.code_diff.tile_ir import BadTileIR
from tilewatch.kernels.compiling.disassembly import NotDisassembled, read_code_texts
from tilewatch.kernels.compiling.operator_code import DEPENDENT
from tilewatch.kernels.compiling.programs import ProgramMissing
from tilewatch.kernels.compiling.store import CubinStore

Pair = tuple[str, str]
"""The content keys of a base's cubin and of a head's cubin."""


@dataclass(frozen=True)
class CubinDiff:
    """The differences between two cubins. `launches` is empty if the cubins could not be read."""

    sentence: str
    launches: tuple[CodeDiff, ...] = ()


def write_code_sentences(store: CubinStore, pairs: Collection[Pair], *, jobs: int) -> dict[Pair, str]:
    """Maps each pair of cubins to a sentence about their differences."""
    with ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(lambda pair: (pair, diff_cubins(store, *pair).sentence), dict.fromkeys(pairs)))


def diff_cubins(store: CubinStore, base_key: str, head_key: str) -> CubinDiff:
    """Returns the differences between all launches of two cubins. Raises StoreError if the store cannot be read."""
    diff = _diff_code(store, base_key, head_key)
    sentences = [*_list_dependence(store, base_key, head_key), *([diff.sentence] if diff.sentence else [])]
    return CubinDiff(". ".join(sentences), diff.launches)


def _diff_code(store: CubinStore, base_key: str, head_key: str) -> CubinDiff:
    try:
        # A disassembler, which runs on one core, takes nearly all the time.
        with ThreadPoolExecutor(2) as pool:
            launches = pair_launches(*pool.map(lambda key: read_code_texts(store, key), (base_key, head_key)))
        if launches is None:
            return CubinDiff("other launches")
        diffs = tuple(diff_code(*each) for each in launches)
    except (BadTileIR, NotDisassembled, ProgramMissing) as error:
        return CubinDiff(f"not compared line by line: {error}")
    sentences = [diff.sentence for diff in diffs]
    named = sentences if len(sentences) == 1 else [f"launch {i} {each}" for i, each in enumerate(sentences, 1) if each]
    return CubinDiff(". ".join(named), diffs)


def _list_dependence(store: CubinStore, base_key: str, head_key: str) -> Iterator[str]:
    """Yields a sentence for each launch that is a programmatic dependent launch in only one version."""
    outcomes = [store.outcome(key) or {} for key in (base_key, head_key)]
    symbols = str(outcomes[1].get("symbol")).split("+")
    # the sides have equally many launches, but a bundle from before 2026-11-29 does not say which of them are
    flags = zip(*(each.get(DEPENDENT, ()) for each in outcomes), strict=False)
    for number, (symbol, (before, after)) in enumerate(zip(symbols, flags, strict=False), 1):
        if before != after:
            yield f"programmatic dependent launch of launch {number}, {symbol}: {'off -> on' if after else 'on -> off'}"


def pair_launches(base: dict[str, CodeText], head: dict[str, CodeText]) -> list[tuple[CodeText, CodeText]] | None:
    """Pairs the launches of two cubins. Returns None if the numbers of launches differ."""
    if len(base) != len(head):
        return None
    others = zip((key for key in base if key not in head), (key for key in head if key not in base), strict=True)
    pairs = (*((key, key) for key in base if key in head), *others)
    return [(base[base_key], head[head_key]) for base_key, head_key in pairs]
