"""Launches one config and DeepGEMM a few times, for a profiler to watch: `python -m benchmarks.gpu.launch REQUEST`.

REQUEST is JSON: library, kernel, problem, store, config, content_key, symbol, launches. L2 is flushed before each
launch, as in every measurement of ours.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewatch.kernels.children.child_process import ChildProcess
from tilewatch.kernels.gpu.gpu_child import answer
from tilewatch.kernels.measuring.preparation import Preparation, describe, prepare


class ThisProcess:
    """Measures in this process, which a profiler watches. The profiler uses CUPTI, so this process does not."""

    def begin(self, request: Mapping[str, Any]) -> None:
        answer({**request, "timer": "events"})

    def finish(self, *, deadline_s: float) -> dict[str, Any]:
        raise NotImplementedError

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:  # noqa: ARG002
        return dict(answer(request))


def main() -> None:
    request = json.loads(sys.argv[1])
    wanted = Preparation(
        Path(request["library"]),
        request["kernel"],
        request["problem"],
        request["store"],
        1,
        configs=[request["config"]],
    )
    library = ChildProcess("library", library=wanted.library)
    deadline = time.monotonic() + 300
    problems = describe(library, wanted, deadline)
    assert problems is not None, "a profiler cannot watch host code here"
    prepare(library, ThisProcess(), wanted, problems, deadline)
    library.close()
    answer({**request, "ask": "load", "id": 0})
    names = [name for name, detail in answer({"ask": "baselines", "names": ["deepgemm"]})["baselines"].items()
             if "missing" not in detail]  # fmt: skip
    answer({"ask": "rounds", "ids": [0], "names": names, "rounds": request["launches"], "seed": 1})


if __name__ == "__main__":
    main()
