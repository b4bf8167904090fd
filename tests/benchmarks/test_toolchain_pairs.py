"""The benchmark of the GPU's half, on a fake GPU in real processes: it times anew, and counts answers and processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu.toolchain_pairs import Wanted, measure
from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, Rig, install_for_children
from tilewatch.kernels.comparing.toolchains import timing_order
from tilewatch.kernels.comparing.toolchains.pairs import Build, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    ReportFile,
    ToolchainName,
    ToolchainReport,
    find_cubins,
    read_report,
)
from tilewatch.kernels.comparing.toolchains.safety_verdict import Timing
from tilewatch.kernels.measuring import gpu_processes, replay


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wanted:
    install_for_children(monkeypatch)
    monkeypatch.setattr(replay, "MOST_AHEAD", 1)
    path = tmp_path / "a..b.json"
    store = find_cubins(path) / "changed"
    store.mkdir(parents=True)
    report = ToolchainReport(ToolchainName("a", "cuda-tile 1"), ToolchainName("b", "cuda-tile 2"), "2026-11-22")
    for kernel, fault in (("residual_add", ""), ("softmax", "off")):
        rig = Rig(store, kernel)
        a = Build({"tile_rows": 1}, "ok", 1.0, 1.0, None, "code of A", kernel, rig.cubin(1, 100.0).content_key)
        b = replace(a, code_sha256="code of B", cubin=rig.cubin(1, 110.0, fault=fault).content_key)
        report.pairs[kernel, PROBLEM, "sm_90"] = ToolchainPair(kernel, PROBLEM, "sm_90", "shipped", (a,), (b,))
    known = Timing("softmax", PROBLEM, "h200", "frozen", a.config, a.config, (1.0,) * 40, (1.0,) * 40)
    report.frozen["softmax", PROBLEM, "h200"] = known
    ReportFile(path, report).save()
    return Wanted(path, tmp_path / "out.json", LIBRARY)


def test_all_is_timed_anew_and_answers_launches_and_waits_are_counted(
    wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_order, "_list_useful_looks", lambda _: (2,))
    figures = {figure.what: figure for figure in measure(wanted)}
    assert figures["series decided, frozen, of 2"].value == "1", "B's softmax is wrong, which is an answer"
    assert figures["launches of pairs on NVIDIA H200"].value == "2"
    assert len(read_report(wanted.out).frozen["residual_add", PROBLEM, "h200"].a_us) == 2
    assert "  waited for library: reference, 3 times" in figures, "of both, and of one again"
    assert "  waited for library: end, 3 times" in figures, "two that were used, and one that waited"
    assert gpu_processes.ChildProcess.__name__ == "ChildProcess"


def test_what_the_time_did_not_suffice_for_is_missed(wanted: Wanted) -> None:
    figures = {figure.what: figure for figure in measure(replace(wanted, minutes=0.0))}
    assert figures["series decided, frozen, of 2"].value == "0"
    assert figures["series decided, frozen, of 2"].is_met is False
