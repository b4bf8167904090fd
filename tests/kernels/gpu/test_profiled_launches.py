"""The process that a profiler watches launches each cubin as it was timed, between start and stop."""

import base64
import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.fixtures.fake_gpu import GIVEN, Rig, write_giving_library
from tests.kernels.fixtures.fake_gpu.device import SM_COUNT, FakeGpu
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.contract import Array
from tilewatch.kernels.gpu.described_launch import TIMES, DescribedLaunch, read_launch
from tilewatch.kernels.gpu.host_code.described_operator import ConfigLaunches, Memory, OneLaunch, View
from tilewatch.kernels.gpu.host_code.described_run import (
    MOST_GIVEN_BYTES,
    MOST_LAUNCHES,
    FirstContent,
    NotDescribable,
    describe_run,
    read_described,
)


def test_each_launch_is_profiled_with_the_grid_and_arrays_of_its_library(gpu: FakeGpu, rig: Rig) -> None:
    from tilewatch.kernels.gpu import profiled_launches

    child, _ = rig.start()
    cubins = [rig.cubin(4), rig.cubin(8)]
    described = [child.ask({"ask": "describe", **rig.request_of(each)}, deadline_s=1)["described"] for each in cubins]
    before = len(gpu.launches)
    profiled_launches.launch_each([read_launch(each) for each in described], CubinStore(rig.store_url))
    assert [(each.name, each.grid) for each in gpu.profiled] == [
        *[(rig.kernel, (16, 1, SM_COUNT))] * TIMES,
        *[(rig.kernel, (8, 1, SM_COUNT))] * TIMES,
    ]
    assert gpu.profiled == [each for each in gpu.launches[before:] if each.name == rig.kernel]


def test_a_launch_is_profiled_with_the_values_that_its_library_gives(
    gpu: FakeGpu, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewatch.kernels.gpu import profiled_launches

    made: dict[str, Any] = {}

    def make(array: Array, described: DescribedLaunch) -> Any:
        made[array.name] = make_array(array, described)
        return made[array.name]

    make_array = profiled_launches._make
    monkeypatch.setattr(profiled_launches, "_make", make)
    child, _ = rig.start(write_giving_library(tmp_path / "library"))
    described = child.ask({"ask": "describe", **rig.request_of(rig.cubin())}, deadline_s=1)["described"]
    profiled_launches.launch_each([read_launch(described)], CubinStore(rig.store_url))
    assert len(gpu.profiled) == TIMES
    assert (made["x"].dtype, made["x"].tolist()) == (np.float32, GIVEN.tolist())
    assert len(set(made["residual"].ravel().tolist())) > 4000, "random"


ROWS = [View(number, 0, (4, 8), (8, 1), "float32") for number in range(3)]
PLACES = View(3, 0, (8,), (1,), "int32")
INPUT, OUTPUT = Memory(128, 0, None), Memory(128, None, 0xFF)
RUN = ConfigLaunches(
    (INPUT, INPUT, OUTPUT, Memory(32, 1, None)),
    (
        OneLaunch("a", "add_rows", (4, 1, 1), (ROWS[0], ROWS[1], ROWS[2], PLACES)),
        OneLaunch("b", "softmax_rows", (2, 1, 1), (ROWS[2], ROWS[0])),
    ),
    (ROWS[0],),
)
INDICES = np.arange(8, dtype=np.int32)


@pytest.mark.usefixtures("gpu")
def test_what_may_be_an_index_is_given_and_other_inputs_are_random() -> None:
    import cupy

    contents = {0: cupy.zeros(128, dtype=cupy.uint8), 1: cupy.asarray(INDICES.view(np.uint8))}
    described = describe_run(RUN, "key", contents)
    assert [(each.dtype, each.fill) for each in described.memory] == [
        ("float32", None),
        ("float32", None),
        (None, 0xFF),
        (None, None),
    ]
    given = described.memory[3].values
    assert given is not None
    assert np.frombuffer(base64.b64decode(given), np.int32).tolist() == INDICES.tolist()
    assert read_described(json.loads(json.dumps(asdict(described)))) == described


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (ConfigLaunches(RUN.memory, RUN.launches[:1] * (MOST_LAUNCHES + 1), ()), "it launches 21 kernels"),
        (ConfigLaunches((*RUN.memory[:3], Memory(MOST_GIVEN_BYTES + 4, 1, None)), RUN.launches, ()), "more than 4 MiB"),
    ],
)
def test_a_run_that_cannot_be_described_says_why(changed: ConfigLaunches, reason: str) -> None:
    with pytest.raises(NotDescribable, match=reason):
        describe_run(changed, "key", {})


def test_an_operator_s_launches_are_profiled_in_turn_on_memory_as_it_was_at_first(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewatch.kernels.gpu import profiled_launches

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as bundle:
        for key, computes, symbol in (("a", "residual_add", "add_rows"), ("b", "softmax", "softmax_rows")):
            code = {"symbol": symbol, "computes": computes, "tile_rows": 1, "time_us": 20.0}
            bundle.writestr(key, json.dumps(code))
    store = CubinStore(tmp_path.as_uri())
    store.put("key", {}, out.getvalue())
    made, first = [], []

    def make(content: FirstContent) -> Any:
        made.append(make_memory(content))
        first.append(np.array(made[-1]).view(np.float32))
        return made[-1]

    make_memory = profiled_launches._make_memory
    monkeypatch.setattr(profiled_launches, "_make_memory", make)
    launches = (
        OneLaunch("a", "add_rows", (4, 1, 1), (ROWS[0], ROWS[1], ROWS[0])),
        OneLaunch("b", "softmax_rows", (2, 1, 1), (ROWS[0], ROWS[2])),
    )
    run = describe_run(ConfigLaunches((INPUT, INPUT, OUTPUT), launches, (ROWS[2],)), "key", {})
    profiled_launches.launch_each([run], store)
    assert [each.name for each in gpu.profiled] == ["add_rows", "softmax_rows"] * TIMES
    assert [each.grid for each in gpu.profiled[:2]] == [(4, 1, 1), (2, 1, 1)]
    assert len(set(first[1].tolist())) == 32, "random"
    assert np.isnan(first[2]).all()
    assert np.allclose(np.asarray(made[0]).view(np.float32), first[0] + first[1]), "added once, the last time too"
