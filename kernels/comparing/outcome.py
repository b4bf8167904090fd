"""Holds the outcome of comparing one kernel and problem."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from tilewatch.kernels.comparing.verdict import Verdict
from tilewatch.kernels.results import Params, StaticFacts
from tilewatch.mechanisms.find import find_mechanisms, write_mechanisms
from tilewatch.mechanisms.pairs import WinnerFacts
from tilewatch.metrics import Metric

INSTRUCTION_BYTES = 16
"""Bytes of a machine instruction on every GPU since Volta."""

FINE, OVER, UNSURE = 0, 1, 2
"""Exit codes: no target is slower than allowed, a target surely is slower than allowed, or a target is undecided."""

OutcomeKind = Literal[
    "identical",
    "slower",
    "faster",
    "not slower",
    "undecided",
    "failed",
    "neither",
    "added",
    "removed",
    "changed",
    "unchanged",
]
"""What a comparison found. Without a GPU, `changed` means other static facts, `unchanged` only other machine code."""


@dataclass(frozen=True)
class Outcome:
    """The result of comparing a kernel on one problem. If the comparison failed, `reason` is a sentence."""

    kernel: str
    problem: str
    arch: str
    kind: OutcomeKind
    reason: str = ""
    moved: tuple[str, ...] = ()
    verdict: Verdict | None = None
    base_config: Params | None = None
    head_config: Params | None = None
    base_facts: StaticFacts | None = None
    head_facts: StaticFacts | None = None
    base_us: tuple[float, ...] = ()
    head_us: tuple[float, ...] = ()
    config_source: str = ""
    not_apart: str = ""  # why the process that ran host code also timed it
    metric: Metric = "time"

    @property
    def is_unsure(self) -> bool:
        return self.kind == "failed" or (
            self.verdict is not None and not self.verdict.is_fine and not self.verdict.is_over
        )

    @property
    def changes(self) -> tuple[str, ...]:
        """Returns sentences about the changes in the code."""
        verdict, base, head = self.verdict, self.base_facts, self.head_facts
        if verdict is None or verdict.kind not in ("slower", "faster") or base is None or head is None:
            return self.moved
        found = find_mechanisms(
            read_winner_facts(self.base_config or {}, base),
            read_winner_facts(self.head_config or {}, head),
            (),
            is_slower=verdict.kind == "slower",
            problem=self.problem,
            arch=self.arch,
            ratio=max(1 + verdict.change, 1 / (1 + verdict.change)),
        )
        return (*self.moved, f"mechanism: {write_mechanisms(found)}")

    @property
    def sentence(self) -> str:
        """Returns the outcome in words, such as: slower +1.8 % (1.5 to 2.1) after 12 launches."""
        if self.verdict is not None:
            about = "" if self.metric == "time" else f"{self.metric} "
            not_apart = f" (not measured apart: {self.not_apart})" if self.not_apart else ""
            return f"{about}{write_verdict(self.verdict)}{not_apart}"
        return {
            "identical": "identical machine code",
            "failed": f"could not be compared: {self.reason}",
            "neither": f"compiles on neither side: {self.reason}",
            "added": "only in the head",
            "removed": "only in the base",
            "changed": "other machine code",
            "unchanged": "other machine code of equal static facts",
        }[self.kind]


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Returns the exit code: OVER if a target is surely slower than allowed, else UNSURE or FINE."""
    listed = list(outcomes)
    if any(each.verdict is not None and each.verdict.is_over for each in listed):
        return OVER
    return UNSURE if any(each.is_unsure for each in listed) else FINE


def read_winner_facts(config: Params, facts: StaticFacts) -> WinnerFacts:
    return WinnerFacts(config, {name: value for name, value in asdict(facts).items() if isinstance(value, int)})


def list_moves(base: StaticFacts | None, head: StaticFacts | None) -> tuple[str, ...]:
    """Lists the static facts that differ, such as "registers 128 -> 168"."""
    if base is None or head is None:
        return ()
    pairs = (
        ("registers", f"{base.registers}", f"{head.registers}"),
        ("spills", f"{base.stack_bytes}", f"{head.stack_bytes} bytes"),
        ("shared memory", f"{base.shared_bytes}", f"{head.shared_bytes} bytes"),
        ("instructions", f"{base.code_bytes // INSTRUCTION_BYTES}", f"{head.code_bytes // INSTRUCTION_BYTES}"),
        *_write_shares(base, head),
    )
    moved = (each for each in pairs if each[1] != each[2].removesuffix(" bytes"))
    return tuple(f"{name} {of_base} -> {of_head}" for name, of_base, of_head in moved)


def _write_shares(base: StaticFacts, head: StaticFacts) -> Iterator[tuple[str, str, str]]:
    """Yields the shares that the compiler remarked on for both sides. tileiras 13.3 remarks on none (2026-11)."""
    if base.loads and head.loads:
        yield "loads by TMA", f"{base.tma_loads} of {base.loads}", f"{head.tma_loads} of {head.loads}"
    if base.mmas and head.mmas:
        of_base, of_head = (f"{each.tensor_core_mmas} of {each.mmas}" for each in (base, head))
        yield "MMAs on Tensor Cores", of_base, of_head


FINE_WIDTH = 0.002
"""Intervals narrower than this are written with two decimals of a per cent, others with one."""


def write_verdict(verdict: Verdict) -> str:
    """Returns the verdict in words, such as: slower +1.8 % (1.5 to 2.1) after 12 launches."""
    launches = f"after {verdict.launches} launches"
    decimals = 2 if verdict.high - verdict.low < FINE_WIDTH else 1
    interval = f"{100 * verdict.low:.{decimals}f} to {100 * verdict.high:.{decimals}f}"
    if verdict.kind == "undecided":
        needed = f"; about {verdict.needed_launches:,} would decide it" if verdict.needed_launches else ""
        return f"undecided {launches} ({interval} %){needed}"
    if verdict.kind == "not slower" and verdict.not_slower_than > 0:
        limit = round(verdict.not_slower_than * 100, 2)  # a multiple of 0.1, or of less under a fine margin
        return f"not slower than {limit} % {launches}"
    if verdict.kind == "not slower":
        return f"not slower {launches}, too few to call it faster ({interval} %)"
    return f"{verdict.kind} {verdict.change * 100:+.{decimals}f} % ({interval}) {launches}"
