"""A worker says that it is here: its row in `workers`, renewed by a thread of the worker's parent process.

Knows what a worker is by the queue it takes from, and on a GPU queue which GPU it sees.
"""

import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog
from sqlalchemy.exc import SQLAlchemyError

from tilewatch.db import record
from tilewatch.db.session import session
from tilewatch.db.step_queries import steps
from tilewatch.kernels import HARNESS
from tilewatch.kernels.compiling.toolchain import MEASURING, compiler_version, versions
from tilewatch.kernels.device import OLDEST_DRIVER, SIMULATED, Gpu, gpus
from tilewatch.worker.gpu import simulated
from tilewatch.worker.gpu.simulated import Simulation
from tilewatch.worker.queue.dispatch import COMPILE, OF_A_BOARD, board_queue, gpu_queue

log = structlog.get_logger()

HEARTBEAT_S = 15


class WrongWorker(Exception):
    """A worker was started in a way that cannot work; the message is a sentence."""


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


def visible_gpu(models: set[str]) -> Gpu:
    """The one GPU of these models that this process may use."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = None if wanted is None else [name.strip() for name in wanted.split(",")]
    seen = [gpu for gpu in gpus() if chosen is None or gpu.uuid in chosen or str(gpu.index) in chosen]
    fitting = [gpu for gpu in seen if gpu.model is not None and gpu.model.slug in models]
    if len(fitting) == 1:
        return fitting[0]
    queues = ", ".join(sorted(gpu_queue(model) for model in models))
    shown = ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in seen) or "no NVIDIA GPU"
    raise WrongWorker(
        f"a worker for {queues} needs exactly one such GPU but sees {shown}; "
        "set CUDA_VISIBLE_DEVICES to one GPU's UUID (nvidia-smi -L)"
    )


def right_driver(gpu: Gpu) -> None:
    major = gpu.driver.split(".")[0]
    if major.isdigit() and int(major) < OLDEST_DRIVER:
        raise WrongWorker(
            f"GPU {gpu.index} ({gpu.name}) has driver {gpu.driver}, under which our cubins do not load: "
            f"install NVIDIA driver {OLDEST_DRIVER} or newer"
        )


def right_packages() -> None:
    """What a GPU worker cannot measure without."""
    if "cupy-cuda13x" not in versions(MEASURING):
        raise WrongWorker("CuPy is not installed here, which a GPU worker measures with: run `make install`")


def right_compiler(wanted: str | None) -> None:
    """A fleet that compiles with two compilers compiles everything twice and compares apples with pears."""
    here = compiler_version()
    if not here:
        raise WrongWorker("the tile compiler is not installed here, which a compile worker needs: run `make install`")
    if wanted is not None and here != wanted:
        raise WrongWorker(
            f"this machine compiles with {here}, but TILEWATCH_COMPILER wants {wanted}: run `make install` of the "
            "release that has it, or change TILEWATCH_COMPILER on every compile worker"
        )


class Presence:
    """The row of this worker. `say` works in the pool's processes too; the thread runs in the parent only."""

    def __init__(self, database_url: str, identity: Identity, on_beat: Callable[[], None] = lambda: None) -> None:
        """`on_beat` runs with every heartbeat that Postgres took, so when it is there."""
        self._database_url, self._identity, self._on_beat = database_url, identity, on_beat
        self._over = threading.Event()
        self._subjects: str | None = None
        self._said_at = time.monotonic()

    def arrive(self) -> None:
        try:
            with session(self._database_url) as opened:
                record.worker_gone(opened, self._identity.name)  # an earlier life's row, so that started_at is ours
        except SQLAlchemyError as error:
            log.warning("no old row removed", reason=type(error).__name__)
        threading.Thread(target=self._keep_saying, name="heartbeat", daemon=True).start()

    def leave(self) -> None:
        self._over.set()
        try:
            with session(self._database_url) as opened:
                record.worker_gone(opened, self._identity.name)
        except SQLAlchemyError as error:  # the servers may stop first; an old seen_at says it as well
            log.warning("no row removed", reason=type(error).__name__)

    def silent_s(self) -> float:
        """Since the last heartbeat that was written down."""
        return time.monotonic() - self._said_at

    def say(self, doing: str | None) -> None:
        who = self._identity
        model = who.gpu.model if who.gpu else None
        with session(self._database_url) as opened:
            if model is not None:
                record.gpu_model(
                    opened,
                    slug=model.slug,
                    name=model.name,
                    arch=model.arch,
                    fp8_tflops=model.fp8_tflops,
                    bandwidth_gbps=model.bandwidth_gbps,
                )
            record.worker_seen(
                opened,
                name=who.name,
                kind=who.kind,
                host=who.host,
                gpu_model=model.slug if model else None,
                gpu_uuid=who.gpu.uuid if who.gpu else None,
                toolchain=who.toolchain,
                doing=doing,
            )

    def _keep_saying(self) -> None:
        while True:
            try:
                self.say(self._doing())
                self._said_at = time.monotonic()
                self._on_beat()
            except SQLAlchemyError as error:  # Postgres may be restarting; the next beat says it again
                log.warning("heartbeat not written", reason=type(error).__name__)
            if self._over.wait(HEARTBEAT_S):
                return

    def _doing(self) -> str | None:
        """The running jobs, or what a process of this worker last said of why there are none (a GPU in use)."""
        with session(self._database_url) as opened:
            subjects = steps.subjects_of(opened, f"{self._identity.name}#")
            if subjects:
                self._subjects = "; ".join(subjects)
                return self._subjects
            there = steps.last_words(opened, self._identity.name)
        return there if there != self._subjects else None
