"""What stands in for functions of cuda-tile takes all that they take: a keyword is traced, or refused by its name."""

import ast
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import cuda.tile.tune
import pytest

from tests.kernels.fixtures import needs_package
from tilewatch.kernels import watching
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.comparing.code_sentences import diff_cubins
from tilewatch.kernels.compiling.compiler import CodeIdentity, Compiler
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.results import Compiled
from tilewatch.kernels.watching import tracer
from tilewatch.kernels.watching.tracer import LaunchTrace, trace_launches

THEIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "launch": (tracer._real_launch, tracer._launch),
    "exhaustive_search": (cuda.tile.tune.exhaustive_search, tracer._search),
}

EXPERIMENTAL = (
    ("stream", "grid_fn", "kernel", "args_fn", "launch_args_fn", "hints_fn"),
    ("search_space", "key", "max_iter", "compiler_time_limit_sec", "seed", "force_retune"),
)
"""Parameters of autotune_launch by position and by keyword, in cuda-tile-experimental of 2026-04, which cannot be
installed beside the present compiler."""


class Kernel:
    def replace_hints(self, **_: int) -> "Kernel":
        return self


def list_parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", THEIRS)
def test_a_stand_in_has_the_parameters_of_the_installed_function(name: str) -> None:
    theirs, ours = THEIRS[name]
    assert theirs is not ours, "another test replaced it"
    assert list_parameters(ours) == list_parameters(theirs)


def test_the_stand_in_of_the_old_search_has_its_parameters() -> None:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = [(each, kind) for each, kind, _ in list_parameters(tracer._search_and_launch)]
    assert found == [(each, kind) for names, kind in zip(EXPERIMENTAL, kinds, strict=True) for each in names]


def list_keywords() -> set[tuple[str, str]]:
    """Lists the keywords of what host code may call in the installed cuda-tile: all but operations on tiles."""
    called: dict[str, Any] = {
        name: getattr(module, name)
        for module in (ct, cuda.tile.tune)
        for name in module.__all__
        if inspect.isroutine(getattr(module, name)) and getattr(module, name).__module__ != "cuda.tile._stub"
    }
    called |= {"launch": tracer._real_launch, "kernel": ct.kernel.__init__}
    return {
        (name, each)
        for name, function in called.items()
        for each, kind, default in list_parameters(function)
        if kind is inspect.Parameter.KEYWORD_ONLY or default is not inspect.Parameter.empty
    }


HINTED = {"num_ctas": "2", "occupancy": "2", "opt_level": "1", "num_worker_warps": "8"}
"""A value of each keyword of `ct.kernel` that is not its default."""

WITHOUT_EFFECT: Mapping[tuple[str, str], str] = {
    ("kernel", "function"): "the kernel itself",
    ("function", "func"): "the function itself",
    ("function", "host"): "the real decorator reads it",
    ("function", "tile"): "the real decorator reads it",
    ("exhaustive_search", "hints_fn"): "host code applies the hints of the chosen config to what it launches",
    ("exhaustive_search", "quiet"): "how a search prints",
    ("exhaustive_search", "single_run_timeout_sec"): "how a search times, which the sweep does instead",
    ("exhaustive_search", "flush_l2"): "how a search times, which the sweep does instead",
}
"""Keywords that change no launch, and why."""


def test_every_keyword_of_cuda_tile_is_kept_or_changes_no_launch() -> None:
    """Nothing stands in for `ct.kernel`: what it is given is in the compiler's options, by which launches are named."""
    kept = {("launch", "programmatic_dependent_launch"), *(("kernel", name) for name in HINTED)}
    assert list_keywords() == kept | WITHOUT_EFFECT.keys()


@pytest.mark.parametrize(
    "keyword", [*(f"{name}={value}" for name, value in HINTED.items()), "num_ctas=ct.ByTarget(sm_90=2, default=1)"]
)
def test_each_keyword_of_a_kernel_is_other_code(keyword: str, tmp_path: Path) -> None:
    found = []
    for decorator in ("@ct.kernel", f"@ct.kernel({keyword})"):
        repository = needs_package.write_repository(tmp_path / str(len(found)))
        host = repository / "src" / "needs_package_ops.py"
        host.write_text(HOST.replace("FACTOR", "2").replace("@ct.kernel", decorator))
        (plan,) = catalog.read(repository / "watch", arch="sm_90", kernel="doubled")
        with Compiler(folder(tmp_path / "cubins")) as compiler:
            asked = repository / "watch", "doubled", plan.problem, plan.trials[0].config, "sm_90"
            found.append((plan.trials[0].code_key, compiler.identify(*asked).content_key))
    (plain_key, plain_content), (key, content) = found
    assert None not in (plain_content, content)
    assert (plain_key == key, plain_content == content) == (False, False)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (tracer._launch, r"ct\.launch\(\) got an unexpected keyword argument 'cooperative'"),
        (tracer._search, r"exhaustive_search\(\) got an unexpected keyword argument 'cooperative'"),
        (tracer._search_and_launch, r"autotune_launch\(\) got an unexpected keyword argument 'cooperative'"),
    ],
)
def test_a_keyword_that_nobody_knows_is_refused_by_name(call: Callable[..., Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        call(0, (1,), None, (), cooperative=True)


def list_swallowing(file: Path) -> set[str]:
    """Lists the functions that take any keyword, and drop it."""
    return {
        f"{file.stem}.{function.name}"
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef) and function.args.kwarg and function.args.kwarg.arg.startswith("_")
    }


def test_no_stand_in_drops_what_it_is_given() -> None:
    """`torch_stand_in` has no values to change; what may change a shape is refused as unknown."""
    files = Path(watching.__file__).parent.glob("*.py")
    assert {each for file in files for each in list_swallowing(file)} == set()


def test_the_arguments_of_the_last_launch_are_those_for_it() -> None:
    """`args_fn` is for the search, which may work on copies."""

    def run() -> None:
        tracer._search_and_launch(
            0, lambda _: (4,), Kernel(), lambda _: ("copy",), lambda _: ("own",), search_space=[SimpleNamespace(tile=8)]
        )

    (launch,) = trace_launches(run).launches
    assert (launch.grid, launch.args, launch.programmatic_dependent_launch) == ((4,), ("own",), False)


@pytest.mark.parametrize("is_dependent", [False, True])
def test_a_dependent_launch_is_recorded_and_launched_as_one(
    is_dependent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[dict[str, Any]] = []
    monkeypatch.setattr(tracer, "_real_launch", lambda *_, **named: launched.append(named))

    def run() -> None:
        tracer._launch(0, (1,), Kernel(), (), programmatic_dependent_launch=is_dependent)

    found: LaunchTrace = trace_launches(run, execute=tracer.launch_for_real)
    assert [each.programmatic_dependent_launch for each in found.launches] == [is_dependent]
    assert launched == [{"programmatic_dependent_launch": True} if is_dependent else {}]


PLAIN = "double_rows, (x, tile))"
DEPENDENT = "double_rows, (x, tile), programmatic_dependent_launch=tile == 32)"
HOST = needs_package.HOST.replace("import host_package\n", "").replace("host_package.same(tile)", "tile")


def compile_host(root: Path, launch: str) -> tuple[list[str], list[Compiled], list[CodeIdentity]]:
    """Compiles both configs, whose kernels have tiles of 32 and 64."""
    repository = needs_package.write_repository(root / launch[-5:-1])
    assert PLAIN in HOST
    text = HOST.replace("FACTOR", "2").replace(PLAIN, launch)
    (repository / "src" / "needs_package_ops.py").write_text(text)
    (plan,) = catalog.read(repository / "watch", arch="sm_90", kernel="doubled")
    with Compiler(folder(root / "cubins")) as compiler:
        asked = [(repository / "watch", "doubled", plan.problem, each.config, "sm_90") for each in plan.trials]
        codes, named = [compiler.compile(*each) for each in asked], [compiler.identify(*each) for each in asked]
    assert [each.status for each in codes] == ["ok", "ok"]
    return [each.code_key for each in plan.trials], codes, named


def test_turning_dependent_launches_on_is_a_change(tmp_path: Path) -> None:
    """Machine code is equal on both sides."""
    _, before, plain = compile_host(tmp_path, PLAIN)
    _, after, dependent = compile_host(tmp_path, DEPENDENT)
    assert [each.facts for each in before] == [each.facts for each in after]
    assert [one.code_sha256 == other.code_sha256 for one, other in zip(before, after, strict=True)] == [False, True]
    assert [one.content_key == other.content_key for one, other in zip(before, after, strict=True)] == [False, True]
    assert [one.launch_sha256 == other.launch_sha256 for one, other in zip(plain, dependent, strict=True)] == [
        False,
        True,
    ]
    store = CubinStore(folder(tmp_path / "cubins"))
    keys = [(str(one.content_key), str(other.content_key)) for one, other in zip(before, after, strict=True)]
    named = [diff_cubins(store, *each).sentence for each in keys]
    assert named == ["programmatic dependent launch of launch 1, double_rows: off -> on", ""], "and no line differs"


def test_configs_that_differ_in_how_they_launch_have_names_of_their_own(tmp_path: Path) -> None:
    same_tile = "double_rows, (x, 64), programmatic_dependent_launch=tile == 32)"
    text = HOST.replace("sum_rows, (x, total, tile)", "sum_rows, (x, total, 64)")
    assert text != HOST
    repository = needs_package.write_repository(tmp_path)
    host = repository / "src" / "needs_package_ops.py"
    host.write_text(text.replace("FACTOR", "2").replace(PLAIN, same_tile))
    (plan,) = catalog.read(repository / "watch", arch="sm_90", kernel="doubled")
    assert len({each.code_key for each in plan.trials}) == 2
