"""Runs host code with a config: what the watch file gave reaches it, and what it launches is launched in order."""

import json
import math
import shutil
import sys
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.watching import tracer
from tilewatch.kernels.watching.configs import GivenConfigs, read_given
from tilewatch.kernels.watching.declare import BadWatchFile, Case, WatchedOperator, case, watch
from tilewatch.kernels.watching.device_array import DeviceArray
from tilewatch.kernels.watching.project import Project, activate
from tilewatch.kernels.watching.torch_stand_in.tensor import DTYPES, DType
from tilewatch.kernels.watching.traced_operator import describe_work, find_first_config, list_configs, run_config
from tilewatch.kernels.watching.tracer import LaunchTrace

REPOSITORY = Path(__file__).parent / "fixtures" / "foreign_repository"

TYPES = """
import torch
from tiny_ops import host
from tilewatch import case, watch

@watch(problems="8x128", names="rows x cols", configs=GIVEN)
def listed(p):
    arrays = [p.randn(p.rows, p.cols, dtype=torch.float16) for _ in range(3)]
    return case(run=lambda wide, out_dtype: host.add(arrays, out_dtype, wide), reference=lambda: sum(arrays))
"""


@dataclass(frozen=True)
class Kernel:
    """Stands for a cuTile kernel, which would need a GPU to run."""

    hints: dict[str, int] = field(default_factory=dict)

    def replace_hints(self, **hints: int) -> "Kernel":
        return Kernel(hints)


@pytest.fixture
def project(tmp_path: Path) -> Any:
    activate(found := Project(tmp_path, ()))
    yield found
    activate(None)


def make_operator(run: Any) -> tuple[Case, WatchedOperator]:
    case = Case(run, lambda: None, {}, None, 0, None)
    return case, WatchedOperator("made", lambda _: case, (), None, (), None, True, Path("made.py"), 1)


def test_a_launch_with_hints_is_done_before_the_host_code_goes_on(project: Project) -> None:
    """Host code may add to what a kernel wrote, or give it to the next kernel."""
    memory = SimpleNamespace(value=0)

    def run() -> int:
        tracer._launch(0, (1,), Kernel(), (memory,))
        return memory.value + 1

    def execute(launch: tracer.TracedLaunch) -> None:
        launch.args[0].value = launch.kernel.hints["occupancy"]

    case, operator = make_operator(run)
    given = GivenConfigs(({"occupancy": 4},), {})
    recording = run_config(case, project, operator, given, {"occupancy": 4}, execute=execute)
    assert recording.result == 5
    assert [launch.kernel.hints for launch in recording.launches] == [{"occupancy": 4}]


@pytest.mark.parametrize(
    "given",
    [
        '[{"wide": False, "out_dtype": torch.float16}]',
        'lambda problem, arch: [{"wide": False, "out_dtype": torch.float16}]',
        '{"wide": [False], "out_dtype": [torch.float16]}',
    ],
)
def test_a_type_reaches_the_host_code_however_the_configs_are_given(tmp_path: Path, given: str) -> None:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    watch = tmp_path / "repository" / "watch"
    (watch / "operators.py").write_text(TYPES.replace("GIVEN", given))
    (plan,) = catalog.read(watch, arch="sm_90")
    assert [trial.config for trial in plan.trials] == [{"wide": False, "out_dtype": "float16"}]


def test_host_code_that_needs_a_config_runs_first_with_one() -> None:
    """So does the process that owns a GPU, which is told no config before it makes its inputs."""
    given = read_given([{"tile": 64}, {"tile": 128}], None, "sm_90")  # type: ignore[arg-type]  # no function asks for it
    assert find_first_config(make_operator(lambda tile: tile)[0], given) == {"tile": 64}
    assert find_first_config(make_operator(lambda **config: config)[0], given) == {"tile": 64}
    assert find_first_config(make_operator(lambda tile=1: tile)[0], given) is None


class Mode(Enum):
    SLOW = 1
    FAST = 2


@dataclass(slots=True)
class Slotted:
    tile: int


class Inherited(Slotted):
    __slots__ = ()


class Private:
    def __init__(self, tile: int) -> None:
        self._tile = tile


def scale() -> None: ...


SEARCHED = [
    (list(Mode), [{"value": "SLOW"}, {"value": "FAST"}]),
    ([scale, print], [{"value": "scale"}, {"value": "<built-in function print>"}]),
    ([partial(scale, 1), partial(scale, 2)], [{"value": f"functools.partial(scale, {each})"} for each in (1, 2)]),
    ([Inherited(64), Inherited(128)], [{"tile": 64}, {"tile": 128}]),
    ([np.int64(64), np.float32(0.5), np.bool_(True)], [{"value": 64}, {"value": 0.5}, {"value": True}]),
    ([math.inf, math.nan], [{"value": "inf"}, {"value": "nan"}]),
    ([{"of": frozenset(map(str, range(20)))}], [{"of": f"{{{', '.join(sorted(repr(str(i)) for i in range(20)))}}}"}]),
]


@pytest.mark.parametrize(("configs", "plain"), SEARCHED, ids=[repr(each)[:20] for each, _ in SEARCHED])
def test_configs_of_any_kind_are_told_apart_and_equal_in_each_process(configs: Any, plain: list[Any]) -> None:
    """Or else a search would count as one config, or a config would be unknown to the process that compiles it."""
    found = list_configs(LaunchTrace(searches=[tuple(configs)]))
    assert list(found) == plain
    assert [type(value) for each in found for value in each.values()] == [type(*each.values()) for each in plain]
    json.dumps(found, allow_nan=False)


def test_a_type_of_pytorch_is_one_config_with_and_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(dtype=DType))
    assert list_configs(LaunchTrace(searches=[(DTYPES["float16"],)])) == ({"value": "float16"},)


@pytest.mark.parametrize("value", [lambda: 1, Private(1), partial(print, Private(1)), Private(1).__init__, [object()]])
def test_a_config_without_a_name_that_lasts_is_refused(value: Any) -> None:
    with pytest.raises(BadWatchFile, match="which has no name that is equal in each process: give a text or a number"):
        list_configs(LaunchTrace(searches=[({"tile": value},)]))
    with pytest.raises(BadWatchFile, match="a config has"):
        read_given([{"tile": value}], None, "sm_90")  # type: ignore[arg-type]  # no function asks for it


@pytest.mark.parametrize(
    "given",
    [{"tile": range(1000), "stages": range(400)}, [{"tile": tile} for tile in range(20_001)]],
    ids=["axes", "list"],
)
def test_a_space_that_nobody_can_compile_is_refused(given: Any) -> None:
    with pytest.raises(BadWatchFile, match="configs or more; expected 20,000 at most"):
        read_given(given, None, "sm_90")  # type: ignore[arg-type]  # no function asks for it


@pytest.mark.parametrize(("moves", "counted"), [(None, 0), (4096, 4096)])
def test_only_bytes_that_a_case_states_bound_its_time(moves: int | None, counted: int) -> None:
    cache_in_pages = DeviceArray(0, (4 << 30,), (1,), "bfloat16", 2, 0, 8 << 30)
    stated = case(run=print, reference=print, moves=moves, flops=7)
    assert describe_work(stated, [cache_in_pages]) == {"flops": 7, "bytes": counted, "dtypes": ["bfloat16"]}


@pytest.mark.parametrize("kind", [int, float, np.int64, np.float32, np.int32])
def test_the_numbers_of_a_case_may_be_of_numpy(kind: Any) -> None:
    made = case(run=print, reference=print, moves=kind(4), flops=kind(3), tolerance=kind(1), work=("rows", kind(8)))
    plain = [made.moves, made.flops, made.tolerance, *made.work]  # type: ignore[misc]  # it has a work
    assert json.loads(json.dumps(plain)) == [4, 3, 1, "rows", 8]
    assert [type(made.moves), type(made.flops)] == [int, int]


WRONG: list[dict[str, Any]] = [
    *({name: value} for name in ("moves", "flops", "tolerance") for value in (-1, math.nan, math.inf, "n", 2**63)),
    {"flops": None},
    {"work": ("rows",)},
    {"work": (8, "rows")},
    {"work": ("rows", None)},
    {"run": None},
    {"reference": (1, 2)},
    {"before": 1},
    {"torch": None},
]


@pytest.mark.parametrize("wrong", WRONG, ids=map(str, WRONG))
def test_what_a_case_cannot_hold_is_named_before_a_gpu_is_used(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^`{next(iter(wrong))}` is .*; expected "):
        case(**{"run": print, "reference": print, **wrong})


@pytest.mark.parametrize("reason", ["yes", "because", True, 1, "no way"])
def test_what_is_not_measured_apart_needs_a_reason(reason: Any) -> None:
    with pytest.raises(BadWatchFile, match=r"not_apart is '.*': give the reason in 3 words or more"):
        watch(problems="1", not_apart=reason)


@pytest.mark.parametrize("reason", ["", "it adds the parts with PyTorch"])
def test_an_operator_keeps_the_reason_that_its_watch_file_gives(reason: str) -> None:
    def made(p: Any) -> Any: ...

    assert watch(problems="1", names="rows", not_apart=reason)(made).not_apart == reason
