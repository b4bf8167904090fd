"""The folder of one operator's change, made from a real comparison: what is in it, and what has none."""

import base64
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu import GIVEN, write_giving_library
from tests.kernels.fixtures.second_toolchain import make_toolchain
from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog.description import Description, describe
from tilewatch.kernels.catalog.loading import LibraryKernel, load
from tilewatch.kernels.comparing.configs import ConfigSource
from tilewatch.kernels.comparing.timing_order import Timing
from tilewatch.kernels.comparing.toolchains import reproduce, time_pair
from tilewatch.kernels.comparing.toolchains.comparison import ComparisonWanted, compare_toolchains, find_installed_side
from tilewatch.kernels.comparing.toolchains.pairs import CompiledSide, ToolchainPair
from tilewatch.kernels.comparing.toolchains.report_file import (
    GpuUsed,
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
from tilewatch.kernels.comparing.toolchains.safety_verdict import Retuning
from tilewatch.kernels.compiling.compile_children import BuildError
from tilewatch.kernels.compiling.disassembly import NotDisassembled
from tilewatch.kernels.compiling.programs import ProgramMissing
from tilewatch.kernels.compiling.store import CubinStore, StoreError, folder
from tilewatch.kernels.contract import Array
from tilewatch.kernels.results import StaticFacts
from tilewatch.kernels.toolchains.toolchain import INSTALLED, Toolchain

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


FACTS = StaticFacts(128, 0, 1024, 4096, 9000, 2, 2, 1, 1, ())
SASS = """
        /*00b0*/                   FADD R4, R3, R4 ;                             /* 0x0000000403047220 */
                                                                                 /* 0x000fe40000400000 */
        /*00c0*/                   EXIT ;                                        /* 0x000000000000794d */
                                                                                 /* 0x000fea0003800000 */
"""
LAUNCHES = [{"bytecode": base64.b64encode(name.encode()).decode(), "opt_level": 2} for name in ("first", "second")]


class MadeCompiler:
    """Traces launches that a test gives, or fails as a compiler can."""

    answer: Mapping[str, Any] | Exception

    def __init__(self, store_url: str, *, toolchain: Toolchain) -> None:
        self._asked = f"{Path(store_url).name} of {toolchain.name}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def trace(self, *asked: object, code_key: str) -> Mapping[str, Any]:
        assert self._asked == "recorded of installed"
        assert asked[1:] == ("double", "1024", {"tile": 64}, "sm_90")
        assert code_key in ("base-double", "head-double")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


MakeCase = Callable[..., str]


@pytest.fixture
def write_made_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeCase:
    """Writes the folder of an operator that no compiler saw, and returns its README."""
    library = tmp_path / "library"
    (library / "__pycache__").mkdir(parents=True)
    (library / "double.py").write_text("# a kernel")
    store = CubinStore(folder(tmp_path / "cubins" / "changed"))
    store.put("old", {}, b"cubin of base")
    store.put("new", {}, b"cubin of head")
    installed = Toolchain(INSTALLED, None)
    monkeypatch.setattr(reproduce, "Compiler", MadeCompiler)
    monkeypatch.setattr(MadeCompiler, "answer", {"launches": LAUNCHES[:1]}, raising=False)

    def write(
        *,
        answer: Mapping[str, Any] | Exception | None = None,
        sass: Callable[[bytes], str] = lambda cubin: SASS.replace("FADD", "FMUL") if b"head" in cubin else SASS,
        head: Mapping[str, Any] | None = None,
        described: Mapping[str, Any] | None = None,
        toolchains: tuple[Toolchain | None, Toolchain | None] = (installed, installed),
        timings: Mapping[str, Mapping[tuple[str, str, str, str], Any]] | None = None,
        gpus: Mapping[str, GpuUsed] | None = None,
    ) -> str:
        base = CompiledSide({"tile": 64}, "ok", 1.0, 2.5, None, "old", "double_base", "old", FACTS)
        changed = replace(base, code_sha256="new", cubin="new", symbol="double_head")
        of_head = replace(changed, **{"facts": replace(FACTS, registers=168), **(head or {})})
        pair = ToolchainPair("double", "1024", "sm_90", "shipped", (base,), (of_head,), "newer")
        others = (replace(pair, problem="2048"), replace(pair, head_name="newest"))
        names = (ToolchainName("installed", "tile 1"), ToolchainName("newer", "tile 2"), ToolchainName("newest"))
        report = ToolchainReport(names, "2026-11-28 07:00 UTC", gpus=dict(gpus or {}), **(timings or {}))
        report.pairs = {each.key: each for each in (pair, *others)}
        launch = {"grid": [1, 1, 1], "arguments": [{"name": "x", "shape": [1024], "dtype": "float32"}]}
        of = {"kernel": "double", "problem": "1024", "arch": "sm_90", "file": "double.py", "source": "", "entry": "run"}
        made = Description(
            **of,
            config={"tile": 64},
            sizes={},
            arrays=(),
            constants={},
            element_bytes=4,
            grid_follows_gpu=False,
            launch=launch,
        )
        monkeypatch.setattr(reproduce.catalog, "describe", lambda *_, **__: replace(made, **(described or {})))
        monkeypatch.setattr(reproduce, "list_encoded_sass", sass)
        if answer is not None:
            monkeypatch.setattr(MadeCompiler, "answer", answer)
        case = ReproducedCase(report, pair, library, tmp_path / "cubins", toolchains)
        assert write_case(case, tmp_path / "case") == tuple(sorted(each.name for each in (tmp_path / "case").iterdir()))
        return (tmp_path / "case" / "README.md").read_text()

    return write


def list_names(root: Path) -> set[str]:
    return {each.name for each in (root / "case").iterdir()}


def test_a_readme_has_both_sides_what_moved_and_the_command_of_each(write_made_case: MakeCase, tmp_path: Path) -> None:
    lines = write_made_case().splitlines()
    sides = "bytes of spills, 1024 bytes of shared memory, 4096 bytes of code"
    wanted = [
        "# double 1024 on sm_90",
        "- base: tile 1",
        "- head: tile 2",
        "The kernel is `run` in `library/double.py`.",
        "Config: `tile=64`.",
        f"- base: compiled in 2.5 CPU seconds; 128 registers, 0 {sides}",
        f"- head: compiled in 2.5 CPU seconds; 168 registers, 0 {sides}",
        "Moved: registers 128 -> 168.",
        "`python time_pair.py` times both cubins in fresh processes; it needs CuPy and a GPU of sm_90.",
        "tileiras base.bytecode -o base.again.cubin --gpu-name sm_90 -O2 --lineinfo",
        "tileiras head.bytecode -o head.again.cubin --gpu-name sm_90 -O2 --lineinfo",
        "`sass.diff` compares the instructions without their addresses. What moved most: FADD 1 -> 0, FMUL 0 -> 1.",
    ]
    assert [line for line in lines if line in wanted] == wanted
    out = tmp_path / "case"
    assert (out / "base.bytecode").read_bytes() == (out / "head.bytecode").read_bytes() == b"first"
    assert (out / "base.cubin").read_bytes() == b"cubin of base"
    assert (out / "head.cubin").read_bytes() == b"cubin of head"
    assert (out / "base.sass").read_text() == SASS
    difference = (out / "sass.diff").read_text().splitlines()
    assert difference[:2] == ["--- base.sass", "+++ head.sass"]
    assert difference[3:] == ["-FADD R4, R3, R4 ;", "+FMUL R4, R3, R4 ;", " EXIT ;"]
    assert [each.name for each in (out / "library").iterdir()] == ["double.py"]
    described = json.loads((out / "case.json").read_text())
    assert (described["dtypes"], described["symbols"]) == (
        {"x": "float32"},
        {"base": "double_base", "head": "double_head"},
    )


@pytest.mark.parametrize(
    ("head", "described", "has_script"),
    [
        ({}, {}, True),
        ({"cubin": None, "status": "error", "failure": "no such instruction", "facts": None}, {}, False),
        ({}, {"launch": {}}, False),
    ],
)
def test_a_case_has_a_script_if_both_cubins_are_there_and_the_library_launches_them(
    write_made_case: MakeCase, tmp_path: Path, head: dict[str, Any], described: dict[str, Any], has_script: bool
) -> None:
    readme = write_made_case(head=head, described=described)
    assert [name in list_names(tmp_path) for name in ("time_pair.py", "case.json")] == [has_script] * 2
    assert ("There is no timing script: " in readme) is not has_script
    assert ("head.cubin" in list_names(tmp_path)) == (not head)
    if head:
        assert "- head: error: no such instruction\n" in readme
        assert "Moved: does not compile: no such instruction." in readme
        assert {"base.sass", "head.sass", "sass.diff"} & list_names(tmp_path) == {"base.sass"}
        assert reproduce.NO_SASS in readme


@pytest.mark.parametrize("error", [BuildError("no such compiler"), StoreError("no room")])
def test_a_side_that_cannot_be_traced_has_the_reason_in_place_of_its_command(
    write_made_case: MakeCase, tmp_path: Path, error: Exception
) -> None:
    readme = write_made_case(answer=error, toolchains=(None, Toolchain(INSTALLED, None)))
    start = readme.index("```\n") + 4
    assert readme[start : readme.index("```", start)].splitlines() == [
        "# the base toolchain was not installed where this was written",
        f"# the head makes no bytecode: {error}",
    ]
    assert not {"base.bytecode", "head.bytecode"} & list_names(tmp_path)


def test_several_launches_have_a_file_and_a_command_each(write_made_case: MakeCase, tmp_path: Path) -> None:
    readme = write_made_case(answer={"launches": LAUNCHES}, toolchains=(Toolchain(INSTALLED, None), None))
    commands = [line for line in readme.splitlines() if line.startswith("tileiras ")]
    assert [command.split(" --")[0] for command in commands] == [
        "tileiras base-0.bytecode -o base-0.again.cubin",
        "tileiras base-1.bytecode -o base-1.again.cubin",
    ]
    assert (tmp_path / "case" / "base-1.bytecode").read_bytes() == b"second"


@pytest.mark.parametrize("error", [ProgramMissing("no nvdisasm"), NotDisassembled("another release")])
def test_a_case_without_a_disassembler_says_so(write_made_case: MakeCase, tmp_path: Path, error: Exception) -> None:
    def fail(_: bytes) -> str:
        raise error

    assert reproduce.NO_SASS in write_made_case(sass=fail)
    assert not [name for name in list_names(tmp_path) if "sass" in name]


def test_sass_that_differs_only_in_addresses_moved_nothing(write_made_case: MakeCase, tmp_path: Path) -> None:
    moved = SASS.replace("00c0", "00d0").replace("0x000fe4", "0x000fe5")
    readme = write_made_case(sass=lambda cubin: moved if b"head" in cubin else SASS)
    assert "What moved most: no number of any kind." in readme
    assert (tmp_path / "case" / "sass.diff").read_text() == "\n"


@pytest.mark.parametrize(("registers", "moved"), [(128, []), (129, ["Moved: registers 128 -> 129."])])
def test_a_readme_names_static_facts_only_if_some_moved(
    write_made_case: MakeCase, registers: int, moved: list[str]
) -> None:
    readme = write_made_case(head={"facts": replace(FACTS, registers=registers)})
    assert [line for line in readme.splitlines() if line.startswith("Moved")] == moved


def test_only_the_operator_s_own_launches_and_verdicts_are_in_its_case(
    write_made_case: MakeCase, tmp_path: Path
) -> None:
    keys = [
        ("double", "1024", "h200", "newer"),
        ("double", "2048", "h200", "newer"),
        ("double", "1024", "h200", "newest"),
        ("single", "1024", "h200", "newer"),
    ]
    timings = {key: Timing((100.0,), (float(number),)) for number, key in enumerate(keys, start=1)}
    retunings = {key: Retuning(number, 0) for number, key in enumerate(keys, start=1)}
    known = {"frozen": timings, "retuned": timings, "retunings": retunings}
    gpus = {"h200": GpuUsed("h200", "NVIDIA H200", "580.1")}
    readme = write_made_case(timings=known, gpus=gpus, described={"grid_follows_gpu": True})
    verdicts = [line for line in readme.splitlines() if line.startswith(("- h200", "- sm_90"))]
    assert verdicts == ["- h200: unknown: too few launches to say anything: 1"]
    assert "a GPU of sm_90. The grid depends on the GPU's multiprocessors.\n" in readme
    numbers = json.loads((tmp_path / "case" / "numbers.json").read_text())
    for name in ("frozen", "retuned"):
        assert [each["head_us"] for each in numbers[name]] == [[1.0]]
    assert [each["tried"] for each in numbers["retunings"]] == [1]
    assert (numbers["base"]["name"], numbers["head"]["name"]) == ("installed", "newer")
    assert [each["name"] for each in numbers["gpus"]] == ["NVIDIA H200"]
    assert numbers["operator"]["problem"] == "1024"


def test_a_case_that_was_not_timed_has_the_verdict_of_its_architecture(write_made_case: MakeCase) -> None:
    readme = write_made_case()
    verdicts = [line for line in readme.splitlines() if line.startswith(("- h200", "- sm_90"))]
    assert verdicts == ["- sm_90: unknown: other machine code, not timed"]
    assert "The grid depends" not in readme
