"""An ill GPU is not mistaken for a kernel that crashes, for noise, or for errors counted before."""

from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.gpu.health.illness import DRIFT, ENOUGH, HARMLESS_XIDS, find_in_canaries, find_in_readings
from tilewatch.kernels.gpu.health.watcher import NoAnswer, Watcher, canary
from tilewatch.kernels.gpu.health.xid_watch import KernelLog, xids_in

USUAL = [{"when": "canary before", "canary_compute_us": 222.5 + each, "canary_memory_us": 135.0} for each in range(8)]


def canary_reading(compute_us: float, memory_us: float = 135.0) -> dict[str, Any]:
    return {"when": "canary", "canary_compute_us": compute_us, "canary_memory_us": memory_us}


def test_a_well_gpu_is_well() -> None:
    readings = [{"when": "before", "ecc_uncorrected": 0, "xids": []}, {"when": "after", "ecc_uncorrected": 0}]
    assert find_in_readings(readings) is None
    assert find_in_canaries(USUAL, [canary_reading(224.0)]) is None


@pytest.mark.parametrize("xid", [48, 63, 74, 79, 94, 119])
def test_an_xid_of_the_hardware_is_an_illness(xid: int) -> None:
    found = find_in_readings([{"xids": [13, xid]}])
    assert found is not None
    assert (found.kind, found.reason) == ("xid", f"the driver reported Xid {xid}")


def test_an_xid_that_a_crashing_kernel_causes_is_none() -> None:
    assert find_in_readings([{"xids": sorted(HARMLESS_XIDS)}]) is None


def test_memory_errors_count_as_they_grow() -> None:
    assert find_in_readings([{"ecc_uncorrected": 3}, {"ecc_uncorrected": None}, {"ecc_uncorrected": 3}]) is None
    found = find_in_readings([{"ecc_uncorrected": 3}, {"ecc_uncorrected": 5}])
    assert found is not None
    assert found.reason == "2 memory errors that ECC could not correct"


@pytest.mark.parametrize(("compute_us", "memory_us"), [(260.0, 135.0), (224.0, 150.0)])
def test_a_canary_that_drifted_is_an_illness(compute_us: float, memory_us: float) -> None:
    found = find_in_canaries(USUAL, [canary_reading(compute_us, memory_us), canary_reading(compute_us + 1, memory_us)])
    assert found is not None
    assert found.kind == "canary"


def test_one_slow_canary_of_two_is_none() -> None:
    assert find_in_canaries(USUAL, [canary_reading(300.0), canary_reading(224.0)]) is None


def test_a_short_history_says_nothing() -> None:
    assert find_in_canaries(USUAL[: ENOUGH - 1], [canary_reading(222.5 * (1 + 3 * DRIFT))]) is None


def test_the_kernels_log_is_read_for_one_gpu() -> None:
    text = (
        "6,1,2,-;NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU has fallen off the bus.\nNVRM: Xid (PCI:0000:3b:00): 48\n"
    )
    assert xids_in(text, "00000000:19:00.0") == [79]
    assert xids_in(text, "00000000:3B:00.0") == [48]
    assert xids_in(text, "00000000:5e:00.0") == []


def test_the_kernels_log_is_read_from_now_on(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_text("NVRM: Xid (PCI:0000:19:00): 48, old\n")
    log = KernelLog.open("00000000:19:00.0", str(file))
    assert log is not None
    with file.open("a") as more:
        more.write("NVRM: Xid (PCI:0000:19:00): 79, new\n")
    assert list(log.xids()) == [79]
    assert list(log.xids()) == []
    assert KernelLog.open("0", str(tmp_path / "nothing")) is None


def test_the_watcher_says_when_nvml_cannot_be_asked_and_a_canary_that_it_has_no_gpu() -> None:
    watcher = Watcher("GPU-none")
    try:
        assert watcher.look()["missing"]
        assert find_in_readings([watcher.look()]) is None
    finally:
        watcher.close()
    with pytest.raises(NoAnswer, match="no canary on GPU-none"):
        canary("GPU-none")
