"""Reads a GPU's Xid and memory errors in a child process while the GPU is idle."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tilewatch.kernels.gpu.telemetry import Telemetry

try:
    import pynvml
except ImportError:  # the gpu extra is not installed in full; the readings then say so
    pynvml = None

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:]+)\): (\d+)")
MOST_EVENTS = 1000
"""Most events that one request reads. A failing GPU can report many more than are needed to judge it."""

_watch: "Watch | None" = None


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the GPU's telemetry and the Xid errors since the last request."""
    global _watch
    if _watch is None:
        _watch = Watch(request["gpu_uuid"])
    return _watch.look()


class Watch:
    def __init__(self, gpu_uuid: str) -> None:
        self._telemetry = Telemetry(gpu_uuid)
        self._events: Any = None
        self._log: KernelLog | None = None
        if pynvml is None or self._telemetry.missing is not None:
            return
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu_uuid)
        try:
            self._events = pynvml.nvmlEventSetCreate()
            kinds = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
            pynvml.nvmlDeviceRegisterEvents(handle, kinds, self._events)
        except pynvml.NVMLError:
            self._events = None
            self._log = KernelLog.open(str(pynvml.nvmlDeviceGetPciInfo(handle).busId))

    def look(self) -> dict[str, Any]:
        xids = list(self._log.xids() if self._log is not None else self._reported())
        return {**self._telemetry.read("watch"), "xids": xids}

    def _reported(self) -> Iterator[int]:
        for _ in range(MOST_EVENTS if self._events is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError:  # a timeout: nothing more happened
                return
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                yield int(event.eventData)


class KernelLog:
    """The messages about one GPU that the operating system logs from now on."""

    def __init__(self, handle: int, bus_id: str) -> None:
        self._handle, self._bus_id = handle, bus_id

    @classmethod
    def open(cls, bus_id: str, path: str = "/dev/kmsg") -> "KernelLog | None":
        """Opens the log at its end. Returns None if the user may not read it."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(handle, 0, os.SEEK_END)
        except OSError:
            return None
        return cls(handle, bus_id)

    def xids(self) -> Iterator[int]:
        for _ in range(MOST_EVENTS):
            try:
                line = os.read(self._handle, 8192)  # /dev/kmsg gives one record per read
            except OSError:  # no more records, or old ones were overwritten before we read them
                return
            if not line:
                return
            yield from xids_in(line.decode(errors="replace"), self._bus_id)


def xids_in(text: str, bus_id: str) -> list[int]:
    """Returns the numbers of one GPU's Xid errors in a text of the system's log."""
    # The log shortens NVML's bus id 00000000:19:00.0 to 0000:19:00.
    return [int(xid) for named, xid in _XID.findall(text) if named.lower() in bus_id.lower()]
