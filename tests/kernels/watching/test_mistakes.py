"""Says what is wrong with a watch file in one sentence, with file and line."""

import shutil
from pathlib import Path

import pytest

from tilewatch.kernels.catalog.catalog import read_library
from tilewatch.kernels.catalog.loading import LibraryError

REPOSITORY = Path(__file__).parent / "fixtures" / "foreign_repository"

WRONG = """
import cuda.tile as ct; import torch
from tilewatch import case, watch
from tiny_ops import host

@watch(problems="8", names="n")
def no_case(p):
    return host.scale

@watch(problems="8", names="n", baselines=("torhc",))
def no_such_baseline(p):
    return case(run=lambda: host.scale(p.randn(8, p.n)), reference=lambda: None, torch=lambda: None)

@watch(problems="8", names="n")
def no_reference(p):
    return case(run=lambda: host.scale(p.randn(8, p.n)))

@watch(problems="8", names="n")
def nothing_launched(p):
    return case(run=lambda: p.randn(8, p.n), reference=lambda: None)

@watch(problems="8", names="n")
def no_such_size(p):
    return case(run=lambda: host.scale(p.randn(8, p.rows)), reference=lambda: None)

@watch(problems="8", names="n")
def values_needed(p):
    x = p.randn(8, p.n)
    return case(run=lambda: host.scale(x[: int(x.sum())]), reference=lambda: None)

@watch(problems="8", names="n")
def function_needed(p):
    x = p.randn(8, p.n)
    return case(run=lambda: host.scale(torch.linalg.qr(x).Q), reference=lambda: None)

@watch(problems="8", names="n")
def host_code_fails(p):
    return case(run=lambda: host.add([], torch.float32, True), reference=lambda: None)

@watch(problems="8", names="n", configs=[{"tile": 3}])
def no_place_for_configs(p):
    return case(run=lambda: host.scale_and_sum(p.randn(8, 64)), reference=lambda: None)

@watch(problems="8", names="n", configs={"tile": 3})
def no_list(p):
    return case(run=lambda tile=1: host.scale_and_sum(p.randn(8, 64)), reference=lambda: None)

@watch(problems="8", names="n")
def configs_missing(p):
    return case(run=lambda tile: host.scale_and_sum(p.randn(8, 64), tile), reference=lambda: None)

@watch(problems="8", names="n", baselines=("torch",))
def called_too_early(p):
    x = p.randn(8, 64)
    return case(run=lambda: host.scale_and_sum(x), reference=lambda: (x, x), torch=x.sum(-1))

@watch(problems="8", names="n")
def no_number(p):
    return case(run=lambda: host.scale_and_sum(p.randn(8, 64)), reference=lambda: None, flops="2 n")

@ct.kernel
def größe(x):
    pass

@watch(problems="8", names="n")
def not_compiled(p):
    return case(run=lambda: ct.launch(0, (1,), größe, (p.randn(8, 64),)), reference=lambda: None)
"""

ENDS = """
import sys
from tilewatch import case, watch

@watch(problems="8", names="n")
def ends_the_process(p):
    sys.exit("no GPU")
"""

SKIPS = """
class Skipped(BaseException):
    pass

raise Skipped("needs Blackwell")
"""

EARLY = "import torch\nfrom tiny_ops import host\n\nhost.scale(torch.ones(2, 2))\n"

SENTENCES = [
    "line 6: no_case returns function; expected case(...)",
    "line 10: no_such_baseline has no baseline 'torhc'; it has torch, copy",
    "line 14: the case of no_reference needs either a reference, or a reason in `unchecked` why its result is not "
    "compared",
    "line 18: nothing_launched on 8 {}: `run` launches no cuTile kernel",
    "line 22: no_such_size on 8 {}: AttributeError: the problem 8 has no 'rows'; it has n (watch/wrong.py, line 24)",
    "line 26: values_needed on 8 {}: the host code needs the values of a tensor (Tensor.__int__), which Tilewatch's "
    "stand-in for PyTorch does not have; `pip install torch` (the CPU build is enough) makes whole numbers known "
    "(watch/wrong.py, line 29)",
    "line 31: function_needed on 8 {}: PyTorch is not installed on this machine, and Tilewatch's stand-in for it has "
    "no torch.linalg.qr; `pip install torch` (the CPU build is enough) where host code runs makes it possible "
    "(watch/wrong.py, line 34)",
    "line 36: host_code_fails on 8 {}: IndexError: list index out of range (src/tiny_ops/host.py, line 50)",
    "line 40: `configs` of no_place_for_configs has tile, but `run` takes no arguments and its host code searches "
    "nothing",
    "line 44: no_list: `configs` has the axis 'tile' with 3; expected a list of values",
    "line 48: `run` of configs_missing takes arguments, so `configs` must say which",
    "line 52: called_too_early on 8 {}: ValueError: `torch` is a Tensor; expected a function, such as `lambda: ...` "
    "(watch/wrong.py, line 55)",
    "line 57: no_number on 8 {}: ValueError: `flops` is '2 n'; expected a number from 0 to less than 2**63 "
    "(watch/wrong.py, line 59)",
    "line 65: not_compiled on 8 {}: the tile compiler compiles no kernel named größe: name it with letters from a to z",
]

NOT_LOADED = {
    "missing.py": ("import math\nimport not_installed_anywhere\n", "No module named 'not_installed_anywhere' (line 2)"),
    "early.py": (EARLY, "`exhaustive_search` is called outside `run`"),
    "exits.py": ("import sys\n\nsys.exit('no GPU')\n", "does not load: SystemExit: no GPU (line 3)"),
    "a_syntax.py": ("def broken(:\n", "does not load: SyntaxError: "),
    "skips.py": (SKIPS, "does not load: Skipped: needs Blackwell (line 5)"),
}
"""Files, and the end or middle of what is said on each. pytest.skip() raises a BaseException called Skipped."""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], tuple[str, ...]]:
    """The operators of the repository with wrong watch files and those of NOT_LOADED, and the sentences on those."""
    root = tmp_path_factory.mktemp("checkout") / "repository"
    shutil.copytree(REPOSITORY, root)
    (root / "watch" / "wrong.py").write_text(WRONG)
    (root / "watch" / "ends.py").write_text(ENDS)
    for name, (source, _) in NOT_LOADED.items():
        (root / "watch" / name).write_text(source)
    found = read_library(root / "watch", arch="sm_90")
    return {plan.kernel for plan in found.plans}, found.failures


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_mistake_is_a_sentence_with_file_and_line(read: tuple[set[str], tuple[str, ...]], sentence: str) -> None:
    wanted = f"watch file wrong.py, {sentence.format('cannot be traced for sm_90')}"
    assert wanted in read[1]


@pytest.mark.parametrize("name", NOT_LOADED)
def test_a_file_that_does_not_load_is_a_sentence(read: tuple[set[str], tuple[str, ...]], name: str) -> None:
    (sentence,) = [each for each in read[1] if f"watch file {name} " in each]
    assert NOT_LOADED[name][1] in sentence


def test_host_code_that_ends_the_process_costs_its_own_operator(read: tuple[set[str], tuple[str, ...]]) -> None:
    (sentence,) = [each for each in read[1] if "ends_the_process" in each]
    assert sentence == (
        "watch file ends.py, line 5: ends_the_process on 8 cannot be traced for sm_90: the host code ends with "
        "SystemExit: no GPU (watch/ends.py, line 7)"
    )


def test_a_mistake_costs_its_own_operator_only(read: tuple[set[str], tuple[str, ...]]) -> None:
    assert read[0] == {"tuned", "tuned_twice", "transposed", "unaligned", "listed", "chosen", "fastest"}


def test_an_interrupt_still_ends_the_process(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    (tmp_path / "repository" / "watch" / "stops.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(LibraryError, match=r"cannot be read: .*KeyboardInterrupt"):
        read_library(tmp_path / "repository" / "watch", arch="sm_90")
