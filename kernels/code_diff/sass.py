"""Reads the output of `nvdisasm -g -c`: machine instructions with their source lines."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewatch.kernels.code_diff.source_line import SourceLine

PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
LABEL = re.compile(r"^([.$\w]+):$")
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][A-Z0-9_.a-z]*)\s*(.*?)\s*;?\s*$")
TARGET = re.compile(r"`\(([^)]*)\)")
REGISTER = re.compile(r"\b(UR|UP|R|P|B)\d+\b(?:\.reuse)?|(?<=[RUP]Z)\.reuse")
BANK = re.compile(r"c\[(0x[0-9a-f]+)\]\[[^\]]*\]")
JUMPS = ("BRA", "BRX", "JMP")
ENDS = ("EXIT", "RET")

CLASSES = {
    "Tensor Core": "HMMA IMMA DMMA QMMA OMMA HGMMA QGMMA IGMMA BGMMA UTCHMMA UTCQMMA UTCIMMA UTCOMMA",
    "TMA loads": "UTMALDG UBLKCP UTMAPF UBLKPF",
    "TMA stores": "UTMASTG UTMAREDG UBLKRED",
    "spills": "LDL STL",
    "global loads": "LDG LD LDGSTS",
    "global stores": "STG ST RED ATOM ATOMG",
    "shared loads": "LDS LDSM",
    "shared stores": "STS STSM ATOMS",
    "Tensor Memory": "LDTM STTM UTCCP UTCSHIFT",
    "barriers": "BAR SYNCS DEPBAR MEMBAR WARPSYNC FENCE LDGDEPBAR UTCBAR WARPGROUP ERRBAR UCGABAR_ARV UCGABAR_WAIT",
    "conversions": "F2F F2FP F2I I2F I2FP I2I F2IP I2IP FRND",
    "special functions": "MUFU",
    "shuffles": "SHFL REDUX PRMT MOVM",
    "float arithmetic": "FADD FMUL FFMA FADD2 FMUL2 FFMA2 FMNMX FMNMX3 FSEL HADD2 HMUL2 HFMA2 FSETP",
}
"""Maps a class of instructions to opcodes (CUDA Binary Utilities, "Instruction Set Reference", Volta to Blackwell)."""

CLASS_OF = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes.split()}
OTHER = "other instructions"
LARGEST_WAIT = 8
"""Most instructions of a loop that only waits for a barrier. Such a loop adds nothing to the loop depth."""


@dataclass(frozen=True)
class Instruction:
    """A machine instruction. `text` lacks registers and labels."""

    opcode: str
    text: str
    line: SourceLine | None
    block: int
    loop_depth: int

    @property
    def kind(self) -> str:
        """Returns the instruction's class: a name in CLASSES, or OTHER."""
        return CLASS_OF.get(self.opcode.partition(".")[0], OTHER)


@dataclass
class _Block:
    instructions: list[tuple[str, str, SourceLine | None]]
    targets: list[str]
    falls_through: bool = True


def read_sass(listing: str) -> tuple[Instruction, ...]:
    """Returns the instructions of a listing in order, without NOPs."""
    blocks, labels = _read_blocks(listing)
    follows = _link(blocks, labels)
    depths = [0] * len(blocks)
    for body in _find_loops(follows):
        opcodes = [opcode for block in body for opcode, _, _ in blocks[block].instructions]
        if len(opcodes) > LARGEST_WAIT or not any("TRYWAIT" in opcode for opcode in opcodes):
            for block in body:
                depths[block] += 1
    return tuple(
        Instruction(opcode, text, line, number, depths[number])
        for number, block in enumerate(blocks)
        for opcode, text, line in block.instructions
        if opcode != "NOP"
    )


def _read_blocks(listing: str) -> tuple[list[_Block], dict[str, int]]:
    blocks, labels = [_Block([], [])], {}
    line: SourceLine | None = None
    for row in listing.splitlines():
        if found := PLACE.match(row):
            line = SourceLine(found[1], int(found[2]))
        elif found := LABEL.match(row):
            if blocks[-1].instructions:
                blocks.append(_Block([], []))
            labels[found[1]] = len(blocks) - 1
        elif found := INSTRUCTION.match(row):
            _, predicate, opcode, operands = found.groups()
            blocks[-1].instructions.append((opcode, _normalise(opcode, operands), line))
            name = opcode.partition(".")[0]
            if name in (*JUMPS, *ENDS):
                # "BRA !UP0, `(...)" jumps under a condition without a predicate.
                target = TARGET.search(operands)
                is_sure = predicate is None and (target is None or operands.startswith("`"))
                if name in JUMPS and target is not None:
                    blocks[-1].targets.append(target[1])
                blocks[-1].falls_through = not is_sure
                blocks.append(_Block([], []))
    return blocks, labels


def _normalise(opcode: str, operands: str) -> str:
    text = TARGET.sub("label", operands)
    text = BANK.sub(r"c[\1]", text)
    return f"{opcode} {REGISTER.sub(lambda found: found[1] or '', text)}".strip()


def _link(blocks: Sequence[_Block], labels: dict[str, int]) -> list[list[int]]:
    follows = []
    for number, block in enumerate(blocks):
        next_blocks = [labels[target] for target in block.targets if target in labels]
        if block.falls_through and number + 1 < len(blocks):
            next_blocks.append(number + 1)
        follows.append(next_blocks)
    return follows


def _find_loops(follows: Sequence[Sequence[int]]) -> Iterator[frozenset[int]]:
    """Yields the basic blocks of each natural loop. (Aho, Lam, Sethi and Ullman, "Compilers", 2006, section 9.6.)"""
    before: dict[int, list[int]] = defaultdict(list)
    for number, targets in enumerate(follows):
        for target in targets:
            before[target].append(number)
    dominators = _find_dominators(follows, before)
    bodies: dict[int, set[int]] = {}
    for number, targets in enumerate(follows):
        for head in targets:
            if dominators[number] >> head & 1:
                body = bodies.setdefault(head, {head})
                todo = [number]
                while todo:
                    block = todo.pop()
                    if block not in body:
                        body.add(block)
                        todo += before[block]
    return (frozenset(body) for body in bodies.values())


def _find_dominators(follows: Sequence[Sequence[int]], before: dict[int, list[int]]) -> list[int]:
    """Returns for each basic block the blocks on every path to it, as bits. Returns 0 for unreachable blocks."""
    everything = (1 << len(follows)) - 1
    dominators = [1, *[everything] * (len(follows) - 1)]
    reached = _find_reached(follows)
    changed = True
    while changed:
        changed = False
        for number in range(1, len(follows)):
            if number not in reached:
                continue
            common = everything
            for each in before[number]:
                if each in reached:
                    common &= dominators[each]
            common |= 1 << number
            if common != dominators[number]:
                dominators[number], changed = common, True
    return [each if number in reached else 0 for number, each in enumerate(dominators)]


def _find_reached(follows: Sequence[Sequence[int]]) -> set[int]:
    reached, todo = {0}, [0]
    while todo:
        for target in follows[todo.pop()]:
            if target not in reached:
                reached.add(target)
                todo.append(target)
    return reached
