"""A GPU child without a GPU, as a real process to be killed: times are made up, every finished trial is logged.

`python -m tests.kernels.sim_gpu gpu`; the log's path comes as the store of the prepare request.
"""

import json
import sys
import time
from typing import Any


def main() -> None:
    log = ""
    for line in sys.stdin:
        request = json.loads(line)
        if request["ask"] == "prepare":
            log = request["store"]
        print(json.dumps(answer(request, log)), flush=True)


def answer(request: dict[str, Any], log: str) -> dict[str, Any]:
    if request["ask"] == "trial":
        time.sleep(0.01)
        with open(log, "a") as out:
            out.write(f"{request['config']['tile_m']}\n")
        return {
            "status": "timed",
            "error": 0.0,
            "samples_us": [100.0 + request["config"]["tile_m"]] * request["samples"],
        }
    if request["ask"] == "time":
        return {"samples_us": [[100.0 + each] * request["samples"] for each in request["ids"]]}
    return {}


if __name__ == "__main__":
    main()
