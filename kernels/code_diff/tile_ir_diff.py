"""Finds the source lines whose operations differ between two TileIR texts, with lines that caused a change first."""

import enum
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from tilewatch.kernels.code_diff.alignment import Alignment, align
from tilewatch.kernels.code_diff.source_line import SourceLine
from tilewatch.kernels.code_diff.tile_ir import LOOPS, TERMINATORS, TileOperation, Value

LITERALS = ("constant", "reduce", "scan")
"""Operations whose attributes contain literal numbers."""
PREPARING = ("constant", "reshape", "broadcast", "assume", "make_token")
"""Helper operations, whose results are only inputs of others. Their edits are listed last for a line."""
WORD = re.compile(r"[\w.+-]+|\S")


@dataclass(frozen=True)
class Change:
    """The difference at a source line. `is_cause` is False if the difference only follows from another change."""

    line: SourceLine
    is_cause: bool
    edits: tuple[str, ...]
    loop_depth: int


class _Kind(enum.IntEnum):
    """The kind of a difference. A larger number says more about the source line."""

    other_type = 1
    other_value = 2
    added_or_removed = 3
    other_attributes = 4


@dataclass(frozen=True)
class _Site:
    """A difference in one operation. `lines` has its source line, then the lines of the calls that lead to it."""

    lines: tuple[SourceLine, ...]
    edit: str
    kind: _Kind
    is_cause: bool
    loop_depth: int


@dataclass(frozen=True)
class TileIRDiff:
    """The differences between two TileIR texts, by source line. `head_line` maps a base line to a head line."""

    changes: tuple[Change, ...]
    head_line: Callable[[SourceLine], SourceLine]


def diff_tile_ir(base: tuple[TileOperation, ...], head: tuple[TileOperation, ...]) -> TileIRDiff:
    aligned = align(base, head)
    head_line = _map_lines(aligned)
    return TileIRDiff(_fold_by_line(list(_Diff(aligned, head_line).list_sites()), head), head_line)


def _fold_by_line(sites: Sequence[_Site], head: Sequence[TileOperation]) -> tuple[Change, ...]:
    copies = _count_copies(head)
    changed: dict[SourceLine, set[tuple[SourceLine, ...]]] = defaultdict(set)
    for site in sites:
        changed[site.lines[0]].add(site.lines[1:])
    by_line: dict[SourceLine, list[_Site]] = defaultdict(list)
    for site in sites:
        # A function may be called at several lines: if only some of its copies differ, blame the calls.
        line, *callers = site.lines
        if callers and len(changed[line]) < copies.get(line, 1):
            by_line[callers[0]].append(site)
            by_line[line].append(replace(site, is_cause=False))
        else:
            by_line[line].append(site)
            for caller in callers:
                by_line[caller].append(replace(site, is_cause=False))
    order = sorted(by_line, key=lambda line: (*min(_rank(site) for site in by_line[line]), line))
    return tuple(_fold(line, by_line[line]) for line in order)


def _rank(site: _Site) -> tuple[bool, int, int]:
    return (not site.is_cause, -site.kind, -site.loop_depth)


def _fold(line: SourceLine, sites: list[_Site]) -> Change:
    ordered = sorted(sites, key=_rank)
    telling = sorted(ordered, key=lambda site: site.edit.split()[0].rstrip(":") in PREPARING)
    edits = tuple(dict.fromkeys(site.edit for site in telling))
    return Change(line, ordered[0].is_cause, edits, max(site.loop_depth for site in sites))


def _count_copies(operations: Sequence[TileOperation]) -> dict[SourceLine, int]:
    calls: dict[SourceLine, set[tuple[SourceLine, ...]]] = defaultdict(set)
    for each in operations:
        if each.line is not None:
            calls[each.line].add(each.callers)
    return {line: len(found) for line, found in calls.items()}


class _Diff:
    def __init__(self, aligned: Alignment, head_line: Callable[[SourceLine], SourceLine]) -> None:
        self.aligned, self.in_head = aligned, head_line
        self.removed = {each.index for each in aligned.base} - aligned.head_of.keys()
        self.added = {each.index for each in aligned.head} - set(aligned.head_of.values())
        self.unneeded: set[int] = set()  # of the base: removed because something else no longer uses it
        self.needed: set[int] = set()  # of the head: added because something else newly uses it
        self.now_used_for = _list_uses(aligned)

    def list_sites(self) -> Iterator[_Site]:
        for base_index, head_index in sorted(self.aligned.head_of.items(), key=lambda pair: pair[1]):
            yield from self._compare(self.aligned.base[base_index], self.aligned.head[head_index])
        for index in sorted(self.added):
            operation = self.aligned.head[index]
            is_cause = index not in self.needed and _may_cause(operation)
            yield from _yield_site(operation, f"{operation.opcode} added", _Kind.added_or_removed, is_cause)
        for index in sorted(self.removed):
            operation = self.aligned.base[index]
            is_cause = index not in self.unneeded and _may_cause(operation)
            for site in _yield_site(operation, f"{operation.opcode} removed", _Kind.added_or_removed, is_cause):
                yield replace(site, lines=tuple(map(self.in_head, site.lines)))

    def _compare(self, base: TileOperation, head: TileOperation) -> Iterator[_Site]:
        if base.attributes != head.attributes and not _is_retyped(base, head):
            yield from _yield_site(head, _describe(base, head), _Kind.other_attributes, True)
            return
        rewired = [
            pair for pair in zip(base.operands, head.operands, strict=False) if not self.aligned.is_same_value(*pair)
        ]
        if rewired or len(base.operands) != len(head.operands):
            for maker in filter(None, (self._find_exchange(*pair) for pair in rewired)):
                yield from _yield_site(maker, "its values are exchanged", _Kind.other_value, True)
            causes = [self._is_cause(base, head, old, new) for old, new in rewired]
            is_cause = _may_cause(head) and (any(causes) or not rewired)
            yield from _yield_site(head, f"{head.opcode} of another value", _Kind.other_value, is_cause)
        elif base.types != head.types:
            yield from _yield_site(head, _describe(base, head), _Kind.other_type, self._is_root_of_type(base, head))

    def _is_cause(self, base: TileOperation, head: TileOperation, old: Value, new: Value) -> bool:
        """Returns whether this operation was edited, and not only an operation that computes its input."""
        aligned = self.aligned
        was_removed = not old.is_argument and old.operation in self.removed
        is_added = not new.is_argument and new.operation in self.added
        if is_added and any(aligned.is_same_value(old, each) for each in _walk_inputs(new, aligned.head, self.added)):
            return False
        if was_removed and any(
            aligned.is_same_value(each, new) for each in _walk_inputs(old, aligned.base, self.removed)
        ):
            return False
        if was_removed and is_added:
            makers = (aligned.base[old.operation].line, aligned.head[new.operation].line)
            if makers[0] is not None and self.in_head(makers[0]) == makers[1]:
                return False
        if self._find_exchange(old, new) is not None:
            return False
        if was_removed:
            chain = {each.operation for each in _walk_inputs(old, aligned.base, self.removed) if not each.is_argument}
            self.unneeded |= {index for index in chain & self.removed if aligned.base[index].line != base.line}
        if is_added:
            chain = {each.operation for each in _walk_inputs(new, aligned.head, self.added) if not each.is_argument}
            self.needed |= {index for index in chain & self.added if aligned.head[index].line != head.line}
        return True

    def _find_exchange(self, old: Value, new: Value) -> TileOperation | None:
        """Returns the operation that computes `new` if `new` replaces `old` everywhere, else None."""
        if old.is_argument or new.is_argument or old.operation in self.removed or new.operation in self.added:
            return None
        makers = (self.aligned.base[old.operation].line, self.aligned.head[new.operation].line)
        if makers[0] is None or self.in_head(makers[0]) != makers[1] or self.now_used_for[old] != {new}:
            return None
        return self.aligned.head[new.operation]

    def _is_root_of_type(self, base: TileOperation, head: TileOperation) -> bool:
        """Returns whether the type changes at this operation, while its operands keep their types."""
        if not _may_cause(head):
            return False
        for old, new in zip(base.operands, head.operands, strict=True):
            before, after = self.aligned.base[old.operation], self.aligned.head[new.operation]
            if (before.attributes, before.types) != (after.attributes, after.types):
                return False
        return True


def _may_cause(operation: TileOperation) -> bool:
    """Returns whether a change may begin at this operation. Loops and terminators only pass values on."""
    return operation.opcode not in (*TERMINATORS, *LOOPS)


def _is_retyped(base: TileOperation, head: TileOperation) -> bool:
    """Returns whether two literals differ only in their type, such as <f32: 0.1> and <f16: 9.999e-02>."""
    return base.opcode == head.opcode and base.opcode in LITERALS and base.types != head.types


def _list_uses(aligned: Alignment) -> dict[Value, set[Value]]:
    """Maps each base value to the head values that the paired operations use in its place."""
    uses: dict[Value, set[Value]] = defaultdict(set)
    for base_index, head_index in aligned.head_of.items():
        for old, new in zip(aligned.base[base_index].operands, aligned.head[head_index].operands, strict=False):
            uses[old].add(new)
    return uses


def _walk_inputs(value: Value, operations: Sequence[TileOperation], among: Collection[int]) -> Iterator[Value]:
    """Yields a value and the values from which it is computed. Goes back only through the operations in `among`."""
    seen, todo = {value}, [value]
    while todo:
        each = todo.pop()
        yield each
        if not each.is_argument and each.operation in among:
            fresh = set(operations[each.operation].operands) - seen
            seen |= fresh
            todo += fresh


def _yield_site(operation: TileOperation, edit: str, kind: _Kind, is_cause: bool) -> Iterator[_Site]:
    """Yields the place of an edit, or nothing if the operation has no source line."""
    if operation.line is not None:
        yield _Site((operation.line, *operation.callers), edit, kind, is_cause, operation.loop_depth)


def _map_lines(aligned: Alignment) -> Callable[[SourceLine], SourceLine]:
    """Returns a function that maps a base line to a head line."""
    votes: dict[SourceLine, Counter[SourceLine]] = defaultdict(Counter)
    for base_index, head_index in aligned.head_of.items():
        old, new = aligned.base[base_index].line, aligned.head[head_index].line
        if old is not None and new is not None and old.file == new.file:
            votes[old][new] += 1
    known = {old: counted.most_common(1)[0][0] for old, counted in votes.items()}
    ordered = sorted(known)

    def head_line(line: SourceLine) -> SourceLine:
        if line in known:
            return known[line]
        before = bisect_right(ordered, line) - 1
        if before < 0 or ordered[before].file != line.file:
            return line
        return SourceLine(line.file, line.number + known[ordered[before]].number - ordered[before].number)

    return head_line


def _describe(base: TileOperation, head: TileOperation) -> str:
    """Returns the words that differ, such as "constant: 8 -> 16"."""
    old, new = (
        f"{each.attributes} : {each.types}" if base.attributes == head.attributes else each.attributes
        for each in (base, head)
    )
    before, after = WORD.findall(old), WORD.findall(new)
    parts = []
    for tag, from_old, to_old, from_new, to_new in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            parts.append(
                f"{' '.join(before[from_old:to_old]) or 'nothing'} -> {' '.join(after[from_new:to_new]) or 'nothing'}"
            )
    return f"{head.opcode}: {', '.join(parts)}"
