"""What a report says of architectures on which nothing was timed."""

from dataclasses import replace

import pytest

from tilewatch.kernels.comparing.toolchains.mma_waits import MmaWaits
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import GpuUsed, ToolchainName, ToolchainReport
from tilewatch.kernels.comparing.toolchains.writing import write_lines, write_markdown
from tilewatch.kernels.results import StaticFacts

BASE = CompiledSide({}, "ok", 1.0, 1.0, code_sha256="old", cubin="old")
BROKEN = replace(BASE, status="error", failure="no such instruction", code_sha256=None, cubin=None)


@pytest.fixture
def report() -> ToolchainReport:
    made = ToolchainReport((ToolchainName("installed"), ToolchainName("newer")), "2026-11-28 07:00 UTC")
    sides = {("sm_90", "broken"): BROKEN, ("sm_90", "same"): BASE, ("sm_100", "broken"): BASE}
    for (arch, kernel), head in sides.items():
        pair = ToolchainPair(kernel, "1024", arch, "shipped", (BASE,), (head,), "newer")
        made.pairs[pair.key] = pair
    return made


def test_what_stopped_compiling_is_named_with_its_architecture(report: ToolchainReport) -> None:
    for text in (write_markdown(report), "\n".join(write_lines(report))):
        named = [line.strip() for line in text.splitlines() if line.strip().startswith("not safe: ")]
        assert len(named) == 1
        assert named[0].startswith("not safe: broken 1024 (sm_90): ")
        assert "no such instruction" in named[0]


def test_an_architecture_that_was_timed_has_a_table_instead(report: ToolchainReport) -> None:
    report.gpus["h200"] = GpuUsed("h200", "NVIDIA H200", "580.65")
    text = write_markdown(report)
    assert "not safe: broken" not in text
    assert "| broken | 1024 | not safe: with the head it does not compile" in text


def test_all_that_moved_on_an_architecture_is_summed_up_with_its_operators(report: ToolchainReport) -> None:
    base = replace(BASE, facts=StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ()), waits=MmaWaits(4, 16))
    more = StaticFacts(168, 64, 1024, 4096, 9000, 2, 2, 0, 1, ())
    head = replace(base, compile_s=3.0, cpu_s=2.0, code_sha256="new", facts=more, waits=MmaWaits(16, 16))
    pair = ToolchainPair("slow", "1024", "sm_100", "shipped", (base,) * 6, (head,) * 6, "newer")
    report.pairs = {each.key: each for each in (pair, replace(pair, arch="sm_90"))}
    text = "\n".join(write_lines(report))
    assert (
        "  sm_100: 1 of 1 changed; registers: more in 1, fewer in 0, at most 128 -> 168; "
        "spills: more in 1, fewer in 0, at most 0 -> 64 bytes; "
        "MMAs on Tensor Cores: more in 0, fewer in 1, at most 1 -> 0; waits for each MMA now: 1; "
        "slower to compile: 6 -> 12 CPU seconds for 6 configs (6 -> 18 s of wall time)\n"
        "    slow 1024: registers 128 -> 168, spills 0 -> 64 bytes, MMAs on Tensor Cores 1 of 1 -> 0 of 1, "
        "waits for MMAs 4 of 16 -> 16 of 16\n"
    ) in text
