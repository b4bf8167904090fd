"""Chooses the configs to compare: the winner of a recorded sweep, else the shipped config, else all configs."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewatch import tuned
from tilewatch.configs import config_key
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.recording_file import BadRecording
from tilewatch.kernels.results import Params, Plan
from tilewatch.kernels.tile_table import default_config, table_config

if TYPE_CHECKING:
    from tilewatch.kernels.comparing.targets import Target  # it imports cuTile, and every command imports this

MOST_TIES = 4
"""Largest number of configs in a RecordedWinner: the winner and its first ties, whose times differ by at most 0.3 %."""


class ConfigSource(enum.StrEnum):
    """The source of the configs to compare. `auto` tries recording, shipped and sweep in this order."""

    auto = "auto"
    recording = "recording"
    shipped = "shipped"
    sweep = "sweep"
    given = "given"


@dataclass(frozen=True)
class RecordedWinner:
    """The winning config of a recorded sweep, then the configs that tied. `finished_at` is empty if unknown."""

    kernel: str
    problem: str
    gpu_model: str
    arch: str
    configs: tuple[Params, ...]
    finished_at: str


@dataclass(frozen=True)
class Candidates:
    """The configs to compare for a kernel and problem, by version, the preferred config first."""

    source: ConfigSource
    base: tuple[Params, ...]
    head: tuple[Params, ...]


def read_winners(files: Iterable[Path]) -> tuple[RecordedWinner, ...]:
    """Returns the winning configs in recordings and tuned tables. Raises BadRecording if a file cannot be read."""
    return tuple(
        winner for file in files for winner in (_read_tuned if file.suffix == ".json" else _read_recording)(file)
    )


def _read_recording(file: Path) -> Iterator[RecordedWinner]:
    rows = recording_file.read(file).rows
    sweeps = {row["id"]: row for row in rows if row["row"] == "sweep"}
    runs = {row["key"]: row for row in rows if row["row"] == "run"}
    for row in rows:
        if row["row"] == "measurement" and row["role"] == "kernel" and row["config"]:
            run = runs[row["run"]]
            sweep = sweeps[run["sweep"]]
            ties = [tie for tie in run["tie"] if tie != row["config"]]
            yield RecordedWinner(
                sweep["kernel"],
                sweep["problem"],
                sweep["gpu_model"]["slug"],
                sweep["arch"],
                (row["config"], *ties[: MOST_TIES - 1]),
                run["finished_at"],
            )


def _read_tuned(file: Path) -> Iterator[RecordedWinner]:
    try:
        for table in tuned.read_tables(file):
            for row in table["rows"]:
                configs = (row["config"], *row["ties"][: MOST_TIES - 1])
                yield RecordedWinner(table["kernel"], row["problem"], table["gpu_model"], table["arch"], configs, "")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRecording(f"{file} is not a tuned table: {error}") from None


def choose_configs(
    target: "Target", gpu: str, winners: Sequence[RecordedWinner], source: ConfigSource, *, may_sweep: bool
) -> Candidates | None:
    """Returns the configs to compare, or None if there are none. `gpu` is a GPU model or an architecture."""
    assert target.base is not None
    assert target.head is not None
    base, head = target.base, target.head
    if source in (ConfigSource.auto, ConfigSource.recording):
        recorded = _find_recorded(target, gpu, winners)
        sides = [_keep_planned(recorded, plan) for plan in (base, head)]
        if all(sides):
            return Candidates(ConfigSource.recording, sides[0], sides[1])
    ships = source is ConfigSource.auto and (not may_sweep or _is_shipped(base, gpu))
    if ships or source is ConfigSource.shipped:
        return Candidates(ConfigSource.shipped, (_choose_default(base, gpu),), (_choose_default(head, gpu),))
    if may_sweep and source in (ConfigSource.auto, ConfigSource.sweep):
        return Candidates(ConfigSource.sweep, _list_space(base), _list_space(head))
    return None


def _find_recorded(target: "Target", gpu: str, winners: Sequence[RecordedWinner]) -> tuple[Params, ...]:
    """Returns the configs of the newest recorded winner, or () if none was recorded. Prefers the same GPU model."""
    matching = [
        winner
        for winner in winners
        if (winner.kernel, winner.problem, winner.arch) == (target.kernel, target.problem, target.arch)
    ]
    matching.sort(key=lambda winner: (winner.gpu_model == gpu, winner.finished_at))
    return matching[-1].configs if matching else ()


def _keep_planned(configs: Iterable[Params], plan: Plan) -> tuple[Params, ...]:
    planned = {config_key(trial.config) for trial in plan.trials}
    return tuple(config for config in configs if config_key(config) in planned)


def _is_shipped(plan: Plan, gpu: str) -> bool:
    return plan.ships is not None or table_config(gpu, plan.element_bytes, _list_space(plan), plan.sizes) is not None


def _choose_default(plan: Plan, gpu: str) -> Params:
    return (
        plan.ships if plan.ships is not None else default_config(gpu, plan.element_bytes, _list_space(plan), plan.sizes)
    )


def _list_space(plan: Plan) -> tuple[Params, ...]:
    return tuple(trial.config for trial in plan.trials)
