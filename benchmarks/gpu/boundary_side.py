"""Measures what it is asked for with the product that it imports: one side of `python -m benchmarks.gpu.boundary take`.

Started by path, with PYTHONPATH on the `src` of a checkout, which may be of an old commit: it imports nothing else of
the repository, and of the product only what both sides have. A line of standard input asks for a problem, and a line of
standard output has what was measured.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

from tilewatch.kernels.measuring import measure as measuring
from tilewatch.kernels.results import Cubin


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # only answers may go to standard output
    with mock.patch.object(measuring, "add_counts", lambda measurements, *_, **__: measurements):  # they are not timed
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the measurements, or why nothing was measured. `wall_s` is from the start of the processes to
    their end."""
    request = measuring.MeasureRequest(
        Path(asked["library"]),
        asked["kernel"],
        asked["problem"],
        asked["arch"],
        asked["store"],
        tuple(Cubin(**each) for each in asked["cubins"]),
        asked["gpu_index"],
        tuple(asked["baselines"]),
    )
    started = time.monotonic()
    try:
        result = measuring.measure(request, on_trial=lambda _: None, on_step=lambda *_: None)
    except measuring.MeasureFailed as failure:
        return {"failure": str(failure)}
    wall_s = time.monotonic() - started
    return {
        "wall_s": wall_s,
        "sweep_gpu_s": result.sweep_gpu_s,
        "winner": result.winner,
        "tie": result.tie,
        "trials": [{"config": each.config, "status": each.status, "failure": each.failure} for each in result.trials],
        "measurements": [asdict(each) for each in result.measurements],
    }


if __name__ == "__main__":
    main()
