"""Reads clocks, power, temperature, throttle reasons and ECC errors through NVML. Runs inside the GPU child."""

import time
from typing import Any

try:
    import pynvml
except ImportError:  # the gpu extra is not installed in full; the run then says that it has no telemetry
    pynvml = None

THROTTLE_REASONS = {
    0x0000000000000004: "sw power cap",
    0x0000000000000008: "hw slowdown",
    0x0000000000000020: "sw thermal",
    0x0000000000000040: "hw thermal",
    0x0000000000000080: "hw power brake",
}
"""NVML's clocksEventReasons that make a kernel slower than the same kernel on a quiet GPU."""


class Telemetry:
    """Reads one GPU. Without NVML every reading says so under "missing"."""

    def __init__(self, uuid: str) -> None:
        self._handle = None
        self.missing = "nvidia-ml-py is not installed" if pynvml is None else None
        if pynvml is not None:
            try:
                pynvml.nvmlInit()
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            except pynvml.NVMLError as error:
                self.missing = f"NVML: {error}"

    def read(self, when: str) -> dict[str, Any]:
        reading: dict[str, Any] = {"when": when, "unix_s": round(time.time(), 3)}
        if self._handle is None:
            return {**reading, "missing": self.missing}
        ask = {
            "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_MEM),
            "power_w": lambda: round(pynvml.nvmlDeviceGetPowerUsage(self._handle) / 1000, 1),
            "power_limit_w": lambda: round(pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000, 1),
            "most_sm_clock_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(self._handle, pynvml.NVML_CLOCK_SM),
            "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(self._handle, pynvml.NVML_TEMPERATURE_GPU),
            "throttled": self._throttled,
            "ecc_uncorrected": lambda: pynvml.nvmlDeviceGetTotalEccErrors(
                self._handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
            ),
        }
        for name, question in ask.items():
            try:
                reading[name] = question()  # type: ignore[no-untyped-call]  # pynvml has no types
            except pynvml.NVMLError as error:
                reading[name] = None
                reading.setdefault("unreadable", {})[name] = str(error)
        return reading

    def _throttled(self) -> list[str]:
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        return [text for bit, text in THROTTLE_REASONS.items() if reasons & bit]
