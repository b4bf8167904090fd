"""The file of an unfinished comparison: written now and then, read whole, and refused where it is too large."""

import time
from pathlib import Path

import pytest

from tilewatch import given_files
from tilewatch.kernels.comparing.toolchains.report_file import (
    VERSION,
    BadReport,
    ReportFile,
    ToolchainName,
    ToolchainReport,
    read_report,
)

WHOLE_LIBRARY_BYTES = 400_000
"""A report of the whole library on one GPU (2026-11-23)."""


def make_report() -> ToolchainReport:
    return ToolchainReport((ToolchainName("installed"), ToolchainName("newer")), "2026-11-28 07:00 UTC")


def test_a_report_is_written_at_once_and_then_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, path, now = make_report(), tmp_path / "r.json", [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    kept = ReportFile(path, report)
    written = []
    for after_s in (0.0, 4.9, 0.1, 4.9, 5.0):
        now[0] += after_s
        report.static_wall_s = now[0]
        kept.save_soon()
        written.append(read_report(path).static_wall_s == now[0])
    assert written == [True, False, True, False, True]
    assert [each.name for each in tmp_path.iterdir()] == ["r.json"]


def test_a_report_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    ReportFile(path, make_report()).save()
    text = path.read_text()
    path.write_text(text.ljust(given_files.MOST_BYTES))
    assert read_report(path) == make_report()
    path.write_text(text.ljust(given_files.MOST_BYTES + 1))
    with pytest.raises(BadReport, match="has more than 16 MiB"):
        read_report(path)


def test_a_report_of_eight_gpu_models_can_be_read() -> None:
    assert 8 * 4 * WHOLE_LIBRARY_BYTES < given_files.MOST_BYTES < 1 << 30


def test_a_report_of_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for version in (VERSION - 1, VERSION + 1):
        path.write_text(f'{{"tilewatch_toolchain_report": {version}}}')
        with pytest.raises(BadReport, match=f"it is one of version {version}; this Tilewatch reads version {VERSION}$"):
            read_report(path)
