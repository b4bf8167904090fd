"""Whether a replay needs a compiler: stored cubins of one compiler need none."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tilewatch.db.worker_reads.winners import Winner
from tilewatch.worker.judging.questions import is_compiled
from tilewatch.worker.judging.replay_answers import End, Pair

OLD = Winner(31, 1, "source", 1, {"tile_m": 64}, "old", "k", "code", "compiler")
NEW = replace(OLD, content_key="new")


@pytest.mark.parametrize(
    ("base", "head", "stored", "compiled"),
    [
        (OLD, NEW, {"old", "new"}, True),
        (OLD, NEW, {"old"}, False),
        (OLD, NEW, {"new"}, False),
        (OLD, replace(NEW, compiler="another"), {"old", "new"}, False),
        (OLD, None, {"old", "new"}, False),
        (None, NEW, {"old", "new"}, False),
    ],
)
def test_a_replay_needs_no_compiling_if_both_cubins_are_stored_and_of_one_compiler(
    base: Winner | None, head: Winner | None, stored: set[str], compiled: bool
) -> None:
    night: Any = SimpleNamespace(store=SimpleNamespace(outcome=lambda key: "stored" if key in stored else None))
    pair = Pair("k", "p", End(1, "one", base, None, None), End(2, "two", head, None, None), False)
    assert is_compiled(night, pair) == compiled
