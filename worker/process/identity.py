"""Identifies a worker process: its name, kind, host, GPU and toolchain."""

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewatch.kernels import HARNESS
from tilewatch.kernels.children.sandbox import find_level
from tilewatch.kernels.device import Gpu
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.worker.context import Context
from tilewatch.worker.gpu.visible_gpu import require_compiler
from tilewatch.worker.queue.dispatch import COMPILE, NOTIFY_QUEUE, OF_ONE_GPU, TRACE_QUEUE, one_gpu_queue


@dataclass(frozen=True)
class Identity:
    """The identity of a worker. `name` is Celery's node name."""

    name: str
    kind: str
    host: str
    toolchain: dict[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None
    queues: tuple[str, ...] = ()

    def owner(self) -> str:
        return f"{self.name}#{os.getpid()}"


def identify(name: str, queues: Iterable[str], context: Context, wanted_compiler: str | None = None) -> Identity:
    """Returns the identity of a worker. Raises WrongWorker if this machine cannot serve its queues."""
    taken = tuple(sorted(queues))
    toolchain = {"harness": HARNESS, "python": platform.python_version(), "sandbox": find_level().value}
    gpu_models = {queue.removeprefix("gpu.").partition(OF_ONE_GPU)[0] for queue in taken if queue.startswith("gpu.")}
    if gpu_models:
        from tilewatch.worker.gpu.backend import backend_for

        backend = backend_for(gpu_models, context)
        gpu = backend.own_gpu()
        backend.require_software(gpu)
        assert gpu.model is not None
        if (needs_root := backend.find_need_of_root(gpu)) is not None:
            toolchain["as_root"] = needs_root
        own_queue = one_gpu_queue(gpu.model.slug, gpu.uuid)
        queues_of_gpu = tuple(sorted({*taken, own_queue}))
        return Identity(name, "gpu", backend.host, {**toolchain, "driver": gpu.driver}, gpu, queues_of_gpu)
    if COMPILE in taken or TRACE_QUEUE in taken:
        require_compiler(wanted_compiler)
        return Identity(name, "compile", context.node, {**toolchain, "compiler": compiler_version()}, queues=taken)
    kind = "tell" if taken == (NOTIFY_QUEUE,) else "judge"
    return Identity(name, kind, context.node, toolchain, queues=taken)
