"""NVML readings go into the record, with the reason for throttling; a field that NVML cannot read is named."""

from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu.device import UUID, FakeGpu


def read(when: str = "now", uuid: str = UUID) -> dict[str, Any]:
    from tilewatch.kernels.gpu.telemetry import Telemetry

    return Telemetry(uuid).read(when)


def test_a_reading_holds_clocks_power_and_errors(gpu: FakeGpu) -> None:
    gpu.ecc_errors = 3
    reading = read()
    assert reading.pop("unix_s") > 1.7e9
    assert reading == {
        "when": "now",
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "power_w": 120.0,
        "power_limit_w": 600.0,
        "most_sm_clock_mhz": 1980,
        "temperature_c": None,
        "throttled": [],
        "ecc_uncorrected": 3,
        "unreadable": {"temperature_c": "Not Supported"},
    }


def test_throttling_is_named_and_an_idle_gpu_is_not_throttled(gpu: FakeGpu) -> None:
    gpu.throttled_launches = lambda _: True
    assert read()["throttled"] == ["sw power cap"]


@pytest.mark.parametrize("bit", [0x4, 0x8, 0x20, 0x40, 0x80])
def test_every_reason_that_slows_a_kernel_counts(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, bit: int) -> None:  # noqa: ARG001
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", lambda _: bit)
    assert len(read()["throttled"]) == 1


def test_without_nvml_a_reading_says_so(gpu: FakeGpu) -> None:
    gpu.nvml_missing = True
    assert read()["missing"] == "NVML: Driver Not Loaded"
    gpu.nvml_missing = False
    assert read(uuid="GPU-other")["missing"] == "NVML: Not Found"


def test_the_watch_reports_xids_since_the_last_look_and_leaves_other_events(gpu: FakeGpu) -> None:
    import pynvml

    from tilewatch.kernels.gpu.health.xid_watch import Watch

    watch = Watch(UUID)
    assert watch.look()["xids"] == []
    gpu.events += [
        (pynvml.nvmlEventTypeXidCriticalError, 79),
        (pynvml.nvmlEventTypeDoubleBitEccError, 0),
        (pynvml.nvmlEventTypeXidCriticalError, 48),
    ]
    assert watch.look()["xids"] == [79, 48]
    assert watch.look()["xids"] == []


def test_a_canary_child_reads_nvml_before_and_after(gpu: FakeGpu) -> None:
    from tilewatch.kernels.gpu.health import canary

    gpu.start_process()
    readings = canary.answer({"gpu_uuid": UUID})["readings"]
    assert [each["when"] for each in readings] == ["before the canary", "canary", "after the canary"]
    assert (readings[1]["canary_compute_us"], readings[1]["canary_memory_us"]) == (222.0, 135.0)
    assert readings[0]["sm_clock_mhz"] == 1980
