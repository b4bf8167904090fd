"""Reads the output of `tileirdisasm -g`: operations with their operands and source lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewatch.kernels.code_diff.source_line import SourceLine

NAME = re.compile(r"%[\w$.]+(?:#\d+)?")
OPERATION = re.compile(
    r"(?:(?P<results>%[\w$.]+(?::\d+)?(?:, %[\w$.]+(?::\d+)?)*) = )?(?P<opcode>[\w.]+)\b(?P<rest>.*)$"
)
LOCATION = re.compile(r" ?loc\((#?[\w.]+)\)$")
POSITION = re.compile(r'^#(\w+) = loc\("([^"]*)":(\d+):\d+\)')
SCOPED = re.compile(r"^#(\w+) = #cuda_tile\.di_loc<#(\w+) in ")
CALLED = re.compile(r"^#(\w+) = loc\(callsite\(#(\w+) at #(\w+)\)\)")
TOKEN = re.compile(r"\btoken = %[\w$.]+(?:#\d+)?")
ASSIGNED = re.compile(r"(%[\w$.]+) = (%[\w$.]+(?:#\d+)?)")
LOOPS = ("for", "loop")
TERMINATORS = ("continue", "yield", "break", "return")


class BadTileIR(ValueError):
    """Raised if a text is not TileIR as this module expects it."""


@dataclass(frozen=True)
class Value:
    """A result of an operation, or an argument of an operation's body (`is_argument`)."""

    operation: int
    number: int
    is_argument: bool = False


@dataclass(frozen=True)
class TileOperation:
    """An operation of TileIR. `callers` has the lines of the calls that lead to it, the innermost call first."""

    index: int
    opcode: str
    attributes: str
    types: str
    operands: tuple[Value, ...]
    line: SourceLine | None
    callers: tuple[SourceLine, ...]
    loop_depth: int


@dataclass
class _Open:
    """An operation whose body is being read."""

    index: int
    names: dict[str, Value]
    loop_depth: int


class _Reader:
    def __init__(self, locations: dict[str, tuple[SourceLine, ...]]) -> None:
        self.locations = locations
        self.found: list[tuple[TileOperation, str | None]] = []
        self.open: list[_Open] = [_Open(-1, {}, 0)]

    def read(self, text: str) -> None:
        location = LOCATION.search(text)
        name = location.group(1) if location else None
        text = text[: location.start()].rstrip() if location else text
        if text.startswith("}"):
            closed = self.open.pop()
            if name is not None:
                self._locate(closed.index, name)
            if text.endswith("{"):  # "} else {"
                self._enter(closed.index, {})
            return
        if text.startswith("("):  # the arguments of a body, which belongs to the operation above
            index = len(self.found) - 1
            self._enter(index, _number_arguments(index, text))
            return
        self._operation(text, name)

    def _operation(self, text: str, location: str | None) -> None:
        found = OPERATION.match(text)
        if found is None:
            raise BadTileIR(f"a line of TileIR cannot be read: {text[:200]}")
        index, opcode = len(self.found), found["opcode"]
        rest = found["rest"]
        has_body = rest.endswith("{")
        rest = rest.removesuffix("{").rstrip()
        arguments: dict[str, Value] = {}
        if opcode == "entry":
            rest = rest.partition("(")[2]
            arguments = _number_arguments(index, rest)
        elif opcode in LOOPS:
            arguments = _number_loop(index, rest)
            rest = ASSIGNED.sub(r"\2", rest)
        rest = TOKEN.sub("token", rest)
        used = [name for name in NAME.findall(rest) if name not in arguments]
        attributes, types = _split_types(NAME.sub("%", rest))
        if opcode == "entry":  # the types of its arguments, then its hints
            types, _, attributes = types.rpartition(") ")
        self.found.append(
            (
                TileOperation(
                    index,
                    opcode,
                    attributes,
                    types,
                    tuple(self._resolve(each) for each in used),
                    None,
                    (),
                    self.open[-1].loop_depth,
                ),
                None,
            )
        )
        if location is not None:
            self._locate(index, location)
        self._define(found["results"] or "", index)
        if has_body:
            self._enter(index, arguments)

    def _enter(self, index: int, arguments: dict[str, Value]) -> None:
        operation, _ = self.found[index]
        self.open.append(_Open(index, arguments, operation.loop_depth + (operation.opcode in LOOPS)))

    def _define(self, results: str, index: int) -> None:
        number = 0
        for result in filter(None, results.split(", ")):
            name, _, count = result.partition(":")
            for each in range(int(count or 1)):
                self.open[-1].names[f"{name}#{each}" if count else name] = Value(index, number)
                number += 1

    def _resolve(self, name: str) -> Value:
        for scope in reversed(self.open):
            if name in scope.names:
                return scope.names[name]
        raise BadTileIR(f"TileIR uses {name} before it is defined")

    def _locate(self, index: int, location: str) -> None:
        self.found[index] = (self.found[index][0], location.removeprefix("#"))

    def finish(self) -> tuple[TileOperation, ...]:
        return tuple(self._with_lines(operation, name) for operation, name in self.found)

    def _with_lines(self, operation: TileOperation, name: str | None) -> TileOperation:
        lines = self.locations.get(name or "", ())
        if not lines:
            return operation
        return replace(operation, line=lines[0], callers=lines[1:])


def read_tile_ir(text: str) -> tuple[TileOperation, ...]:
    """Returns the operations of a TileIR text. Raises BadTileIR if it cannot be read."""
    reader = _Reader(_read_locations(text))
    for line in _join(text):
        reader.read(line)
    return reader.finish()


def _join(text: str) -> Iterator[str]:
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "//")):
            yield stripped


def _read_locations(text: str) -> dict[str, tuple[SourceLine, ...]]:
    """Maps each location's name to its source lines, the innermost call first."""
    positions: dict[str, tuple[SourceLine, ...]] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        if found := POSITION.match(line):
            positions[found[1]] = (SourceLine(found[2], int(found[3])),)
        elif found := SCOPED.match(line):
            aliases[found[1]] = (found[2],)
        elif found := CALLED.match(line):
            aliases[found[1]] = (found[2], found[3])

    def lines_of(name: str) -> tuple[SourceLine, ...]:
        if name in positions:
            return positions[name]
        return tuple(line for each in aliases.get(name, ()) for line in lines_of(each))

    return {name: lines_of(name) for name in (*positions, *aliases)}


def _number_arguments(index: int, text: str) -> dict[str, Value]:
    return {
        name: Value(index, number, is_argument=True) for number, name in enumerate(re.findall(r"(%[\w$.]+):", text))
    }


def _number_loop(index: int, rest: str) -> dict[str, Value]:
    counter = re.match(r" (%[\w$.]+) in ", rest)
    names = [counter[1]] if counter else []
    names += [name for name, _ in ASSIGNED.findall(rest)]
    return {name: Value(index, number, is_argument=True) for number, name in enumerate(names)}


def _split_types(rest: str) -> tuple[str, str]:
    """Returns the attributes and the types in the text after an opcode. The types are "" if missing."""
    depth = 0
    for at, letter in enumerate(rest):
        if letter in "<([{":
            depth += 1
        elif letter in ">)]}" and rest[at - 1] != "-":
            depth -= 1
        elif letter == ":" and depth == 0:
            return rest[:at].strip(), rest[at + 1 :].strip()
    return rest.strip(), ""
