"""Names a worker process: its kind, its host, its GPU and its toolchain."""

import os
import platform
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewatch.kernels import HARNESS
from tilewatch.kernels.compiling.toolchain import compiler_version
from tilewatch.kernels.device import SIMULATED, Gpu
from tilewatch.worker.context import Simulation
from tilewatch.worker.gpu import simulated
from tilewatch.worker.gpu.visible_gpu import right_compiler, right_driver, right_packages, visible_gpu
from tilewatch.worker.queue.dispatch import COMPILE, OF_A_BOARD, board_queue


@dataclass(frozen=True)
class Identity:
    """`name` is Celery's node name; a process of the worker owns its jobs as NAME#PID. A GPU's worker also takes from
    the queue of that GPU alone, without being told to."""

    name: str
    kind: str
    host: str
    toolchain: dict[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None
    queues: tuple[str, ...] = ()

    def owner(self) -> str:
        return f"{self.name}#{os.getpid()}"


def identify(
    name: str, queues: Iterable[str], wanted_compiler: str | None = None, simulation: Simulation | None = None
) -> Identity:
    """Raises WrongWorker for a GPU queue on a machine that does not show that GPU, and for a wrong toolchain."""
    taken = tuple(sorted(queues))
    host = socket.gethostname()
    toolchain = {"harness": HARNESS, "python": platform.python_version()}
    named = (queue.removeprefix("gpu.") for queue in taken if queue.startswith("gpu."))
    models = {queue.partition(OF_A_BOARD)[0] for queue in named}
    if models == {SIMULATED.slug}:
        node = simulation or Simulation(seed=0, trial_s=0.0)
        return _of_gpu(name, node.node, toolchain, simulated.board(node), taken)
    if models:
        gpu = visible_gpu(models)
        right_driver(gpu)
        right_packages()
        return _of_gpu(name, host, toolchain, gpu, taken)
    if COMPILE in taken:
        right_compiler(wanted_compiler)
        return Identity(name, "compile", host, {**toolchain, "compiler": compiler_version()}, queues=taken)
    return Identity(name, "judge", host, toolchain, queues=taken)


def _of_gpu(name: str, host: str, toolchain: dict[str, str], gpu: Gpu, taken: tuple[str, ...]) -> Identity:
    assert gpu.model is not None
    queues = tuple(sorted({*taken, board_queue(gpu.model.slug, gpu.uuid)}))
    return Identity(name, "gpu", host, {**toolchain, "driver": gpu.driver}, gpu, queues)
