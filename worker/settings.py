"""Holds the settings of a process, from environment variables TILEWATCH_<NAME> or from defaults."""

import json
import os
import socket
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from tilewatch.db.server.embedded import Servers
from tilewatch.errors import ExpectedError
from tilewatch.nightlies import NightlyTimes

CHECKOUT = Path(__file__).resolve().parent.parent


EVERY_KERNEL = "all"
"""The value of TILEWATCH_KERNELS for the whole suite."""

NOTIFY_FILE = "notify.toml"

MOST_DAYS = 36_500
"""The most days for which samples can be kept. More would put the date out of range."""

HOUR_S = 3600.0


class NotRunning(ExpectedError, RuntimeError):
    """Raised if no servers are known on this machine. The message says how to start servers."""


def _default_home() -> Path:
    """Returns the default data folder."""
    # Not in /root, because Postgres's user could not read it there.
    return Path("/var/lib/tilewatch") if os.geteuid() == 0 else Path("~/.local/share/tilewatch")


class Settings(NightlyTimes):
    """The settings of one process, read once."""

    home: Path = Field(default_factory=_default_home)
    # The machine's name in runs, quarantines and verdicts. Set it in a container, whose host name is new at each start,
    # so that the machine keeps its history.
    node: str = Field(default_factory=socket.gethostname, min_length=1)
    port: int = Field(default=8501, ge=1, le=65535)
    # Both contain passwords, so they are left out of repr, and thereby of logs and tracebacks.
    database_url: str | None = Field(default=None, repr=False)
    broker_url: str | None = Field(default=None, repr=False)
    repository: Path = CHECKOUT
    library: str = "kernels/library"
    # The watched branch. Other commits can be submitted, but are kept apart from its trends and verdicts.
    branch: str = "HEAD"
    store_url: str = Field(default_factory=lambda fields: (fields["home"] / "cubins").as_uri())
    # GPU models that are compiled for without a worker that has one.
    watch: Annotated[tuple[str, ...], NoDecode] = ("b200", "h200")
    # The kernels of the library's suite that a nightly sweeps, or "all". If not set, `tilewatch up` decides.
    kernels: Annotated[tuple[str, ...] | None, NoDecode] = None
    compiler: str | None = None  # which every compile worker must have, as `tilewatch doctor` names it; None for any
    compile_limit_s: float = Field(default=15.0, gt=0, le=HOUR_S)
    compile_threads: int = Field(default=1, ge=1, le=256)  # compilers of each process of a compile worker
    # The settings sim_* are for workers of the simulated GPU (worker/gpu/simulated.py) only.
    sim_seed: int = 0
    sim_trial_s: float = Field(default=0.005, ge=0, le=HOUR_S)
    sim_ill: float = Field(default=0.0, ge=0, le=1)  # the share of sweeps in which the simulated GPU falls ill
    sim_node: str = Field(default_factory=lambda fields: fields["node"], min_length=1)  # the node that it says it is in
    sim_slow: float = Field(default=0.0, ge=0, le=1000)  # how much longer everything takes there: 0.05 is 5 %
    sim_driver: str = Field(default="none", min_length=1)
    sim_planted: dict[str, tuple[str, float]] = Field(default_factory=dict)  # slower or faster code: Simulation.planted
    # Seconds after SIGTERM for which a worker may finish its job before it hands it back. Whoever stops the worker must
    # wait longer than this.
    drain_s: float = Field(default=540.0, ge=0, le=24 * HOUR_S)
    canary_every_s: float = Field(default=600.0, gt=0, le=24 * HOUR_S)  # between two canaries of a GPU in quarantine
    keep_samples_days: int = Field(
        default=90, ge=1, le=MOST_DAYS
    )  # of trials that lost; everything else is kept for ever
    # A JSON file with the numbers by which the judge decides; by default those that benchmarks/judge.py reports.
    policy: Path | None = None
    replay_launches: int = Field(
        default=240, ge=0, le=1_000_000
    )  # a night and GPU model; an H200 takes 1 s for one of an FP8 product
    regret_limit: float = Field(
        default=0.1, gt=0, le=1000
    )  # how much slower the tile table's config may be than the best found
    # Who gets messages (worker/notify/routing.py); by default notify.toml in the home if there is one, else the log.
    notify: Path | None = None
    forge_token: SecretStr | None = None
    dashboard_url: str = Field(
        default_factory=lambda fields: f"http://localhost:{fields['port']}", pattern=r"^https?://"
    )
    # The address of the HTTP API for programs (worker/api); port 0 for none.
    api_address: str = "127.0.0.1"
    api_port: int = Field(default_factory=lambda fields: min(fields["port"] + 1, 65535), ge=0, le=65535)
    webhook_secret: SecretStr | None = None  # what a forge signs its deliveries with
    api_token: SecretStr | None = None  # what `tilewatch mcp` acts with
    # The address of a worker's /healthz and /metrics; port 0 for none. A GPU worker adds its GPU's index to the port.
    health_address: str = "127.0.0.1"
    compile_health_port: int = Field(default=9471, ge=0, le=65535)
    judge_health_port: int = Field(default=9472, ge=0, le=65535)
    tell_health_port: int = Field(default=9473, ge=0, le=65535)
    gpu_health_port: int = Field(default=9480, ge=0, le=65535)

    @field_validator("home", "repository", "notify")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().absolute()

    @field_validator("watch", "kernels", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Returns a list from a text such as `b200,h200`."""
        return tuple(slug.strip() for slug in value.split(",") if slug.strip()) if isinstance(value, str) else value

    def sweeps(self, kernel: str) -> bool:
        """Returns whether nightlies sweep this kernel of the suite."""
        return self.kernels is None or self.kernels == (EVERY_KERNEL,) or kernel in self.kernels

    @property
    def notify_file(self) -> Path | None:
        """Returns the file that says who gets messages, or None if there is no such file."""
        usual = self.home / NOTIFY_FILE
        return self.notify or (usual if usual.exists() else None)

    @property
    def checkouts(self) -> Path:
        """Returns the folder with the checkouts of commits (worker/git/checkouts.py)."""
        return self.home / "commits"

    @property
    def clones(self) -> Path:
        """Returns the folder with the clones that Tilewatch makes (worker/git/clones.py)."""
        return self.home / "repositories"

    @property
    def toolchains(self) -> Path:
        """Returns the folder with the toolchains that `tilewatch toolchain add` installs."""
        return self.home / "toolchains"

    @property
    def baseline_environments(self) -> Path:
        """Returns the folder with the environments of `tilewatch baselines add`."""
        return self.home / "rivals"

    @property
    def connection_file(self) -> Path:
        return self.home / "connection.json"

    def connection(self) -> Servers:
        """Returns the servers' URLs from the environment or `tilewatch up`. Raises NotRunning if a URL is missing."""
        if self.database_url and self.broker_url:
            return Servers(database_url=self.database_url, broker_url=self.broker_url)
        if self.database_url or self.broker_url:
            here, missing = ("DATABASE", "BROKER") if self.database_url else ("BROKER", "DATABASE")
            raise NotRunning(f"TILEWATCH_{here}_URL is set but TILEWATCH_{missing}_URL is not: set both or neither")
        try:
            written = json.loads(self.connection_file.read_text(encoding="utf-8"))
            return Servers(database_url=written["database_url"], broker_url=written["broker_url"])
        except PermissionError:
            raise NotRunning(f"the Tilewatch in {self.home} belongs to another user") from None
        except (OSError, ValueError, KeyError):
            raise NotRunning(
                f"no Tilewatch is running in {self.home}; start it with `make up` or `tilewatch up`, "
                "or set TILEWATCH_DATABASE_URL and TILEWATCH_BROKER_URL"
            ) from None


def find_bad_home(error: Exception) -> str | None:
    """Returns a sentence if an unusable data folder caused a file error; None for any other error."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError) or cause.filename is None:
        return None
    home, file = Settings.load().home, Path(os.fsdecode(cause.filename)).absolute()
    is_usable = os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK)
    if is_usable or not (file.is_relative_to(home) or home.is_relative_to(file)):
        return None
    return f"the data folder {home} cannot be used: {cause.strerror}; TILEWATCH_HOME names another"
