"""Pairs the operations of two TileIR texts, even if operations were moved, added or removed."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tilewatch.kernels.code_diff.tile_ir import LOOPS, TileOperation, Value

Key = Callable[[TileOperation], Hashable]


@dataclass(frozen=True)
class Alignment:
    """The pairs of equal operations in two texts. `head_of` maps indexes in the base to indexes in the head."""

    base: tuple[TileOperation, ...]
    head: tuple[TileOperation, ...]
    head_of: dict[int, int]
    base_sums: tuple[str, ...]
    head_sums: tuple[str, ...]

    def is_same_value(self, base: Value, head: Value) -> bool:
        if (base.number, base.is_argument) != (head.number, head.is_argument):
            return False
        if self.head_of.get(base.operation) == head.operation:
            return True
        return not base.is_argument and self.base_sums[base.operation] == self.head_sums[head.operation]


def align(base: tuple[TileOperation, ...], head: tuple[TileOperation, ...]) -> Alignment:
    base_sums, head_sums = _sum_up(base), _sum_up(head)
    passes: tuple[tuple[Key, Key], ...] = (
        (lambda each: (base_sums[each.index], each.loop_depth), lambda each: (head_sums[each.index], each.loop_depth)),
        (_get_typed_kind, _get_typed_kind),
        (_get_kind, _get_kind),
        (_get_opcode, _get_opcode),
    )
    head_of: dict[int, int] = {}
    gaps = [(0, len(base), 0, len(head))]
    for base_key, head_key in passes:
        gaps = [gap for each in gaps for gap in _match(base, head, each, base_key, head_key, head_of)]
    _match_moved(base_sums, head_sums, head_of)
    return Alignment(base, head, head_of, base_sums, head_sums)


def _match(
    base: Sequence[TileOperation],
    head: Sequence[TileOperation],
    gap: tuple[int, int, int, int],
    base_key: Key,
    head_key: Key,
    head_of: dict[int, int],
) -> list[tuple[int, int, int, int]]:
    """Adds pairs of operations with equal keys to `head_of`. Returns the ranges of operations still unpaired."""
    from_base, to_base, from_head, to_head = gap
    matcher = SequenceMatcher(
        None,
        [base_key(each) for each in base[from_base:to_base]],
        [head_key(each) for each in head[from_head:to_head]],
        autojunk=False,
    )
    left = []
    at_base, at_head = from_base, from_head
    for block in matcher.get_matching_blocks():
        begin_base, begin_head = from_base + block.a, from_head + block.b
        if begin_base > at_base or begin_head > at_head:
            left.append((at_base, begin_base, at_head, begin_head))
        for step in range(block.size):
            head_of[begin_base + step] = begin_head + step
        at_base, at_head = begin_base + block.size, begin_head + block.size
    return left


def _match_moved(base_sums: Sequence[str], head_sums: Sequence[str], head_of: dict[int, int]) -> None:
    taken = set(head_of.values())
    open_heads: dict[str, list[int]] = defaultdict(list)
    for index, each in enumerate(head_sums):
        if index not in taken:
            open_heads[each].append(index)
    for index, each in enumerate(base_sums):
        if index not in head_of and open_heads[each]:
            head_of[index] = open_heads[each].pop(0)


def _get_typed_kind(operation: TileOperation) -> Hashable:
    return (operation.opcode, operation.attributes, operation.types, operation.loop_depth)


def _get_kind(operation: TileOperation) -> Hashable:
    return (operation.opcode, operation.attributes, operation.loop_depth)


def _get_opcode(operation: TileOperation) -> Hashable:
    return (operation.opcode, operation.loop_depth)


def _sum_up(operations: Sequence[TileOperation]) -> tuple[str, ...]:
    """Returns a hash for each operation, which covers the operation and everything from which it is computed."""
    loops: dict[int, int] = {}
    sums: list[str] = []
    for each in operations:
        if each.opcode in LOOPS or each.opcode in ("reduce", "scan"):
            loops[each.index] = len(loops)
        used = [
            f"argument {loops.get(value.operation, '')}.{value.number}"
            if value.is_argument
            else f"{sums[value.operation]}.{value.number}"
            for value in each.operands
        ]
        parts = (each.opcode, each.attributes, each.types if each.opcode != "entry" else "", *used)
        sums.append(hashlib.sha256("\0".join(parts).encode()).hexdigest())
    return tuple(sums)
