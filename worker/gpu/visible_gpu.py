"""Finds the GPU that this worker may use, and tests the driver and the Python packages for it."""

from collections.abc import Collection

from tilewatch.errors import ExpectedError
from tilewatch.kernels.device import OLDEST_DRIVER, Gpu, gpus
from tilewatch.kernels.toolchains.versions import MEASURING, compiler_version, versions
from tilewatch.worker.queue.dispatch import gpu_queue


class WrongWorker(ExpectedError):
    """Raised if this machine lacks the GPU, driver or software that a worker needs."""


def visible_gpu(models: Collection[str]) -> Gpu:
    """Returns this process's GPU. Raises WrongWorker unless exactly one visible GPU is of these models."""
    seen = gpus()
    fitting = [gpu for gpu in seen if gpu.model is not None and gpu.model.slug in models]
    if len(fitting) == 1:
        return fitting[0]
    queues = ", ".join(sorted(gpu_queue(model) for model in models))
    shown = ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in seen) or "no NVIDIA GPU"
    raise WrongWorker(
        f"a worker for {queues} needs exactly one such GPU but sees {shown}; "
        "set CUDA_VISIBLE_DEVICES to one GPU's UUID (nvidia-smi -L)"
    )


def require_driver(gpu: Gpu) -> None:
    """Raises WrongWorker if the GPU's driver is too old for the cubins that Tilewatch compiles."""
    major = gpu.driver.split(".")[0]
    if major.isdigit() and int(major) < OLDEST_DRIVER:
        raise WrongWorker(
            f"GPU {gpu.index} ({gpu.name}) has driver {gpu.driver}, under which our cubins do not load: "
            f"install NVIDIA driver {OLDEST_DRIVER} or newer"
        )


def require_packages() -> None:
    """Raises WrongWorker if CuPy, with which a GPU worker measures, is missing."""
    if "cupy-cuda13x" not in versions(MEASURING):
        raise WrongWorker("CuPy, with which a GPU worker measures, is not installed here: run `make install`")


def require_compiler(wanted: str | None) -> None:
    """Raises WrongWorker if the tile compiler is missing or has another version than `wanted`."""
    here = compiler_version()
    if not here:
        raise WrongWorker("the tile compiler, which a compile worker needs, is not installed here: run `make install`")
    # Two compilers in one fleet would compile everything twice, and builds would differ by their compiler.
    if wanted is not None and here != wanted:
        raise WrongWorker(
            f"this machine compiles with {here}, but TILEWATCH_COMPILER wants {wanted}: run `make install` of the "
            "release that has it, or change TILEWATCH_COMPILER on every compile worker"
        )
