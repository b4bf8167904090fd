"""The filter of calls, run as the kernel runs it, on both architectures."""

import re
import termios
from pathlib import Path

import pytest

from tilewatch.kernels.children import call_filter
from tilewatch.kernels.children.call_filter import ACCEPT, AUDIT, REFUSE, UNKNOWN, CallPolicy, Instruction
from tilewatch.kernels.children.system_calls import NUMBERS

OWN, OTHER = 4242, 17
CLOSED = CallPolicy()
HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), r"#define __NR_(\w+)\s+(\d+)"),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"), r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
}


def decide(program: list[Instruction], machine: str, name: str, *arguments: int) -> Instruction:
    """Runs the program on one call, as bpf(4) says; the halves of an argument are of 32 bits."""
    words = {0: NUMBERS[machine][name], 4: AUDIT[machine]}
    words |= {16 + 8 * place: value & 0xFFFFFFFF for place, value in enumerate(arguments)}
    loaded = step = 0
    while True:
        code, yes, no, value = instruction = program[step]
        step += 1
        if code == call_filter.LOAD:
            loaded = words.get(value, 0)
        elif code == call_filter.MASK:
            loaded &= value
        elif code == call_filter.EQUAL:
            step += yes if loaded == value else no
        elif code == call_filter.AT_LEAST:
            step += yes if loaded >= value else no
        else:
            return instruction


@pytest.fixture(params=sorted(AUDIT))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("machine_", sorted(HEADERS))
def test_numbers_are_those_of_the_system_s_headers(machine_: str) -> None:
    header, pattern = HEADERS[machine_]
    if not header.exists():
        pytest.skip("the headers of Linux are not installed")
    known = {name: int(number) for name, number in re.findall(pattern, header.read_text())}
    ours = NUMBERS[machine_]
    assert {name: number for name, number in ours.items() if known.get(name, number) != number} == {}
    assert len(set(ours.values())) == len(ours)
    assert len(ours.keys() & known.keys()) > 80


@pytest.mark.parametrize(("name", "which"), sorted(call_filter.TARGETS.items()))
def test_a_call_with_a_target_is_accepted_for_the_caller_alone(machine: str, name: str, which: int) -> None:
    program = call_filter.build(machine, OWN, CLOSED)
    answers = [decide(program, machine, name, *[0] * which, each) for each in (0, OWN, OTHER, -1)]
    assert answers == [ACCEPT, ACCEPT, REFUSE, REFUSE]


@pytest.mark.parametrize("name", call_filter.SIGNALS)
def test_signals_to_others_are_refused_where_nothing_else_bounds_them(machine: str, name: str) -> None:
    bounded = call_filter.build(machine, OWN, CallPolicy(bounds_signals=True))
    program = call_filter.build(machine, OWN, CLOSED)
    assert [decide(program, machine, name, each, 9) for each in (0, OWN, OTHER, -1, -OWN)] == [
        ACCEPT,
        ACCEPT,
        REFUSE,
        REFUSE,
        REFUSE,
    ]
    assert decide(bounded, machine, name, OTHER, 9) == ACCEPT


@pytest.mark.parametrize(("name", "process"), sorted(call_filter.PRIORITIES.items()))
def test_a_priority_is_a_process_s_own(machine: str, name: str, process: int) -> None:
    program = call_filter.build(machine, OWN, CLOSED)
    assert decide(program, machine, name, process, 0) == ACCEPT
    assert decide(program, machine, name, process, OTHER) == REFUSE
    assert decide(program, machine, name, process + 1, 0) == REFUSE, "a group or a user"


def test_attributes_are_refused_but_to_who_writes_where_its_user_may(machine: str) -> None:
    refused, open_ = (call_filter.build(machine, OWN, CallPolicy(attributes=each)) for each in (False, True))
    for name in call_filter.ATTRIBUTES:
        if name in NUMBERS[machine]:
            assert (decide(refused, machine, name), decide(open_, machine, name)) == (REFUSE, ACCEPT), name


def test_a_file_is_cut_by_who_opens_it_for_writing(machine: str) -> None:
    program = call_filter.build(machine, OWN, CLOSED)
    bounded = call_filter.build(machine, OWN, CallPolicy(bounds_truncate=True))
    for flags, answer in ((0o1000, REFUSE), (0o1003, REFUSE), (0o1001, ACCEPT), (0o1002, ACCEPT), (0, ACCEPT)):
        assert decide(program, machine, "openat", -100, 0, flags) == answer
        assert decide(bounded, machine, "openat", -100, 0, flags) == ACCEPT
    assert decide(program, machine, "truncate") == REFUSE
    assert decide(program, machine, "openat2") == UNKNOWN


def test_a_process_is_no_sibling_and_in_no_namespace_of_its_own(machine: str) -> None:
    program = call_filter.build(machine, OWN, CLOSED)
    threads = 0x3D0F00
    assert [decide(program, machine, "clone", each) for each in (17, threads, 0x8000, 0x10000000, 0x20000)] == [
        ACCEPT,
        ACCEPT,
        REFUSE,
        REFUSE,
        REFUSE,
    ]
    assert decide(program, machine, "clone3") == UNKNOWN, "glibc then calls clone"


def test_another_architecture_has_no_calls(machine: str) -> None:
    other = next(each for each in AUDIT if each != machine)
    assert decide(call_filter.build(machine, OWN, CLOSED), other, "prctl") == call_filter.REFUSE_SOCKET


def test_requests_that_type_into_a_terminal_or_change_a_file_are_refused_by_the_system_s_numbers() -> None:
    """Numbers of terminals are those of the system's headers, and those of files follow from ioctl(2): a write of so
    many bytes, of a kind and a number."""
    terminals = {termios.TIOCSTI, 0x541C, termios.TIOCSCTTY}
    files = {
        (1 << 30) | (size << 16) | (ord(kind) << 8) | number for size, kind, number in ((8, "f", 2), (28, "X", 32))
    }
    assert getattr(termios, "TIOCLINUX", 0x541C) == 0x541C
    refused = {0x8901, 0x8902, *terminals, *files}
    assert len(call_filter.IOCTLS) == len(refused)
    assert set(call_filter.IOCTLS) == refused
