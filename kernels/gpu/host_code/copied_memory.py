"""Holds copies of an operator's GPU memory, and restores the initial content before each launch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import cupy

from tilewatch.kernels.gpu import shared_arrays
from tilewatch.kernels.gpu.guards import Guards
from tilewatch.kernels.gpu.host_code.described_operator import Memory
from tilewatch.kernels.gpu.input_copies import InputCopies

_Key = tuple[int | None, int, int, int]
"""Identifies an allocation by four numbers: the set of inputs (None if all sets share it); the number of its first
content, or the byte that fills it; its size; its index among a config's allocations with these three numbers."""


@dataclass(frozen=True)
class Allocation:
    """One allocation. Its initial content is `before`, or the repeated byte `fill` if `before` is None."""

    key: _Key
    own: Any
    before: Any
    fill: int

    def restore(self) -> None:
        if self.before is None:
            self.own.data.memset_async(self.fill, self.own.nbytes)
        else:
            self.own[...] = self.before


class CopiedMemory:
    """The GPU allocations that an operator's launches use."""

    def __init__(self, given: Sequence[Sequence[Any]]) -> None:
        self.guards = Guards()
        self._given = given  # the inputs' contents for each input set
        self._places: dict[_Key, Allocation] = {}
        self._written: set[_Key] = set()  # inputs that some config writes to
        self._dirty: dict[_Key, Allocation] = {}  # to restore before the next launch

    @classmethod
    def take(cls, contents: Sequence[int], sets: Sequence[Sequence[str]]) -> Self:
        """Copies memory contents of another process. Raises LibraryError if that fails."""
        given = []
        for handles in sets:
            given.append([cupy.empty(nbytes, dtype=cupy.uint8) for nbytes, _ in zip(contents, handles, strict=False)])
            for number, (own, handle) in enumerate(zip(given[-1], handles, strict=True)):
                shared_arrays.take_bytes(handle, own, f"input {number + 1}")
        return cls(given)

    @property
    def contents(self) -> dict[int, Any]:
        """Returns the memory contents of the first input set, by number."""
        return dict(enumerate(self._given[0]))

    def place(self, memory: Sequence[Memory], turn: int) -> tuple[Allocation, ...] | None:
        """Returns a config's allocations for input set `turn`, or None if this set lacks some of the data."""
        if any(each.content is not None and each.content >= len(self._given[turn]) for each in memory):
            return None
        found: list[Allocation] = []
        for each in memory:
            kind = (None, each.fill or 0, each.nbytes) if each.content is None else (turn, each.content, each.nbytes)
            key = (*kind, sum(known.key[:3] == kind for known in found))
            if key not in self._places:
                before = None if each.content is None else self._given[turn][each.content]
                name = "memory that is no input" if each.content is None else f"input {each.content + 1}"
                own = self.guards.make_empty(name, (each.nbytes,), cupy.uint8)
                self._places[key] = Allocation(key, own, before, each.fill or 0)
                self._places[key].restore()
            found.append(self._places[key])
        return tuple(found)

    def expect_writes(self, places: Sequence[Allocation]) -> None:
        """Marks the allocations that must be restored before the next launch."""
        self._dirty.update({each.key: each for each in places if each.before is None or each.key in self._written})

    def restore_written(self) -> None:
        for each in self._dirty.values():
            each.restore()
        self._dirty.clear()

    def restore_all(self, places: Sequence[Allocation]) -> None:
        self.restore_written()
        self.guards.restore()
        for each in places:
            each.restore()

    def find_written(self, places: Sequence[Sequence[Allocation]], turn: int) -> None:
        """Finds the inputs that a config just changed, and marks them to be restored before later launches."""
        changed = {each.key for each in _restore_changed(places[turn])}
        for number, each in enumerate(places[turn]):
            if each.key in changed:
                self._written |= {of_set[number].key for of_set in places}
        self.expect_writes(places[turn])

    def restore_changed(self, turns: Sequence[int]) -> int | None:
        """Restores changed inputs. Returns the index of the first changed input; None without any."""
        changed = _restore_changed([each for each in self._places.values() if each.key[0] in turns])
        return changed[0].key[1] if changed else None


def _restore_changed(allocations: Sequence[Allocation]) -> list[Allocation]:
    """Restores the inputs that launches changed, and returns them."""
    inputs = [each for each in allocations if each.before is not None]
    copies = InputCopies([each.own for each in inputs], [each.before for each in inputs])
    return [inputs[each] for each in copies.restore()]
