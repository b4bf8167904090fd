"""The folder of one operator's change, made from a real comparison: what is in it, and what has none."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu import GIVEN, write_giving_library
from tests.kernels.fixtures.second_toolchain import make_toolchain
from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog.description import describe
from tilewatch.kernels.catalog.loading import LibraryKernel, load
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.toolchains import time_pair
from tilewatch.kernels.comparing.toolchains.comparison import ComparisonWanted, compare_toolchains, find_installed_side
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    ToolchainName,
    ToolchainReport,
    find_cubins,
    read_report,
)
from tilewatch.kernels.comparing.toolchains.reproduce import (
    NothingToReproduce,
    ReproducedCase,
    find_pair,
    list_moved_instructions,
    write_case,
)
from tilewatch.kernels.contract import Array

WITHOUT_LEVEL = 'for each; do shift; case "$each" in -O*) ;; *) set -- "$@" "$each" ;; esac; done\n'


@pytest.fixture
def case(tmp_path: Path) -> ReproducedCase:
    library = tiny_repository.make(tmp_path / "watched") / "library"
    file = library / "double.py"
    file.write_text(file.read_text().replace("(64, 128, 256, 96)", "(64, 128, 256)"))
    make_toolchain(tmp_path, "worse", script=f'{WITHOUT_LEVEL}exec "$TILEIRAS" -O0 "$@"')
    report = tmp_path / "r.json"
    wanted = ComparisonWanted(
        names=("installed", "worse"),
        toolchains=tmp_path,
        environments=tmp_path,
        library=library,
        report=report,
        archs=("sm_90", "sm_100"),
        kernels=("double",),
        problem="1024",
        source=ConfigSource.shipped,
        recordings=(),
        gpu=None,
        minutes=None,
        retunes=True,
        fail_over=0.0,
        jobs=1,
        limit_s=15.0,
        may_use_events=False,
    )
    compare_toolchains(wanted, lambda _: None)
    known = read_report(report)
    sides = (find_installed_side("installed", tmp_path), find_installed_side("worse", tmp_path))
    return ReproducedCase(known, find_pair(known, "double", "1024", "sm_90"), library, find_cubins(report), sides)


def test_the_folder_has_all_that_a_stranger_needs(case: ReproducedCase, tmp_path: Path) -> None:
    out = tmp_path / "case"
    names = write_case(case, out)
    wanted = {
        "README.md",
        "base.cubin",
        "head.cubin",
        "base.bytecode",
        "head.bytecode",
        "case.json",
        "library",
        "numbers.json",
    }
    assert wanted | {"time_pair.py"} <= set(names)
    assert list(names) == sorted(names)
    assert (out / "base.cubin").read_bytes() != (out / "head.cubin").read_bytes()
    assert (out / "library" / "double.py").exists()
    described = json.loads((out / "case.json").read_text())
    assert described["grid"] == [8, 1, 1]
    assert [(each["name"], each["shape"], each["written"]) for each in described["arguments"]] == [
        ("x", [1024], False),
        ("y", [1024], True),
    ]
    readme = (out / "README.md").read_text()
    assert "tileiras base.bytecode -o base.again.cubin --gpu-name sm_90 -O3 --lineinfo" in readme
    assert "sm_90: unknown: other machine code, not timed" in readme


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("dtype", "given"),
    [("int32", GIVEN.astype(np.int32)), ("float32", GIVEN.astype(np.float64)), ("bfloat16", GIVEN.astype(np.uint16))],
)
def test_the_script_reads_the_values_that_the_library_gives(tmp_path: Path, dtype: str, given: np.ndarray) -> None:
    loaded = load(write_giving_library(tmp_path))["softmax"]
    assert isinstance(loaded, LibraryKernel)
    arrays = (Array("x", (64, 64), dtype, fill="given"), *loaded.kernel.arrays(loaded.kernel.problems[0])[1:])
    kernel = replace(loaded.kernel, arrays=lambda _: arrays, given=lambda _: {"x": given})
    launch = describe(replace(loaded, kernel=kernel), kernel.problems[0], {"tile_rows": 1}, "sm_90")["launch"]
    x, y = (time_pair._make_array(each) for each in json.loads(json.dumps(launch))["arguments"])
    assert (x.dtype, x.tolist()) == (time_pair.RAW.get(dtype, dtype), given.tolist())
    assert not y.any()


def decode(array: Any, dtype: str) -> np.ndarray:
    """The values that the bits of an array stand for."""
    if dtype == "float8_e8m0fnu":
        return np.exp2(array.astype(np.float64) - 127)
    if dtype == "float8_e4m3fn":
        bits = array.astype(np.int64)
        return np.exp2((bits >> 3 & 15) - 7.0) * (1 + (bits & 7) / 8) * np.where(bits & 128, -1, 1)
    return np.asarray(time_pair._as_float(array, dtype), dtype=np.float64)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *(
            (dtype, fill)
            for dtype in ("float32", "float16", "bfloat16", "float8_e4m3fn")
            for fill in ("normal", "scale")
        ),
        ("float8_e8m0fnu", "scale"),
    ],
)
def test_the_script_fills_arrays_with_values_of_size_one(dtype: str, fill: str) -> None:
    """Whatever bits stand for them: what is timed must not overflow or vanish."""
    made = time_pair._make_array({"shape": (64, 64), "dtype": dtype, "values": None, "output": False, "fill": fill})
    values = decode(made, dtype)
    assert made.shape == (64, 64)
    center, spread = (1.0, np.log2(np.abs(values)).std()) if fill == "scale" else (0.0, values.std())
    assert abs(np.median(values) - center) < 0.1
    assert spread == pytest.approx(1.0 if fill == "normal" or dtype == "float8_e8m0fnu" else 0.25, rel=0.2)
    assert (values > 0).all() == (fill == "scale")


def make_pair(arch: str, kind: str) -> ToolchainPair:
    base = CompiledSide({}, "ok", 1.0, 1.0, code_sha256="old", cubin="old")
    head = {
        "identical": base,
        "changed": replace(base, code_sha256="new", cubin="new"),
        "stopped compiling": replace(base, status="error", code_sha256=None, cubin=None),
    }[kind]
    sides = (head, base) if kind == "stopped compiling" and arch == "sm_120" else (base, head)
    return ToolchainPair("double", "1024", arch, "shipped", (sides[0],), (sides[1],), "newer")


def choose(*pairs: ToolchainPair, arch: str | None = None) -> str:
    report = ToolchainReport((ToolchainName("installed"), ToolchainName("newer")), "2026-11-28 07:00 UTC")
    report.pairs = {each.key: each for each in pairs}
    return find_pair(report, "double", "1024", arch).arch


def test_the_pair_of_an_architecture_whose_code_differs_is_preferred() -> None:
    same, other = make_pair("sm_80", "identical"), make_pair("sm_90", "changed")
    assert choose(same, other) == choose(other, same) == "sm_90"
    assert choose(same, other, arch="sm_80") == "sm_80"
    assert choose(make_pair("sm_90", "stopped compiling")) == "sm_90"
    with pytest.raises(NothingToReproduce, match="sm_120: compiles now, so there is nothing to see"):
        choose(make_pair("sm_120", "stopped compiling"))


def test_the_command_in_the_folder_makes_the_same_cubin_again(case: ReproducedCase, tmp_path: Path) -> None:
    out = tmp_path / "case"
    write_case(case, out)
    readme = (out / "README.md").read_text()
    (command,) = [line for line in readme.splitlines() if line.startswith("tileiras head.bytecode")]
    worse = case.toolchains[1]
    assert worse is not None
    assert worse.folder is not None
    program = worse.folder / "nvidia" / "cu13" / "bin" / "tileiras"
    subprocess.run([str(program), *command.split()[1:]], cwd=out, check=True)
    assert (out / "head.again.cubin").read_bytes() == (out / "head.cubin").read_bytes()


def test_the_instructions_whose_numbers_moved_most_come_first() -> None:
    def sass(*names: str) -> str:
        return "\n".join(f"        /*{16 * at:04x}*/  {name} R2, R3 ;  /* 0x1 */" for at, name in enumerate(names))

    base = sass("WARPGROUP.ARRIVE", "@P0 BRA", "MOV", "MOV", "FADD")
    head = sass("WARPGROUP.ARRIVE", "WARPGROUP.ARRIVE", "WARPGROUP.ARRIVE", "@!UP0 BRA", "MOV", "FADD", "MOV", "MOV")
    assert list_moved_instructions(base, head) == ["WARPGROUP.ARRIVE 1 -> 3", "MOV 2 -> 3"]


def test_an_operator_that_the_report_lacks_is_a_sentence(case: ReproducedCase) -> None:
    with pytest.raises(NothingToReproduce, match="the report has no double 2048 for sm_90"):
        find_pair(case.report, "double", "2048", "sm_90")
