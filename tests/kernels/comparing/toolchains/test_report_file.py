"""The file of an unfinished comparison: written now and then, read whole, refused where it is too large, and merged."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewatch import given_files
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    GPU_KEY,
    VERSION,
    BadReport,
    GpuUsed,
    ReportFile,
    ToolchainName,
    ToolchainReport,
    find_cubins,
    list_rows,
    merge,
    read_report,
    read_rows,
)
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning

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


KEY, OTHER_KEY = ("gemm", "1x1", "h200", "newer"), ("norm", "1x1", "h200", "newer")
SIDE = CompiledSide({}, "ok", 1.0, 1.0)


def fill(number: int) -> ToolchainReport:
    """A report with one entry of each kind, which have a number."""
    report = make_report()
    pair = ToolchainPair("gemm", f"{number}x1", "sm_90", "shipped", (SIDE,), (SIDE,), "newer")
    report.pairs[pair.key] = pair
    report.gpus[f"h{number}"] = GpuUsed(f"h{number}", "NVIDIA", "580.1", float(number))
    key = ("gemm", f"{number}x1", "h200", "newer")
    report.frozen[key] = report.retuned[key] = report.baselines[key] = Timing((1.0,) * number, (2.0,) * number)
    report.retunings[key] = Retuning(number, number)
    return report


def test_a_report_that_is_written_is_read_again_with_each_of_its_parts(tmp_path: Path) -> None:
    for report in (make_report(), fill(1), merge(fill(1), fill(2))):
        ReportFile(tmp_path / "r.json", report).save()
        assert read_report(tmp_path / "r.json") == report
    assert find_cubins(tmp_path / "r.json") == tmp_path / "r.cubins"


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_two_files_of_one_report_have_together_what_either_has(order: tuple[int, int]) -> None:
    parts = [fill(number) for number in order]
    found = merge(*parts)
    for name in ("pairs", "gpus", "frozen", "retuned", "retunings", "baselines"):
        known = [getattr(each, name) for each in parts]
        assert getattr(found, name) == known[0] | known[1]
        assert len(getattr(found, name)) == 2


@pytest.mark.parametrize("name", ["frozen", "retuned", "baselines"])
@pytest.mark.parametrize(("stored", "other", "kept"), [(3, 2, "stored"), (2, 3, "other"), (2, 2, "other")])
def test_of_two_timings_that_with_more_launches_is_kept_and_then_the_later_one(
    name: str, stored: int, other: int, kept: str
) -> None:
    reports = []
    for number, base_us in ((stored, 1.0), (other, 5.0)):
        report = make_report()
        getattr(report, name)[KEY] = Timing((base_us,) * number, (2.0,) * number)
        reports.append(report)
    assert getattr(merge(*reports), name)[KEY].base_us[0] == {"stored": 1.0, "other": 5.0}[kept]


@pytest.mark.parametrize(("stored", "other"), [(1, 9), (9, 1)])
def test_a_merged_report_has_the_longest_compilation_and_each_compiler_that_is_known(stored: int, other: int) -> None:
    parts = [replace(make_report(), static_wall_s=float(number), static_jobs=number) for number in (stored, other)]
    base, head = parts[0].sides
    mix = ToolchainName("mix", rung_of="newer")
    parts[0].sides = (replace(base, compiler="tile 1"), head, mix)
    parts[1].sides = (base, replace(head, compiler="tile 2"))
    found = merge(*parts)
    assert (found.static_wall_s, found.static_jobs) == (9.0, 9)
    assert {each.name: each.compiler for each in found.sides} == {"installed": "tile 1", "newer": "tile 2", "mix": ""}
    assert (found.base.name, found.title) == ("installed", "installed → newer")


@pytest.mark.parametrize("name", ["frozen", "retuned", "baselines", "retunings"])
def test_failures_that_may_not_occur_again_are_dropped_for_one_gpu_model(name: str) -> None:
    report = make_report()
    failed: Any = Retuning(9, 9, failure="no room") if name == "retunings" else Timing((1.0,), (2.0,), "no room")
    if name != "retunings":
        failed = replace(failed, is_of_head=True, may_pass=True)
    lasting = Retuning(9, 9) if name == "retunings" else Timing(failure="wrong", is_of_head=True)
    of_b200 = ("gemm", "1x1", "b200", "newer")
    getattr(report, name).update({KEY: failed, OTHER_KEY: lasting, of_b200: failed})
    assert [report.has_passing_failures(each) for each in ("h200", "b200", "h100")] == [True, True, False]
    report.drop_passing_failures("h200")
    assert [report.has_passing_failures(each) for each in ("h200", "b200")] == [False, True]
    kept = getattr(report, name)
    assert (kept[OTHER_KEY], kept[of_b200]) == (lasting, failed)
    assert kept.get(KEY) == (None if name == "retunings" else Timing((1.0,), (2.0,)))


def test_what_a_report_leaves_out_has_a_default_and_the_rest_is_demanded() -> None:
    rows = list_rows(fill(1))
    assert read_rows({name: value for name, value in rows.items() if name != "id"}).id == ""
    for name in rows.keys() - {"id", "tilewatch_toolchain_report"}:
        with pytest.raises(KeyError, match=name):
            read_rows({each: value for each, value in rows.items() if each != name})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tilewatch_toolchain_report": None}, "it has no tilewatch_toolchain_report version"),
        ({"tilewatch_toolchain_report": "x" * 100}, f"it is one of version '{'x' * 59}; this Tilewatch reads version"),
        ({"sides": []}, "it names no toolchain"),
        ({"static_wall_s": float("nan")}, "Out of range float values are not JSON compliant"),
        ({"fail_over": "much"}, "fail_over"),
    ],
)
def test_a_file_that_is_no_report_is_refused_with_a_reason_in_one_line(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**list_rows(fill(1)), **change}))
    with pytest.raises(BadReport, match=r"r\.json is not a report of `tilewatch toolchain compare`: ") as raised:
        read_report(path)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_rows_name_the_operator_and_the_gpu_that_they_are_of() -> None:
    (row,) = list_rows(fill(2))["frozen"]
    assert [row[name] for name in GPU_KEY] == ["gemm", "2x1", "h200", "newer"]
    assert (row["base_us"], row["head_us"]) == ((1.0, 1.0), (2.0, 2.0))
