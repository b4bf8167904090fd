"""A watch file is proposed for a repository without one: what it watches passes `tilewatch validate` as it is."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.children.child_process import ChildProcess
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.proposing.proposal import Proposal, _Recorded, propose
from tilewatch.kernels.proposing.proposed_file import write_file
from tilewatch.kernels.proposing.recorded_calls import TooSlow, _DriverCalls, _run_each
from tilewatch.kernels.proposing.repository_sources import KernelName
from tilewatch.kernels.validating.mistakes import validate_library

OPS = """
import cuda.tile as ct
import torch


@ct.kernel
def scale_kernel(x, y, factor, tile: ct.Constant[int]):
    place = (ct.bid(0),)
    ct.store(y, place, ct.load(x, place, (tile,)) * factor)


@ct.kernel
def broken_kernel(x, tile: ct.Constant[int]):
    ct.store(x, (0,), ct.load(x, (0,), (tile,)))


@ct.kernel
def closure_kernel(x, y, tile: ct.Constant[int]):
    place = (ct.bid(0),)
    ct.store(y, place, ct.load(x, place, (tile,)))


@ct.kernel
def lonely_kernel(x):
    ct.store(x, (0,), ct.zeros((16,), ct.float32))


def scale(x, factor=2.0, *, tile=64):
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0] // tile, 1, 1), scale_kernel, (x, y, factor, tile))
    return y


def break_it(x):
    ct.launch(torch.cuda.current_stream(), (1,), broken_kernel, (x, 48))


def make_nested():
    @ct.kernel
    def nested_kernel(x):
        ct.store(x, (0,), ct.zeros((16,), ct.float32))

    return nested_kernel
"""

TEST = """
import pytest
import a_package_that_nobody_has
from ops import break_it, make_nested, scale
import cuda.tile as ct
import torch


@pytest.mark.parametrize("size, factor", [(1024, 3.0), (2048, 4.0)])
def test_scale(size, factor, monkeypatch):
    monkeypatch.setenv("SCALE", "1")
    x = torch.randn(size, device="cuda")
    assert (scale(x, factor) == factor * x).all()


class TestBroken:
    def test_break(self, benchmark):
        benchmark(break_it, torch.zeros(96, device="cuda"))


def test_nested():
    ct.launch(torch.cuda.current_stream(), (1,), make_nested(), (torch.zeros(64, device="cuda"),))
"""

BENCHMARK = """
import sys
import cuda.tile as ct
import torch
from ops import closure_kernel, lonely_kernel


def main():
    x, y = torch.randn(4096, 64, device="cuda")[:, 0], torch.empty(4096, device="cuda")
    run = lambda: ct.launch(torch.cuda.current_stream(), (32, 1, 1), closure_kernel, (x, y, 128))
    for _ in range(10):
        run()
    sys.exit("that was it")


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    for name, text in {"src/ops.py": OPS, "tests/test_ops.py": TEST, "benchmarks/bench.py": BENCHMARK}.items():
        file = root / name
        file.parent.mkdir()
        file.write_text(text)
    root.joinpath("watch").symlink_to("/etc")  # a proposal is written to no folder of the commit
    return root


@pytest.fixture(scope="module")
def proposal(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Proposal:
    return propose(checkout, "sm_90", tmp_path_factory.mktemp("cubins").as_uri())


def test_what_is_proposed_passes_as_it_is(checkout: Path, proposal: Proposal, tmp_path: Path) -> None:
    checkout.joinpath("tilewatch_watch", "proposed.py").write_text(proposal.text)
    validated = validate_library(checkout / "tilewatch_watch", [], ["sm_90"], tmp_path.as_uri())
    assert (validated.findings, validated.operators) == ((), 2)


def test_host_code_is_called_with_the_shape_and_the_arguments_of_its_test(proposal: Proposal) -> None:
    assert '@watch(problems="1024", names="n1", unchecked="no reference is written for it yet")\ndef scale(p):\n' in (
        proposal.text
    )
    assert "x = p.randn(p.n1, dtype=torch.float32)\n" in proposal.text
    assert "run=lambda: ops_module.scale(x, 3.0))" in proposal.text


def test_a_launch_in_a_closure_is_written_with_its_strides(proposal: Proposal) -> None:
    assert "x = p.randn(262081, dtype=torch.float32).as_strided((p.n1,), (64,))\n" in proposal.text
    assert "(32, 1, 1), ops_module.closure_kernel, (x, y, 128, ))" in proposal.text


def test_each_kernel_that_is_not_reached_has_its_reason(proposal: Proposal) -> None:
    reasons = {kernel.name: reason for kernel, reason in proposal.left_out.items()}
    assert set(reasons) == {"broken_kernel", "lonely_kernel", "nested_kernel"}
    assert "48" in reasons["broken_kernel"]
    assert "does not compile" in reasons["broken_kernel"]
    assert reasons["nested_kernel"] == "the kernel nested_kernel is defined inside a function"
    assert reasons["lonely_kernel"] == "no test, benchmark or script that runs without a GPU calls it"
    for kernel in proposal.left_out:
        assert f"# {kernel.file}: {kernel.name}: " in proposal.text


def test_a_kernels_own_file_says_why_it_is_not_reached_rather_than_a_test_that_names_it() -> None:
    recorded, kernel = _Recorded(), KernelName("samples/matmul.py", "matmul_kernel")
    for file, why in (("test/bench.py", "a"), ("samples/matmul.py", "b"), ("test/more.py", "c")):
        recorded.add({"calls": [], "stopped": [why]}, file, {kernel})
    assert recorded.reasons == {kernel: "samples/matmul.py stops: b"}


def test_a_long_reason_shows_that_it_is_cut() -> None:
    kernel = KernelName("ops.py", "scale_kernel")
    (line,) = (each for each in write_file((), {kernel: "so " * 200}).split("\n") if "ops.py" in each)
    assert line.endswith(" so ...")
    assert "# ops.py: scale_kernel: so so" in write_file((), {kernel: "so so"})


def test_the_settings_name_a_new_folder_and_where_modules_are_imported_from(proposal: Proposal) -> None:
    assert proposal.settings == '[tool.tilewatch]\nwatch = "tilewatch_watch"\npath = ["src"]'


RARE = """
import gc
import pytest
import torch
from ops import scale


@pytest.mark.parametrize("is_rare", [False, True, False, False, False])
def test_rare(is_rare):
    assert torch.randn(4, device="cuda").sum().item() == 2.5
    if is_rare:
        scale(torch.randn(1024, device="cuda"))


def test_later():
    raise ValueError(f"every kernel has its call; collecting garbage is fast: {gc.get_freeze_count() > 0}")
"""


FIXTURES = """
import pytest
import torch
from ops import scale


@pytest.fixture
def wrong():
    raise ValueError("no GPU")


@pytest.fixture(params=[512, 1024])
def size(request):
    return request.param


@pytest.fixture
def x(size):
    return torch.randn(size, device="cuda")


def test_scale(x, wrong):
    scale(x)
"""


def record(root: Path, file: str, wanted: list[list[str]], welcome: list[list[str]]) -> dict[str, Any]:
    child = ChildProcess("propose", readable=[str(root)])
    asked = {"ask": "record", "root": str(root), "arch": "sm_90", "file": file, "path": ["src"]}
    found: dict[str, Any] = child.ask({**asked, "wanted": wanted, "welcome": welcome}, deadline_s=600)
    child.close()
    return found


SCALE, BROKEN = ["src/ops.py", "scale_kernel"], ["src/ops.py", "broken_kernel"]


def test_a_driver_ends_when_each_kernel_has_its_call(checkout: Path) -> None:
    found = record(checkout, "tests/test_ops.py", [SCALE], [])
    assert [kernel for kernel, _ in found["calls"]] == [SCALE, SCALE]  # host code and its launch; no later test
    found = record(checkout, "tests/test_ops.py", [SCALE], [BROKEN])
    assert [kernel for kernel, _ in found["calls"]] == [SCALE, SCALE, BROKEN, BROKEN]


def test_fixtures_get_their_parameters_and_other_fixtures(tmp_path: Path) -> None:
    """The benchmarks of cutile-python name their shapes like that. A fixture that fails costs no other test."""
    tmp_path.joinpath("src").mkdir()
    tmp_path.joinpath("src", "ops.py").write_text(OPS)
    tmp_path.joinpath("test_fixtures.py").write_text(FIXTURES)
    found = record(tmp_path, "test_fixtures.py", [SCALE], [])
    assert [kernel for kernel, _ in found["calls"]] == [SCALE, SCALE]
    assert "512" in str(found["calls"])


def test_further_combinations_of_arguments_follow_the_first_ones_of_each_test(tmp_path: Path) -> None:
    tmp_path.joinpath("src").mkdir()
    tmp_path.joinpath("src", "ops.py").write_text(OPS)
    tmp_path.joinpath("test_rare.py").write_text(RARE)
    found = record(tmp_path, "test_rare.py", [SCALE], [])
    assert [kernel for kernel, _ in found["calls"]] == [SCALE, SCALE]
    stopped = "test_later: ValueError: every kernel has its call; collecting garbage is fast: True"
    assert found["stopped"] == [stopped]  # no assert of a guess stopped it
    assert record(tmp_path, "test_rare.py", [], [SCALE])["calls"] == []


def test_a_step_that_takes_too_long_without_a_launch_is_not_repeated() -> None:
    recorder = _DriverCalls({}, "test_ops.py", {("src/ops.py", "scale_kernel")})
    began: list[str] = []

    def run(name: str, launches: int) -> None:
        began.append(name)
        recorder.launches = launches
        raise TooSlow

    steps = [(name, partial(run, name, launches)) for name, launches in [("a", 0), ("b", 1), ("a", 0), ("b", 1)]]
    assert list(_run_each(recorder, steps)) == []
    assert began == ["a", "b", "b"]


def test_a_repository_without_kernels_gets_no_proposal(tmp_path: Path) -> None:
    tmp_path.joinpath("a.py").write_text("import cuda.tile\n")
    with pytest.raises(LibraryError, match=r"has a function under @ct\.kernel"):
        propose(tmp_path, "sm_90", tmp_path.as_uri())
