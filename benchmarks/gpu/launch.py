"""Launches one config and DeepGEMM a few times, for a profiler to watch: `python -m benchmarks.gpu.launch REQUEST`.

REQUEST is JSON: library, kernel, problem, store, config, content_key, symbol, launches. L2 is flushed before each
launch, as in every measurement of ours.
"""

import json
import sys

from tilewatch.kernels.gpu.gpu_child import answer


def main() -> None:
    request = json.loads(sys.argv[1])
    answer({**request, "ask": "prepare", "seed": 1, "timer": "events"})
    answer({**request, "ask": "load", "id": 0})
    names = [name for name, detail in answer({"ask": "baselines", "names": ["deepgemm"]})["baselines"].items()
             if "missing" not in detail]  # fmt: skip
    answer({"ask": "rounds", "ids": [0], "names": names, "rounds": request["launches"], "seed": 1})


if __name__ == "__main__":
    main()
