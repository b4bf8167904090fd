"""A run's checklist: also of host code that searches nothing, and never at the cost of the run."""

import datetime as dt
from pathlib import Path

import pytest

from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.checklist import of_winner
from tilewatch.kernels.checklist.of_winner import add_checklist
from tilewatch.kernels.checklist.source_facts import source_facts
from tilewatch.kernels.measuring.measure import MeasureRequest
from tilewatch.kernels.results import Cubin, Measured, RunResult

WATCH = """
import cuda.tile as ct
import torch
from tilewatch import case, watch

@ct.kernel
def copy_rows(x, out):
    ct.store(out, index=(ct.bid(0), 0), tile=ct.load(x, index=(ct.bid(0), 0), shape=(1, 16)))

@watch(problems="8x16", names="rows x cols")
def copied(p):
    x = p.randn(p.rows, p.cols)
    def run():
        out = torch.empty_like(x)
        ct.launch(torch.cuda.current_stream(), (p.rows,), copy_rows, (x, out))
        return out
    return case(run=run, reference=lambda: x)
"""
NOW = dt.datetime(2026, 11, 28, tzinfo=dt.UTC)


@pytest.fixture
def watch(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.tilewatch]\n")
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "ops.py").write_text(WATCH)
    return tmp_path / "watch"


def run_of(winner: dict[str, int]) -> RunResult:
    ours = Measured("copied", "kernel", (1.0,), winner)
    return RunResult(
        "host", "h100", "GPU-1", "H100", "cupti", {}, (), 1.0, winner, (winner,), (), (ours,), NOW, NOW
    )  # fmt: skip


def test_the_one_config_of_host_code_that_searches_nothing_is_described(watch: Path) -> None:
    """It is {}, which is a config too."""
    described = catalog.describe(watch, arch="sm_90", kernel="copied", problem="8x16", config={})
    assert (described.kernel, described.entry, described.config) == ("copied", "copy_rows", {})


MADE = WATCH.replace("@ct.kernel\ndef copy_rows", "def copy_rows(): pass\ndef make():\n  @ct.kernel\n  def copied_rows")
MADE = MADE.replace("    ct.store(out", "      ct.store(out").replace(
    "\n@watch", "  return copied_rows\nmade = make()\n@watch"
)


def test_a_kernel_that_a_function_makes_has_a_checklist(watch: Path) -> None:
    (watch / "ops.py").write_text(MADE.replace("copy_rows, (x", "made, (x"))
    described = catalog.describe(watch, arch="sm_90", kernel="copied", problem="8x16", config={})
    assert described.entry == "copied_rows"
    assert source_facts(described.source, described.entry, described.constants, described.line).loads != []


KERNEL = WATCH[WATCH.index("@ct.kernel") : WATCH.index("@watch")]
SIDED = KERNEL.replace("(1, 16)", "(1, side)")
FORMS = {
    "constants before a slash": SIDED.replace("(x, out)", "(side: ct.Constant[int], x, out, /)"),
    "constants by another name": "Side = ct.Constant[int]\n" + SIDED.replace("(x, out)", "(side: Side, x, out)"),
    "a constant as a keyword": SIDED.replace("(x, out)", "(x, out, *, side: ct.Constant[int])"),
    "another name": KERNEL.replace("@ct.kernel\n", "")
    + "copy_rows.__name__ = 'row'\ncopy_rows = ct.kernel(copy_rows)\n",
    "two of a name": "def make(wide):\n  if not wide:\n    @ct.kernel\n    def copy_rows(x, out):\n      ct.store(out, "
    "index=(ct.bid(0), 0), tile=ct.load(x, index=(ct.bid(0), 0), shape=(1, 16)))\n  else:\n    @ct.kernel\n    "
    "def copy_rows(x, out):\n      pass\n  return copy_rows\ncopy_rows = make(False)\n",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_source_of_a_kernel_is_read_in_whatever_form(watch: Path, form: str) -> None:
    arguments = "(16, x, out)" if "(side:" in form else "(x, out, 16)" if "side:" in form else "(x, out)"
    (watch / "ops.py").write_text(WATCH.replace(KERNEL, form).replace("copy_rows, (x, out)", f"copy_rows, {arguments}"))
    described = catalog.describe(watch, arch="sm_90", kernel="copied", problem="8x16", config={})
    ((line, operation, shape),) = source_facts(
        described.source, described.entry, described.constants, described.line
    ).shapes
    assert (operation, shape) == ("load", (1, 16))
    assert "ct.load(x" in (watch / "ops.py").read_text().splitlines()[line - 1]
    assert described.file == "watch/ops.py"


@pytest.mark.parametrize("step", ["catalog.describe", "checklist"])
@pytest.mark.parametrize("error", [KeyError("description"), RuntimeError("anything"), OSError(28, "no space")])
def test_a_checklist_that_cannot_be_made_costs_no_run(
    watch: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    step: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"{of_winner.__name__}.{step}", fail)
    (tmp_path / "store" / "ke").mkdir(parents=True)
    (tmp_path / "store" / "ke" / "key.cubin").write_bytes(b"of a simulated GPU")
    request = MeasureRequest(watch, "copied", "8x16", "sm_90", (tmp_path / "store").as_uri(), (), 0, ())
    run = run_of({})
    assert add_checklist(run, request, [Cubin({}, "key", "copy_rows")]) == run
    assert f"no checklist of copied on 8x16: {type(error).__name__}" in caplog.text
