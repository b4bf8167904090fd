"""Counts which machine instructions differ between two listings, by source line and loop depth."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tilewatch.kernels.code_diff.sass import CLASSES, OTHER, Instruction
from tilewatch.kernels.code_diff.source_line import SourceLine

KINDS = (*CLASSES, OTHER)


@dataclass(frozen=True)
class Move:
    """The number of instructions of one kind in the base listing and in the head listing."""

    kind: str
    base: int
    head: int


@dataclass(frozen=True)
class InstructionRow:
    """An instruction whose count differs between two listings. `line` is its line in the head, or None if unknown."""

    line: SourceLine | None
    loop_depth: int
    kind: str
    text: str
    base: int
    head: int


def count_moves(base: Iterable[Instruction], head: Iterable[Instruction], *, in_loops: bool) -> tuple[Move, ...]:
    """Counts the instructions of each kind, inside loops or outside, and returns the kinds whose counts differ."""
    before, after = (Counter(each.kind for each in side if (each.loop_depth > 0) == in_loops) for side in (base, head))
    return tuple(Move(kind, before[kind], after[kind]) for kind in CLASSES if before[kind] != after[kind])


def list_rows(
    base: Sequence[Instruction], head: Sequence[Instruction], head_line: Callable[[SourceLine], SourceLine] | None
) -> tuple[InstructionRow, ...]:
    """Lists the instructions whose counts differ, deepest loops first. `head_line` maps base lines to head lines."""
    moved = head_line or pair_lines(base, head)
    counts: dict[tuple[SourceLine | None, int, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for side, instructions in enumerate((base, head)):
        for each in instructions:
            line = moved(each.line) if side == 0 and each.line is not None else each.line
            counts[line, each.loop_depth, each.kind, each.text][side] += 1
    rows = [InstructionRow(*key, *sides) for key, sides in counts.items() if sides[0] != sides[1]]
    return tuple(sorted(rows, key=_sort_key))


def _sort_key(row: InstructionRow) -> tuple[int, int, str, int, str]:
    line = row.line
    return (-row.loop_depth, KINDS.index(row.kind), line.file if line else "", line.number if line else 0, row.text)


def rank_lines(rows: Iterable[InstructionRow]) -> tuple[SourceLine, ...]:
    """Returns the lines whose instructions differ, the most important first."""
    weights: dict[SourceLine, Counter[tuple[int, bool]]] = defaultdict(Counter)
    for row in rows:
        if row.line is not None:
            weights[row.line][-row.loop_depth, row.kind == OTHER] += abs(row.head - row.base)

    def rank(line: SourceLine) -> tuple[int, bool, int, SourceLine]:
        (depth, is_other), count = min(weights[line].items())
        return (depth, is_other, -count, line)

    return tuple(sorted(weights, key=rank))


def pair_lines(base: Iterable[Instruction], head: Iterable[Instruction]) -> Callable[[SourceLine], SourceLine]:
    """Returns a function that maps a base line to the head line with the same opcodes."""
    sides = [_sign_lines(base), _sign_lines(head)]
    lines = [sorted(side) for side in sides]
    matcher = SequenceMatcher(
        None, [sides[0][line] for line in lines[0]], [sides[1][line] for line in lines[1]], autojunk=False
    )
    became: dict[SourceLine, SourceLine] = {}
    for _, from_base, to_base, from_head, to_head in matcher.get_opcodes():
        became |= dict(zip(lines[0][from_base:to_base], lines[1][from_head:to_head], strict=False))
    return lambda line: became.get(line, line)


def _sign_lines(instructions: Iterable[Instruction]) -> dict[SourceLine, frozenset[tuple[str, int]]]:
    opcodes: dict[SourceLine, Counter[str]] = defaultdict(Counter)
    for each in instructions:
        if each.line is not None:
            opcodes[each.line][each.opcode] += 1
    return {line: frozenset(counted.items()) for line, counted in opcodes.items()}
