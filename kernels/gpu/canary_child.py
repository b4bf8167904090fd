"""Child role `canary`: sing once on an otherwise idle GPU, and say what NVML read meanwhile."""

from collections.abc import Mapping
from typing import Any

from tilewatch.kernels.gpu import timing
from tilewatch.kernels.gpu.canary import canary
from tilewatch.kernels.gpu.telemetry import Telemetry


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    telemetry = Telemetry(request["gpu_uuid"])
    before = telemetry.read("before the canary")
    sung = canary(timing.timer())
    return {"readings": [before, {"when": "canary", **sung}, telemetry.read("after the canary")]}
