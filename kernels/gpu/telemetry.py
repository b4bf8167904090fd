"""Reads one GPU's clocks, power, temperature, throttling, ECC errors and processes with NVML."""

import os
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
"""Clock event reasons of NVML that make a kernel slower than on a quiet GPU."""

SAMPLING_S = 0.2
"""The seconds between two samples of active processes by the driver, rounded up (72 samples in 10 s)."""


class Telemetry:
    """Reads one GPU with NVML. Where NVML is missing, readings say why."""

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
            "throttled": self._list_throttle_reasons,
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

    def _list_throttle_reasons(self) -> list[str]:
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        return [text for bit, text in THROTTLE_REASONS.items() if reasons & bit]

    def list_processes(self, since_unix_s: float) -> dict[str, Any]:
        """Returns ids of other processes that use the GPU, or used it since a time."""
        if self._handle is None:
            return {"running": [], "active": [], "unknown": self.missing}
        try:
            running = {each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)}
        except pynvml.NVMLError as error:
            return {"running": [], "active": [], "unknown": str(error)}
        if os.getpid() not in running:  # the process ids are another container's, or hidden
            return {"running": [], "active": [], "unknown": "NVML does not list the process that asks it"}
        others = {"running": running - {os.getpid()}, "active": self._find_active(since_unix_s + SAMPLING_S)}
        return {**{name: sorted(each) for name, each in others.items()}, "unknown": None}

    def _find_active(self, since_unix_s: float) -> set[int]:
        """Returns the ids of other processes that computed on the GPU since a time."""
        if time.time() <= since_unix_s:  # no process starts, launches and ends within one sampling period
            return set()
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._handle, int(since_unix_s * 1e6))
            drawing = {each.pid for each in pynvml.nvmlDeviceGetGraphicsRunningProcesses(self._handle)}
        except pynvml.NVMLError:  # no samples yet, or the GPU is in MIG mode
            return set()
        active = {each.pid for each in samples if each.smUtil > 0} - drawing
        # Without this process in it, the ids are those outside of this container.
        return active - {os.getpid()} if os.getpid() in active else set()
