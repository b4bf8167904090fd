"""A sweep of made-up configs on the made-up GPU, in a process that a test may kill: JOURNAL LOG RESULT CONFIGS."""

import json
import sys
from pathlib import Path

from kernels.journal import Journal
from kernels.process import Child
from kernels.results import Cubin
from kernels.sweep import Bench, GpuChild, sweep


def main() -> None:
    journal_path, log, result_path, configs = sys.argv[1:]
    Child.program = ("-m", "tests.kernels.sim_gpu")
    with Journal(Path(journal_path)) as journal:
        gpu = GpuChild(Bench(Path("library"), "k", "1x1", log))
        cubins = [Cubin({"tile_m": each}, f"key{each}", "k") for each in range(int(configs))]
        result = sweep(gpu, cubins, on_trial=journal.add, known=dict(journal.known))
        gpu.close()
        trials = [[trial.config["tile_m"], trial.status] for trial in result.trials]
        Path(result_path).write_text(json.dumps({"winner": result.winner, "trials": trials}))
        journal.done()


if __name__ == "__main__":
    main()
