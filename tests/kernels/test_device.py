"""GPU models by the names people and drivers give them, and what nvidia-smi says of a machine."""

from itertools import pairwise
from pathlib import Path

import pytest

from tilewatch.kernels.device import (
    CLOCK_MARGIN,
    GPU_MODELS,
    HALF_SUMS,
    LARGEST_L2_BYTES,
    MULTIPROCESSORS,
    GpuMissing,
    GpuSpec,
    Rate,
    UnknownGpu,
    find_floor_us,
    find_gpu,
    find_rate,
    gpu_model,
    gpus,
    model_named,
    model_of,
    name_unknown,
    processes_on,
)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100pcie"),
        ("NVIDIA H100 NVL", "h100nvl"),
        ("NVIDIA H200 NVL", "h200nvl"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "rtx5090laptop"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000"),
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA Thor", "thor"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
    ],
)
def test_a_driver_s_name_finds_its_model(name: str, slug: str) -> None:
    model = model_named(name)
    assert model is not None
    assert model.slug == slug


def test_a_gpu_we_do_not_know_is_no_model() -> None:
    assert model_named("NVIDIA GeForce GTX 1080") is None


def test_a_gpu_we_do_not_know_works_under_its_own_name_and_every_machine_knows_its_architecture() -> None:
    here = name_unknown("NVIDIA GeForce RTX 5070 Ti", "12.0")
    assert here is not None
    assert (here.slug, here.name, here.arch) == ("geforce-rtx-5070-ti-sm_120", "NVIDIA GEFORCE RTX 5070 TI", "sm_120")
    assert gpu_model(here.slug) == here
    assert find_rate(here, ("bfloat16",)) is None
    longest = name_unknown("NVIDIA RTX PRO 5000 Blackwell Max-Q Workstation Edition", "12.0")
    assert longest is not None
    assert len(longest.slug) <= 40


@pytest.mark.parametrize("capability", ["6.1", "[N/A]", ""])
def test_what_cutile_has_no_code_for_is_no_model(capability: str) -> None:
    assert name_unknown("NVIDIA GeForce GTX 1080", capability) is None


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownGpu, match="'h201'; nearest: h20, h200"):
        gpu_model("h201")
    assert gpu_model("H200").arch == "sm_90"


def test_one_model_is_meant_by_each_architecture_while_no_gpu_is_there() -> None:
    archs = ("sm_80", "sm_90", "sm_100", "sm_103", "sm_120")
    meant = [model.slug for arch in archs if (model := model_of(arch)) is not None]
    assert meant == ["a100", "h200", "b200", "b300", "rtx5090"]
    assert set(meant) == set(MULTIPROCESSORS), "no two of one architecture"
    assert model_of("sm_89") is None


H200 = gpu_model("h200")


@pytest.mark.parametrize(
    ("dtypes", "rate"),
    [
        (("float8_e4m3fn", "float32"), Rate("float8", 1979.0)),
        (("bfloat16", "int32"), Rate("float16", 989.4)),
        (("float16",), Rate("float16", 989.4)),
        (("float32",), Rate("tf32", 494.7)),
        (("float8_e8m0fnu", "bfloat16"), Rate("float16", 989.4)),
        (("int32",), None),
        ((), None),
    ],
)
def test_the_rate_is_of_the_narrowest_operand(dtypes: tuple[str, ...], rate: Rate | None) -> None:
    assert find_rate(H200, dtypes) == rate


def test_a_type_without_a_published_rate_has_none_instead_of_a_wider_one_s() -> None:
    assert find_rate(gpu_model("a100"), ("float8_e4m3fn", "float16")) is None


def test_wider_types_are_slower_on_every_model() -> None:
    for model in GPU_MODELS:
        rates = [each for each in (model.fp8_tflops, model.half_tflops, model.tf32_tflops) if each is not None]
        assert rates == sorted(rates, reverse=True), model


def test_a_type_of_twice_the_width_has_half_the_rate_on_every_model() -> None:
    for model in GPU_MODELS:
        rates = (model.fp8_tflops, model.half_tflops, model.tf32_tflops)
        halves = [narrow / wide for narrow, wide in pairwise(rates) if narrow is not None and wide is not None]
        assert halves == [pytest.approx(2.0, rel=0.03)] * len(halves), model


@pytest.mark.parametrize(
    ("slug", "bits", "gbit_s"),
    [
        ("a100", 5 * 1024, 3.186),
        ("h100", 5 * 1024, 5.234),
        ("h100pcie", 5 * 1024, 3.186),
        ("h100nvl", 6016, 5.234),
        ("h20", 6 * 1024, 5.234),
        ("gh200", 6 * 1024, 5.234),
        ("h200", 6 * 1024, 6.25),
        ("h200nvl", 6 * 1024, 6.25),
        ("b200", 8 * 1024, 8.0),
        ("b300", 8 * 1024, 8.0),
        ("gb200", 8 * 1024, 8.0),
        ("gb300", 8 * 1024, 8.0),
        ("l40s", 384, 18.0),
        ("rtx4090", 384, 21.0),
        ("rtx5080", 256, 30.0),
        ("rtx5090", 512, 28.0),
        ("rtx5090laptop", 256, 28.0),
        ("rtxpro6000", 512, 28.0),
        ("gb10", 256, 8.533),
        ("thor", 256, 8.533),
    ],
)
def test_a_bandwidth_is_the_width_of_the_bus_times_what_each_bit_of_it_carries(
    slug: str, bits: int, gbit_s: float
) -> None:
    assert gpu_model(slug).bandwidth_gbps == pytest.approx(bits / 8 * gbit_s, rel=0.03)


@pytest.mark.parametrize(
    ("slug", "operations"), [("a100", 2048), ("h200", 4096), ("b200", 8192), ("b300", 8192), ("rtx5090", 512)]
)
def test_the_multiprocessors_reach_the_rate_of_their_model_at_a_clock_that_gpus_have(
    slug: str, operations: int
) -> None:
    """`operations` are those of one multiprocessor and cycle on float16, with sums in float32."""
    half_tflops = gpu_model(slug).half_tflops
    assert half_tflops is not None
    assert 1.4 <= half_tflops * 1e3 / (MULTIPROCESSORS[slug] * operations) <= 2.5, "GHz"


def test_the_floor_is_the_longer_of_computing_at_the_highest_clock_and_of_what_cannot_stay_in_l2() -> None:
    gpu = GpuSpec("made", "made", "sm_90", half_tflops=1000.0, bandwidth_gbps=1000.0)
    assert find_floor_us(gpu, ["float16"], CLOCK_MARGIN * 1e11, 0) == pytest.approx(100.0)
    assert find_floor_us(gpu, ["float16"], 0, LARGEST_L2_BYTES + 10**8) == pytest.approx(100.0)
    assert find_floor_us(gpu, ["float16"], 0, LARGEST_L2_BYTES) == 0
    assert find_floor_us(gpu, ["float16"], 0, 0) == find_floor_us(gpu, ["int32"], 1e15, 0) == 0
    both_us = find_floor_us(gpu, ["float16"], CLOCK_MARGIN * 1e11, LARGEST_L2_BYTES + 2 * 10**8)
    assert both_us == pytest.approx(200.0)
    assert find_floor_us(GpuSpec("made", "made", "sm_90"), ["float16"], 1e15, 1e15) == 0


def test_a_geforce_may_be_twice_as_fast_with_sums_in_float16() -> None:
    gpu = GpuSpec("made", "NVIDIA GeForce made", "sm_120", half_tflops=1000.0)
    assert find_floor_us(gpu, ["float16"], HALF_SUMS * CLOCK_MARGIN * 1e11, 0) == pytest.approx(100.0)


@pytest.mark.parametrize("answer", [None, "exit 9"])
def test_a_driver_that_is_missing_or_fails_is_no_gpu_and_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    if answer is not None:
        write_nvidia_smi(tmp_path, answer)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (gpus(), processes_on("GPU-1")) == ((), ())


@pytest.mark.usefixtures("three_of_four_gpus")
@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, (0, 1, 3)),
        ("1", (1,)),
        ("3, 0", (0, 3)),
        ("GPU-12", (1,)),
        ("GPU-1", (1, 3)),
        ("GPU-13-c,GPU-02-a", (0, 3)),
        ("MIG-12-b", ()),
        ("2", ()),
        ("-1", ()),
        ("", ()),
    ],
)
def test_only_gpus_that_cuda_visible_devices_names_are_used(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, seen: tuple[int, ...]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert tuple(gpu.index for gpu in gpus()) == seen
    if seen:
        assert find_gpu().index == seen[0]
    else:
        with pytest.raises(GpuMissing, match=f"0 NVIDIA GPUs that CUDA_VISIBLE_DEVICES={visible} names; "):
            find_gpu()


@pytest.mark.usefixtures("three_of_four_gpus")
def test_an_index_is_nvidia_smi_s_and_not_a_place_in_the_list() -> None:
    assert find_gpu(3).uuid == "GPU-13-c"
    with pytest.raises(GpuMissing, match=r"there is no GPU 2 on this machine: it has 3 NVIDIA GPUs; "):
        find_gpu(2)


def test_a_gpu_that_cutile_cannot_compile_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_nvidia_smi(tmp_path, "echo '0, GPU-1, Tesla T4, 580.159, 7.5'")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpuMissing, match=r"cuTile does not support GPU 0 \(Tesla T4\): it compiles for sm_80"):
        find_gpu()


@pytest.mark.parametrize(
    ("name", "slug", "has_rate"),
    [("NVIDIA H200", "h200", True), ("NVIDIA GeForce RTX 5070 Ti", "geforce-rtx-5070-ti-sm_90", False)],
)
def test_a_gpu_of_this_machine_is_a_known_model_or_one_without_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, slug: str, has_rate: bool
) -> None:
    write_nvidia_smi(tmp_path, f"echo '0, GPU-1, {name}, 580.159, 9.0'")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpu = find_gpu()
    assert (gpu.index, gpu.uuid, gpu.name, gpu.driver) == (0, "GPU-1", name, "580.159")
    assert gpu.model is not None
    assert (gpu.model.slug, gpu.model.fp8_tflops is not None) == (slug, has_rate)


@pytest.fixture
def three_of_four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose nvidia-smi does not list GPU 2."""
    rows = (f"{row}, NVIDIA H200, 580.159, 9.0" for row in ("0, GPU-02-a", "1, GPU-12-b", "3, GPU-13-c"))
    write_nvidia_smi(tmp_path, "\n".join(f"echo '{row}'" for row in rows))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_processes_on_a_gpu_are_all_but_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "GPU-1, 30, python\nGPU-1, 40, train.py\nGPU-2, 50, other\nGPU-1, 20, python\n"
    write_nvidia_smi(tmp_path, f"echo '{listed}'")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert processes_on("GPU-1", (20, 30)) == ("40 train.py",)
    assert processes_on("GPU-1") == ("30 python", "40 train.py", "20 python")


def write_nvidia_smi(folder: Path, command: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
