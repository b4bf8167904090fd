"""The hand-written tile table: the nearest config of a space, and its regret against every winner."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tile_table import Swept, ranked, swept
from tilewatch.configs import config_key
from tilewatch.kernels import device
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.loading import load
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.measuring import measure as measure_module
from tilewatch.kernels.measuring.measure import MeasureRequest, measure
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.results import Cubin
from tilewatch.kernels.tile_table import (
    BASELINE,
    TABLE,
    default_config,
    find_kind,
    stored_space,
    table_config,
    table_row,
)

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "kernels" / "library"


@pytest.mark.parametrize(
    ("gpu", "arch", "tiles"),
    [("h200", "sm_90", (64, 128, 128)), ("b200", "sm_100", (256, 256, 128)), ("rtx5090", "sm_120", (128, 64, 128))],
)
def test_the_fp8_story_s_space_holds_the_table_s_tiles(gpu: str, arch: str, tiles: tuple[int, int, int]) -> None:
    plan = catalog.read(LIBRARY, arch=arch, kernel="gemm_fp8")[0]
    configs = [trial.config for trial in plan.trials]
    config = table_config(gpu, 1, configs, plan.sizes)
    assert config is not None
    assert (config["tile_m"], config["tile_n"], config["tile_k"]) == tiles
    assert table_config(arch, 1, configs, plan.sizes) == config, "an architecture stands for its typical model"


def test_a_sweep_keeps_what_the_tile_table_would_have_chosen() -> None:
    plan = catalog.read(LIBRARY, arch="sm_90", kernel="gemm_fp8")[0]
    kept = stored_space(plan, "h200")
    assert {name for name, _ in kept["axes"]} == set(kept["tile_table"])
    assert (kept["tile_table"]["tile_m"], kept["tile_table"]["tile_k"]) == (64, 128)
    assert stored_space(plan, "a100")["tile_table"] is None


def test_a_space_without_the_table_s_tiles_gives_the_nearest_in_any_order() -> None:
    configs = [
        {"tile_m": m, "tile_n": n, "tile_k": 64, "num_ctas": c} for m in (16, 32) for n in (64, 512) for c in (1, 2)
    ]
    nearest = {"tile_m": 32, "tile_n": 64, "tile_k": 64, "num_ctas": 1}
    assert table_config("h200", 1, configs, {}) == nearest
    assert table_config("h200", 1, reversed(configs), {}) == nearest


@pytest.mark.parametrize("other", [None, "auto", -1, float("nan"), float("inf")])
def test_a_space_may_hold_what_is_no_number_and_parameters_of_some_configs(other: object) -> None:
    """A sweep that was measured would have no row, as its space is kept with the config of the table."""
    configs: list[Any] = [{"tile_rows": 1, "occupancy": each} for each in (other, 2)]
    assert table_config("h200", 2, [*configs, {"tile_rows": other, "loads": other}], {}) == configs[1]
    mixed: list[Any] = [{"rows": 1, "mode": "a"}, {"rows": other}, {"rows": 4, "mode": other}]
    assert default_config("h200", 2, mixed, {}) in mixed


def test_a_kernel_outside_the_table_has_no_entry_but_a_default() -> None:
    configs = [{"rows": rows, "num_ctas": ctas} for rows in (1, 2, 4) for ctas in (2, 1)]
    assert table_config("h200", 2, [{"rows": each["rows"]} for each in configs], {}) is None
    assert table_config("a100", 1, configs, {}) is None
    assert default_config("h200", 2, configs, {}) == {"rows": 2, "num_ctas": 1}


def test_every_model_of_the_guide_has_rows_for_each_operand_size() -> None:
    for gpu in ("h200", "b200", "rtx5080", "rtx5090", "sm_90", "sm_100", "sm_103", "sm_120"):
        for element_bytes in (1, 2, 4):
            row = table_row(gpu, element_bytes, ("tile_m", "tile_n", "tile_k"), {})
            assert row is not None
            assert row.source
    places = [(gpu, row.element_bytes, row.kind, row.at_least, row.below) for row in TABLE for gpu in row.gpus]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("axes", "element_bytes", "sizes", "tiles"),
    [
        (("tile_m", "tile_n", "tile_k"), 2, {"m": 2048, "n": 2047}, {"tile_m": 128, "tile_n": 128}),
        (("tile_m", "tile_n", "tile_k"), 2, {"m": 2048, "n": 2048}, {"tile_m": 128, "tile_n": 256}),
        (("tile_m", "tile_n", "tile_k"), 2, {"m": 2048}, {"tile_m": 128, "tile_n": 256}),
        (("tile_m", "tile_n", "tile_k"), 1, {"m": 4096, "n": 4096}, {"tile_m": 64, "tile_n": 128}),
        (("tile_m", "tile_n", "tile_k", "num_worker_warps"), 1, {"m": 4096, "n": 4096}, {"tile_m": 128, "tile_n": 256}),
        (("tile_m", "tile_n", "tile_k", "num_worker_warps"), 1, {"m": 64, "n": 4096}, {"tile_m": 64, "tile_n": 128}),
        (("tile_rows",), 2, {"rows": 1, "columns": 2048}, {"tile_rows": 4, "occupancy": 4}),
        (("tile_rows",), 2, {"rows": 1, "columns": 2049}, {"tile_rows": 1, "occupancy": 2}),
        (("tile_rows",), 2, {"rows": 1, "columns": 8193}, {"tile_rows": 1, "num_worker_warps": 8}),
    ],
)
def test_a_row_is_for_problems_of_its_size(
    axes: tuple[str, ...], element_bytes: int, sizes: dict[str, int], tiles: dict[str, int]
) -> None:
    row = table_row("h100", element_bytes, axes, sizes)
    assert row is not None
    assert tiles.items() <= row.prefers.items()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_every_kernel_that_names_the_table_has_a_row_there(arch: str) -> None:
    plans = [plan for plan in catalog.read(LIBRARY, arch=arch) if BASELINE in plan.baselines]
    kinds = {find_kind(plan.trials[0].config) for plan in plans}
    assert kinds == {"product", "attention", "rows", "elements"}
    for plan in plans:
        configs = [trial.config for trial in plan.trials]
        assert table_config(arch, plan.element_bytes, configs, plan.sizes) is not None, plan.kernel


def test_a_scaled_product_is_no_attention_though_its_tiles_have_no_depth() -> None:
    assert find_kind(("tile_m", "tile_n", "group_size_m")) == "product"
    assert find_kind(("tile_m", "tile_n", "latency")) == "attention"
    assert find_kind(("tile_n", "latency")) is None


def test_before_hopper_a_product_has_the_tiles_of_its_own() -> None:
    configs = [trial.config for trial in catalog.read(LIBRARY, arch="sm_80", kernel="gemm_nt")[0].trials]
    assert {config["num_ctas"] for config in configs} == {1}
    assert {(config["tile_m"], config["tile_n"]) for config in configs} == {
        (m, n) for m in (64, 128) for n in (64, 128)
    }
    config = table_config("a100", 2, configs, {"m": 4096, "n": 4096})
    assert config is not None
    assert (config["tile_m"], config["tile_n"], config["tile_k"], config["occupancy"]) == (64, 64, 32, 2)


@pytest.mark.parametrize(
    ("kernel", "element_bytes", "recording", "most"),
    [
        ("gemm_fp8", 1, "h200", 1.05),
        ("attention_prefill", 2, "h200-80093d04", 1.01),
        ("attention_prefill_causal", 2, "h200-80093d04", 1.06),
        ("silu_and_multiply", 2, "h200-80093d04", 1.12),
        ("residual_add", 2, "h200-80093d04", 1.01),
        ("rms_norm", 2, "h200-80093d04", 1.06),
        ("layer_norm", 2, "h200-80093d04", 1.06),
        ("softmax", 2, "h200-80093d04", 1.08),
        ("gemm_nt", 2, "h200-80093d04", 1.20),
        ("gemm_nt_fp8", 1, "h200-80093d04", 1.20),
    ],
)
def test_the_h200_s_rows_cost_what_their_sources_say(
    kernel: str, element_bytes: int, recording: str, most: float
) -> None:
    sweeps = swept(recording_file.read(ROOT / "recordings" / f"{recording}.jsonl.gz").rows)[kernel, "h200"]
    parse, regrets = load(LIBRARY)[kernel].kernel.parse, []
    for sweep in sweeps:
        named = table_config("h200", element_bytes, sweep.configs.values(), parse(sweep.problem).sizes)
        assert named is not None
        regrets.append(sweep.times_us[config_key(named)] / min(sweep.times_us.values()))
    assert statistics.geometric_mean(regrets) < most, (
        f"derive the row of {kernel} anew: python -m benchmarks.tile_table"
    )


def test_the_best_row_for_several_problems_need_not_win_any() -> None:
    times = ({"a": 1.0, "b": 1.1, "c": 3.0}, {"a": 3.0, "b": 1.1, "c": 1.0}, {"a": 1.0, "b": 1.0, "late": 0.9})
    sweeps = [
        Swept(str(each), times[each], {key: {"tile_m": ord(key[0])} for key in times[each]}, None) for each in (0, 1)
    ]
    best, *others = ranked(sweeps)
    assert (best.config, round(best.mean, 2), round(best.worst, 2)) == ({"tile_m": ord("b")}, 1.1, 1.1)
    assert len(others) == 2
    assert len(ranked([*sweeps, Swept("2", times[2], {}, None)])) == 2, "what was not timed everywhere is no row"


class MadeUpGpu:
    """A GPU child whose configs take their tile_m in microseconds, and whose baseline always takes 50."""

    def __init__(self, _: Path, *, environment: Mapping[str, str], torch: bool, kept: object) -> None:
        assert torch
        assert environment
        assert kept is None
        self.alive, self.loaded = True, dict[int, float]()

    def prepare(self, preparation: object, *, deadline_s: float) -> dict[str, Any]:
        assert preparation
        assert deadline_s > 0
        work = {"flops": 0, "bytes": 0, "dtypes": ["float32"]}
        introduction = {
            "timer": "cupti",
            "cuda_driver": "13.0",
            "element_bytes": 1,
            "sizes": {},
            "library_runs_apart": True,
        }
        return {**introduction, "work": work, "telemetry": {"when": "prepared"}}

    def ask(self, request: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
        assert deadline_s > 0
        match request["ask"]:
            case "canary":
                return {"telemetry": {"when": request["when"]}}
            case "trial" | "load":
                self.loaded[request["id"]] = float(request["config"]["tile_m"])
                times = [self.loaded[request["id"]]] * request.get("samples", 0)
                return {"status": "timed", "error": 0.0, "samples_us": times}
            case "parts":
                return {"parts_us": {}}
            case "describe":
                return {"missing": "it is made up"}
            case "baselines":
                return {"baselines": {name: {} for name in request["names"]}}
            case asked:
                assert asked in ("time", "rounds")
                count = request.get("rounds") or request["samples"]
                times = [self.loaded[each] for each in request["ids"]] + [50.0 for _ in request.get("names", ())]
                timed = [[each] * count for each in times]
                return {"samples_us": timed, "spans_us": timed, "telemetry": []}

    def close(self) -> None:
        self.alive = False


@pytest.mark.parametrize(
    ("tiles", "table_us", "is_the_winner"), [((16, 64, 128), 64.0, False), ((64, 128), 64.0, True)]
)
def test_the_table_s_config_is_timed_beside_the_winner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiles: tuple[int, ...], table_us: float, is_the_winner: bool
) -> None:
    monkeypatch.setattr(measure_module, "GpuProcesses", MadeUpGpu)
    here = device.Gpu(0, "GPU-1", "NVIDIA H200", "580", device.gpu_model("h200"))
    monkeypatch.setattr(device, "gpus", lambda: (here,))
    cubins = [Cubin({"tile_m": tile, "tile_n": 128, "tile_k": 128}, f"key{tile}", "k") for tile in tiles]
    store = CubinStore(folder(tmp_path))
    for cubin in cubins:
        store.put(cubin.content_key, {"status": "ok"}, b"machine code")
    request = MeasureRequest(LIBRARY, "k", "1x1", "sm_90", store.url, cubins, 0, ("deepgemm", "tile_table"))
    result = measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    assert result.winner == cubins[0].config
    of_name = {each.implementation: each for each in result.measurements}
    assert list(of_name) == ["k", "deepgemm", "tile_table"]
    table = of_name["tile_table"]
    assert (table.role, table.config) == ("baseline", {"tile_m": 64, "tile_n": 128, "tile_k": 128})
    assert set(table.samples_us) == {table_us}
    assert len(table.samples_us) == len(of_name["k"].samples_us)
    assert set(of_name["deepgemm"].samples_us) == {50.0}
    assert table.detail["is_the_winner"] is is_the_winner
