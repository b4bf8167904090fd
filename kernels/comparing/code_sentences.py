"""Says of pairs of cubins which source lines differ and what that did to the instructions (kernels/code_diff)."""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

from tilewatch.kernels.code_diff.code_diff import CodeText, diff_code
from tilewatch.kernels.code_diff.tile_ir import BadTileIR
from tilewatch.kernels.compiling.disassembly import NotDisassembled, read_code_texts
from tilewatch.kernels.compiling.programs import ProgramMissing
from tilewatch.kernels.compiling.store import CubinStore

Pair = tuple[str, str]
"""The content keys of the base's cubin and of the head's."""


def write_code_sentences(store: CubinStore, pairs: Collection[Pair], *, jobs: int) -> dict[Pair, str]:
    """A pair that cannot be read has a sentence that says why: no comparison fails for it. Raises StoreError."""
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        return dict(pool.map(lambda pair: (pair, _write(store, *pair)), dict.fromkeys(pairs)))


def _write(store: CubinStore, base_key: str, head_key: str) -> str:
    try:
        launches = _pair_launches(read_code_texts(store, base_key), read_code_texts(store, head_key))
        if launches is None:
            return "other launches"
        sentences = [diff_code(*each).sentence for each in launches]
    except (BadTileIR, NotDisassembled, ProgramMissing) as error:
        return f"not compared line by line: {error}"
    named = sentences if len(sentences) == 1 else [f"launch {i} {each}" for i, each in enumerate(sentences, 1) if each]
    return ". ".join(named)


def _pair_launches(base: dict[str, CodeText], head: dict[str, CodeText]) -> list[tuple[CodeText, CodeText]] | None:
    """Pairs launches of equal keys, then the others in order; None where one side has more."""
    if len(base) != len(head):
        return None
    others = zip_longest(base.keys() - head.keys(), head.keys() - base.keys())
    return [(base[old], head[new]) for old, new in (*((key, key) for key in base if key in head), *others)]
