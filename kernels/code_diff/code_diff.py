"""Compares the code of one kernel launch in two versions, and describes the differences."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewatch.kernels.code_diff.sass import read_sass
from tilewatch.kernels.code_diff.sass_diff import InstructionRow, Move, count_moves, list_rows, rank_lines
from tilewatch.kernels.code_diff.source_line import SourceLine
from tilewatch.kernels.code_diff.tile_ir import read_tile_ir
from tilewatch.kernels.code_diff.tile_ir_diff import Change, diff_tile_ir

LINES_NAMED = 3
MOVES_NAMED = 4
EDITS_NAMED = 2


@dataclass(frozen=True)
class CodeText:
    """The code of one kernel launch as text. `tile_ir` is None if the bytecode was not kept."""

    sass: str
    tile_ir: str | None


@dataclass(frozen=True)
class CodeDiff:
    """The differences between the code of two cubins. `changes` has those in TileIR, the other fields those in SASS."""

    changes: tuple[Change, ...]
    machine_lines: tuple[SourceLine, ...]
    in_loops: tuple[Move, ...]
    outside: tuple[Move, ...]
    rows: tuple[InstructionRow, ...]
    knows_tile_ir: bool

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        """Returns the lines that differ, the most important first."""
        return tuple(change.line for change in self.changes) or self.machine_lines

    @property
    def sentence(self) -> str:
        """Returns one sentence about the differences, or "" if the code does not differ."""
        return write_sentence(self)


def diff_code(base: CodeText, head: CodeText) -> CodeDiff:
    """Returns the differences between two versions of a launch's code. Raises BadTileIR if a text cannot be read."""
    tile_ir = None
    if base.tile_ir is not None and head.tile_ir is not None:
        tile_ir = diff_tile_ir(read_tile_ir(base.tile_ir), read_tile_ir(head.tile_ir))
    before, after = read_sass(base.sass), read_sass(head.sass)
    rows = list_rows(before, after, None if tile_ir is None else tile_ir.head_line)
    return CodeDiff(
        () if tile_ir is None else tile_ir.changes,
        rank_lines(rows),
        count_moves(before, after, in_loops=True),
        count_moves(before, after, in_loops=False),
        rows,
        tile_ir is not None,
    )


def write_sentence(diff: CodeDiff) -> str:
    if not diff.changes and not diff.rows:
        return ""
    return f"{_write_lines(diff)}; {_write_effect(diff)}"


def _write_lines(diff: CodeDiff) -> str:
    causes = [change for change in diff.changes if change.is_cause] or list(diff.changes)
    if causes:
        first = causes[0]
        edits = ", ".join(first.edits[:EDITS_NAMED]) + (", ..." if len(first.edits) > EDITS_NAMED else "")
        return f"{first.line} does something else ({edits}){_write_others([each.line for each in causes[1:]])}"
    if not diff.machine_lines:
        return "the compiler made other code of no line that it names"
    made = "no line does anything else, but the compiler made other code" if diff.knows_tile_ir else "other code"
    return f"{made} of {diff.machine_lines[0]}{_write_others(diff.machine_lines[1:])}"


def _write_others(lines: Sequence[SourceLine]) -> str:
    if not lines:
        return ""
    named = ", ".join(
        str(each.number) if len({one.file for one in lines}) == 1 else str(each) for each in lines[: LINES_NAMED - 1]
    )
    more = len(lines) - (LINES_NAMED - 1)
    return f", also {named}" + (f" and {more} more" if more > 0 else "")


def _write_effect(diff: CodeDiff) -> str:
    for where, moves in (("in loops", diff.in_loops), ("outside loops", diff.outside)):
        if moves:
            named = ", ".join(f"{move.kind} {move.base} -> {move.head}" for move in moves[:MOVES_NAMED])
            return f"{where}: {named}"
    return "as many instructions of every kind" if diff.rows else "the same machine instructions"
