"""Compares a repository's tuned tables with its newest runs. Replays show which configs in the tables are slow."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from tilewatch import tuned
from tilewatch.configs import config_key, config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.worker_reads import tuned_rows
from tilewatch.db.worker_reads.tuned_rows import ConfigReplay, NewestWinner
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.replay_evidence import Estimate, compute_log_ratios, estimate_pair
from tilewatch.worker.git import commits
from tilewatch.worker.transfer.tuned_tables import Params, Times

MOST_BYTES = 1 << 24
"""The largest file of tuned tables that is read, in bytes."""

MOST_LOSS = 0.01
"""The share by which a table's config must be slower, by a sweep's few samples, to be replayed beside the best one."""

Key = tuple[str, str]
"""The kernel and the GPU model of a table."""


@dataclass(frozen=True)
class ShippedTables:
    """The tuned tables of a commit: the file `path`, as text and as JSON."""

    path: str
    text: str
    content: Mapping[str, Any]

    def list_rows(self) -> Iterator[tuple[dict[str, Any], Key, dict[str, Any]]]:
        """Yields (table, table key, row) for each row. Malformed rows are left out."""
        for table in self.content["tables"]:
            rows = table.get("rows") if isinstance(table, dict) else None
            for row in rows if isinstance(rows, list) else ():
                config = row.get("config") if isinstance(row, dict) else None
                if isinstance(config, dict) and all(map(_is_plain, config.values())):
                    yield table, (str(table.get("kernel")), str(table.get("gpu_model"))), row


@dataclass(frozen=True)
class Sweeps:
    """The newest runs of the kernels in tuned tables, and the replays of the tables' configs."""

    winners: Sequence[NewestWinner]
    times: Times
    configs: Mapping[int, Params]
    replays: Sequence[ConfigReplay]


@dataclass(frozen=True)
class ShippedEntry:
    """A tuned table's config `base`. `size` is log(best config's time / base time), or None without a replay."""

    problem: str
    base: Params
    winner: NewestWinner
    replay: ConfigReplay | None = None
    size: Estimate | None = None

    @property
    def head(self) -> Params:
        return self.winner.config if self.replay is None else self.replay.head


@dataclass(frozen=True)
class TableState:
    """A tuned table's slow configs (`stale`), configs without replay (`unknown`) and missing problems (`uncovered`)."""

    key: Key
    rows: int
    stale: tuple[ShippedEntry, ...]
    unknown: tuple[ShippedEntry, ...]
    uncovered: tuple[str, ...]


def _is_plain(value: object) -> bool:
    """Returns whether Postgres can store a value of a config."""
    if isinstance(value, str):
        return value.isprintable()
    return value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value))


def read_tables(repository: Path, revision: str) -> ShippedTables | None:
    """Returns the tuned tables of a commit, or None. Raises BadProject, WrongTable or RepositoryError."""
    settings = commits.read_settings(repository, revision)
    path = None if settings is None else settings.tuned
    text = None if path is None else commits.read_file(repository, revision, path, MOST_BYTES)
    return None if path is None or text is None else ShippedTables(path, text, tuned.parse_file(path, text))


def compare(
    session: Session, repository: str, tables: ShippedTables, policy: Policy, *, gpu_model: str | None = None
) -> tuple[Sweeps, list[TableState]]:
    """Returns the newest runs of the tables' kernels, and the state of each table whose kernel has a run."""
    shipped: dict[Key, dict[str, Params]] = {}
    for _, key, row in tables.list_rows():
        shipped.setdefault(key, {})[str(row.get("problem"))] = row["config"]
    newest = tuned_rows.list_newest_winners(session, repository=repository, gpu_model=gpu_model)
    won = [each for each in newest if (each.kernel, each.gpu_model) in shipped]
    pairs = [(shipped[each.kernel, each.gpu_model].get(each.problem, {}), each) for each in won]
    pairs = [(config, each) for config, each in pairs if config.keys() == each.config.keys()]
    ids = fact_writes.add_configs(session, [config for config, _ in pairs])
    config_ids = {*ids.values(), *(each.config_id for each in won)}
    sweeps = Sweeps(
        won,
        tuned_rows.read_trial_times(session, [each.sweep_id for each in won], config_ids),
        tuned_rows.read_configs(session, {tied for each in won for tied in each.tie}),
        tuned_rows.list_config_replays(session, [each.run_id for each in won]),
    )
    replays = {(each.run_id, config_key(each.base)): each for each in sweeps.replays}
    stale, unknown = defaultdict[Key, list[ShippedEntry]](list), defaultdict[Key, list[ShippedEntry]](list)
    for config, each in pairs:
        key, replay = (each.kernel, each.gpu_model), replays.get((each.run_id, config_key(config)))
        if replay is None and _is_suspected(ids[config_sha256(config)], each, sweeps.times):
            unknown[key].append(ShippedEntry(each.problem, config, each))
        elif replay is not None and replay.base_us:
            size = estimate_pair(compute_log_ratios(replay.base_us, replay.head_us), 0.0)
            if size.is_change(policy) and size.interval[1] < -policy.min_change:
                stale[key].append(ShippedEntry(each.problem, config, each, replay, size))
    measured = {key: {each.problem for each in won if (each.kernel, each.gpu_model) == key} for key in shipped}
    return sweeps, [
        TableState(key, len(rows), tuple(stale[key]), tuple(unknown[key]), tuple(sorted(measured[key] - rows.keys())))
        for key, rows in shipped.items()
        if measured[key]
    ]


def _is_suspected(config_id: int, winner: NewestWinner, times: Times) -> bool:
    """Returns whether a config may be slower than a run's winner."""
    shipped_us, best_us = (times.get((winner.sweep_id, each)) for each in (config_id, winner.config_id))
    is_slower = shipped_us is None or best_us is None or shipped_us >= (1 + MOST_LOSS) * best_us
    return is_slower and config_id not in (winner.config_id, *winner.tie)
