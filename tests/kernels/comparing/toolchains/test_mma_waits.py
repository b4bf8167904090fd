"""Waits for warp-group MMAs in machine code, with words that nvdisasm 13.5 named (grouped_fp8 and gemm_nt, sm_90)."""

from dataclasses import replace
from pathlib import Path

import pytest

from tilewatch.kernels.comparing.toolchains.mma_waits import MmaWaits, count_in_code
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import ReportFile, ToolchainName, ToolchainReport, read_report
from tilewatch.kernels.comparing.toolchains.safety_verdict import judge_operator
from tilewatch.kernels.comparing.toolchains.writing import write_answer
from tilewatch.kernels.comparing.verdict import Design

QGMMA, HGMMA = 0x01E00000105879F3, 0x03E00000181879F0
ARRIVE, DEPBAR = 0x00000000000079C5, 0x00008000000079C5
OTHER = 0x000000FFFF0C7224
A = CompiledSide({"tile_m": 64}, "ok", 1.0, 1.0, None, "code of A", "k", "cubin-a", waits=MmaWaits(4, 16))


def make_code(*words: int) -> bytes:
    return b"".join(word.to_bytes(8, "little") + b"\xff" * 8 for word in words)


def make_pair(head: MmaWaits | None) -> ToolchainPair:
    build = replace(A, code_sha256="code of B", waits=head)
    return ToolchainPair("gemm_fp8", "1x1", "sm_90", "recording", (A,), (build,), "new")


def test_arrivals_and_mmas_are_counted_and_barriers_in_the_end_are_not() -> None:
    code = make_code(OTHER, ARRIVE, QGMMA, HGMMA, QGMMA, DEPBAR, ARRIVE, QGMMA, DEPBAR, DEPBAR, OTHER)
    assert count_in_code(code) == MmaWaits(groups=2, mmas=4)


@pytest.mark.parametrize(
    ("head", "moved", "for_each"),
    [
        (MmaWaits(16, 16), ("waits for MMAs 4 of 16 -> 16 of 16",), True),
        (MmaWaits(8, 16), ("waits for MMAs 4 of 16 -> 8 of 16",), False),
        (MmaWaits(2, 8), (), False),
        (MmaWaits(0, 0), (), False),
        (None, (), False),
    ],
)
def test_what_moved_is_the_share_that_is_waited_for(
    head: MmaWaits | None, moved: tuple[str, ...], for_each: bool
) -> None:
    pair = make_pair(head)
    assert (pair.moved, pair.waits_for_each_mma) == (moved, for_each)


def test_the_compilers_alone_name_the_loss_and_the_file_keeps_it(tmp_path: Path) -> None:
    pair = make_pair(MmaWaits(16, 16))
    assert judge_operator(pair, "", Design(1)).reason.endswith(
        "not timed; it waits for each of its MMAs now, which costs time"
    )
    report = ToolchainReport((ToolchainName("old"), ToolchainName("new")), "2026-11-22 10:00 UTC")
    report.pairs[pair.key] = pair
    ReportFile(tmp_path / "r.json", report).save()
    again = read_report(tmp_path / "r.json")
    assert again == report
    assert "; 1 not timed wait for each of their MMAs now, which costs time." in write_answer(again)
