"""Defines the programs that `tilewatch up` starts, with their environments."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import tilewatch
from tilewatch.db.server.embedded import Servers
from tilewatch.kernels.device import Gpu
from tilewatch.worker.local.children import Child
from tilewatch.worker.local.doctor import PACKAGED_CUDA, nvcc
from tilewatch.worker.settings import Settings

MOST_COMPILE_PROCESSES = 16  # each has up to two database connections, and the embedded Postgres gives workers 111
MEMORY_PER_COMPILER_BYTES = 1 << 30  # tileiras needs a few hundred MB, more while it unrolls a large tile
LANES = 4
"""The number of processes of a GPU's worker. While one process uses the GPU, the others write the last series or
prepare the next. A series takes 1.0 s without the GPU and often 0.6 s with it (H100, 2026-11-28). A night of equal
kernels took 218 s with four processes (H200 with 16 cores, 2026-11-29). With three it took 246 s, on half of a busy
host."""
PACKAGE = Path(tilewatch.__file__).parent
SECRETS_OF_PEOPLE = ("TILEWATCH_FORGE_TOKEN", "TILEWATCH_WEBHOOK_SECRET", "TILEWATCH_API_TOKEN")
"""The environment variables with secrets, which only the processes that need them get."""


def child_environment(settings: Settings, servers: Servers) -> dict[str, str]:
    return {
        **os.environ,
        "TILEWATCH_HOME": str(settings.home),
        **({"TILEWATCH_KERNELS": ",".join(settings.kernels)} if settings.kernels is not None else {}),
        "TILEWATCH_DATABASE_URL": servers.database_url,
        "TILEWATCH_BROKER_URL": servers.broker_url,
        # first on the path, so that programs come from the Python environment that `up` runs in
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
    }


def dashboard(settings: Settings, environment: Mapping[str, str]) -> Child:
    # Outside site-packages Streamlit runs in its development mode, which refuses a port.
    installed = ("--global.developmentMode", "false")
    options = ("--server.port", str(settings.port), "--server.address", "localhost", "--server.headless", "true")
    passed = withhold(environment, "TILEWATCH_BROKER_URL", *SECRETS_OF_PEOPLE)
    app = str(PACKAGE / "dashboard" / "server.py")
    return Child("dashboard", (sys.executable, "-m", "streamlit", "run", app, *installed, *options), passed)


def workers(
    settings: Settings, environment: Mapping[str, str], gpus_here: Iterable[Gpu], compilers: int
) -> Iterator[Child]:
    """Yields the commands of all workers and the scheduler. Only the worker `tell` gets the forge's token."""
    celery = (sys.executable, "-m", "celery", "-A", "tilewatch.worker.app")
    no_secrets = withhold(environment, *SECRETS_OF_PEOPLE)
    # Mingle and gossip are for workers that talk to each other. Ours do not, and start a second earlier without them.
    worker = (*celery, "worker", "--loglevel", "INFO", "--without-mingle", "--without-gossip")
    processes = -(-compilers // -(-compilers // MOST_COMPILE_PROCESSES))
    threads = {"TILEWATCH_COMPILE_THREADS": str(-(-compilers // processes))}
    compile_queue = ("-Q", "compile", "-n", "compile@%h", "-c", str(processes))
    yield Child("compile", (*worker, *compile_queue), {**no_secrets, **threads})
    tells = withhold(environment, "TILEWATCH_WEBHOOK_SECRET", "TILEWATCH_API_TOKEN")
    yield Child("judge", (*worker, "-Q", "judge", "-n", "judge@%h", "-c", "1"), no_secrets)
    yield Child("tell", (*worker, "-Q", "tell", "-n", "tell@%h", "-c", "1"), tells)
    for gpu in gpus_here:
        assert gpu.model is not None
        queue_and_name = ("-Q", f"gpu.{gpu.model.slug}", "-n", f"gpu{gpu.index}@%h", "-c", str(LANES))
        one_gpu = {**cuda_home(), **no_secrets, "CUDA_VISIBLE_DEVICES": gpu.uuid}
        yield Child(f"gpu{gpu.index}", (*worker, *queue_and_name), one_gpu)
    schedule = ("beat", "--loglevel", "INFO", "-s", str(settings.home / "beat"))
    yield Child("beat", (*celery, *schedule, "--pidfile="), no_secrets)


def withhold(environment: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in names}


def cuda_home() -> dict[str, str]:
    """Returns a CUDA_HOME with nvcc for DeepGEMM."""
    return {"CUDA_HOME": str(PACKAGED_CUDA)} if nvcc() == PACKAGED_CUDA / "bin" / "nvcc" else {}


def count_compilers(cores: int, memory_bytes: int, gpus: int) -> int:
    """Returns how many compilers may run at once, as cores and memory allow."""
    return max(1, min(cores - LANES * gpus, memory_bytes // MEMORY_PER_COMPILER_BYTES))
