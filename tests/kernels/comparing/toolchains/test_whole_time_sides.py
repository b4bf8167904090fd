"""The GPU's half from end to end on a fake GPU, in real child processes: a report with cubins made elsewhere."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kernels.fixtures.fake_gpu import LIBRARY, PROBLEM, Rig, install_for_children
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains.comparison import ComparisonWanted, compare_toolchains
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    ReportFile,
    ToolchainName,
    ToolchainReport,
    find_cubins,
    read_report,
)
from tilewatch.kernels.comparing.toolchains.report_verdict import judge_report
from tilewatch.kernels.measuring import pair_bench

KERNELS = {"residual_add": 100.0, "softmax": 110.0, "accumulate": 90.0}
"""The microseconds of B's cubins; A's take 100."""


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ComparisonWanted:
    install_for_children(monkeypatch)
    monkeypatch.setattr(pair_bench, "MOST_AHEAD", 1)
    path = tmp_path / "a..b.json"
    store = find_cubins(path) / "changed"
    store.mkdir(parents=True)
    report = ToolchainReport((ToolchainName("a", "cuda-tile 1"), ToolchainName("b", "cuda-tile 2")), "2026-11-22")
    for kernel, head_us in {**KERNELS, "silu_and_multiply": 100.0}.items():
        rig = Rig(store, kernel)
        of_a, of_b = rig.cubin(1, 100.0), rig.cubin(2, head_us)
        base = CompiledSide({"tile_rows": 1}, "ok", 1.0, 1.0, None, "code of A", of_a.symbol, of_a.content_key)
        # B's code would be launched with its own tiles: as many as A's, since the config is one.
        head = replace(base, code_sha256="code of B", cubin=rig.cubin(1, head_us, key=of_b.content_key).content_key)
        if kernel == "silu_and_multiply":
            head = replace(head, code_sha256="code of A")
        pair = ToolchainPair(kernel, PROBLEM, "sm_90", "shipped", (base,), (head,), "b")
        report.pairs[pair.key] = pair
    ReportFile(path, report).save()
    return ComparisonWanted(
        names=("a", "b"),
        toolchains=tmp_path,
        environments=tmp_path,
        library=LIBRARY,
        report=path,
        archs=(),
        kernels=(),
        problem=None,
        source=ConfigSource.shipped,
        recordings=(),
        gpu=0,
        minutes=None,
        retunes=False,
        fail_over=0.0,
        jobs=1,
        limit_s=15.0,
        may_use_events=False,
    )


@pytest.fixture
def safety(wanted: ComparisonWanted) -> Callable[[], dict[str, str]]:
    return lambda: {each.pair.kernel: each.safety for each in judge_report(read_report(wanted.report), "h200")}


def test_cubins_made_elsewhere_are_timed_without_either_toolchain_also_after_time_was_spent(
    wanted: ComparisonWanted, safety: Callable[[], dict[str, str]]
) -> None:
    """Re-tuning, which is the default, ended the command with the compiler's error."""
    compare_toolchains(replace(wanted, minutes=0.0), lambda _: None)
    assert set(safety().values()) == {"unknown", "safe"}
    known = read_report(wanted.report)
    full = Timing(failure="something ended the GPU process: out of memory", may_pass=True)
    known.frozen["residual_add", PROBLEM, "h200", "b"] = full
    ReportFile(wanted.report, known).save()
    said: list[str] = []
    report = compare_toolchains(replace(wanted, retunes=True), said.append)
    assert safety() == {
        "residual_add": "safe",
        "softmax": "not safe",
        "accumulate": "safe",
        "silu_and_multiply": "safe",
    }
    assert "frozen: 3 of 3 operators and problems are open" in said
    assert "nothing is re-tuned with b, which is not installed here" in said
    assert len(report.frozen) == 3
    assert report.gpus["h200"].driver == "580.159.04"
    assert {len(timing.base_us) for timing in report.frozen.values()} <= {9, 12, 16}


def test_what_got_slower_is_swept_with_b(wanted: ComparisonWanted) -> None:
    """The real compiler's cubins mean nothing to the fake GPU, so no config is right: the sweep ends and says so."""
    known = read_report(wanted.report)
    known.sides = (known.base, ToolchainName("installed"))
    softmax = [replace(pair, head_name="installed") for pair in known.pairs.values() if pair.kernel == "softmax"]
    known.pairs = {pair.key: pair for pair in softmax}
    ReportFile(wanted.report, known).save()
    report = compare_toolchains(
        replace(wanted, names=("a", "installed"), retunes=True, kernels=("softmax",)), lambda _: None
    )
    ((key, retuning),) = report.retunings.items()
    assert key == ("softmax", PROBLEM, "h200", "installed")
    assert (retuning.tried, retuning.compiled, retuning.winner, retuning.failure) == (5, 5, None, None)
    (judged,) = (each for each in judge_report(report, "h200") if each.pair.kernel == "softmax")
    assert judged.reason.endswith("re-tuned: no config gives right results; all 5 configs were tried")
