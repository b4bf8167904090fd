"""Every kernel of the library computes what it says: all configs of a small space, interpreted, meet the reference."""

import itertools
import re
from pathlib import Path

import pytest

from tilewatch.kernels.catalog.catalog import read_library
from tilewatch.kernels.catalog.loading import load as load_real
from tilewatch.kernels.device import GPU_MODELS
from tilewatch.kernels.library import FOLDER as LIBRARY
from tools.tile_interpreter import running
from tools.tile_interpreter.cases import SMALL, cases, expected, inputs, largest_error
from tools.tile_interpreter.rounding import NotCovered
from tools.tile_interpreter.tile import Undefined

GUIDE = LIBRARY.parents[1] / "docs" / "reference" / "library-files.md"
INTERPRETED = {
    name: found
    for path in sorted(LIBRARY.glob("*.py"))
    if path.name != "__init__.py"
    for name, found in running.load(path).items()
}


@pytest.mark.parametrize("arch", sorted({each.arch for each in GPU_MODELS}))
def test_no_file_of_the_library_is_left_out_of_a_night(arch: str) -> None:
    """A space with too many configs left its kernel out of each night. `tilewatch validate` would have named it."""
    assert read_library(LIBRARY, arch=arch).failures == ()


def test_every_kernel_of_the_library_has_small_cases() -> None:
    assert set(SMALL) == set(INTERPRETED) == set(load_real(LIBRARY)), (
        "add the kernel to tools/tile_interpreter/cases.py"
    )


@pytest.mark.parametrize("name", sorted(INTERPRETED))
def test_every_config_of_a_small_space_agrees_with_the_reference(name: str) -> None:
    found = INTERPRETED[name]
    wrong = []
    for problem_name, of_problem in itertools.groupby(cases(found.kernel), key=lambda case: case.problem):
        problem = found.kernel.parse(problem_name)
        raw = inputs(found.kernel, problem)
        wanted = expected(found.kernel, problem, raw)
        for case in of_problem:
            error = largest_error(found.kernel, problem, wanted, running.run(found, problem, case.config, raw))
            if not error <= found.kernel.tolerance(problem):
                wrong.append(f"{problem_name} {dict(case.config)}: off by {error:.3g}")
    assert not wrong, "\n".join(wrong)


def test_the_guide_s_example_is_a_whole_library_file(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "double.py").write_text(example)
    double = running.load(tmp_path / "double.py")["double"]
    problem = double.kernel.parse("1031")
    raw = inputs(double.kernel, problem)
    outputs = running.run(double, problem, {"width": 256, "occupancy": 1}, raw)
    wanted = expected(double.kernel, problem, raw)
    assert largest_error(double.kernel, problem, wanted, outputs) <= double.kernel.tolerance(problem)
    assert load_real(tmp_path)["double"].kernel.baselines == ("copy",)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("ct.full((tile_m, tile_n), 0.0", "ct.full((tile_m, tile_n), 0.5", None),
        ("tiles_k = ct.num_tiles(a, axis=1, shape=(tile_m, tile_k))", "tiles_k = 1", None),
        ("padding_mode=ct.PaddingMode.ZERO", "padding_mode=ct.PaddingMode.UNDETERMINED", None),
        ("rows = min(tiles_m - first_m, group_size_m)", "rows = group_size_m", Undefined),
        ("tile=ct.astype(acc, d.dtype)", "tile=acc", Undefined),
        ("ct.mma(x, ct.transpose(y), acc)", "ct.mma(x, ct.cumsum(y), acc)", NotCovered),
    ],
)
def test_a_broken_kernel_is_found_out(tmp_path: Path, old: str, new: str, found: type[Exception] | None) -> None:
    source = (LIBRARY / "gemm.py").read_text()
    assert old in source
    (tmp_path / "gemm.py").write_text(source.replace(old, new))
    broken = running.load(tmp_path / "gemm.py")["gemm_fp8"]
    problem = broken.kernel.parse("129x144x80")
    raw = inputs(broken.kernel, problem)
    config = {"tile_m": 16, "tile_n": 32, "tile_k": 32, "group_size_m": 2, "num_ctas": 1, "occupancy": 1}
    if found is None:
        wanted = expected(broken.kernel, problem, raw)
        error = largest_error(broken.kernel, problem, wanted, running.run(broken, problem, config, raw))
        assert error > broken.kernel.tolerance(problem)
    else:
        with pytest.raises(found):
            running.run(broken, problem, config, raw)
