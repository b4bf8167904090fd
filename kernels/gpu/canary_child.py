"""Child role `canary`: runs one canary on an otherwise idle GPU, with NVML's readings before and after it."""

from collections.abc import Mapping
from typing import Any

from tilewatch.kernels.gpu import timing
from tilewatch.kernels.gpu.canary import canary
from tilewatch.kernels.gpu.telemetry import Telemetry


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    telemetry = Telemetry(request["gpu_uuid"])
    before = telemetry.read("before the canary")
    times_us = canary(timing.timer())
    return {"readings": [before, {"when": "canary", **times_us}, telemetry.read("after the canary")]}
