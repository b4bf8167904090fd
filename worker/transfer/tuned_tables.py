"""Makes tuned tables, the JSON in which tilewatch.tuned looks up configs, from a database's newest best configs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewatch import find_release, tuned
from tilewatch.db.repository_names import is_branch
from tilewatch.db.session import session
from tilewatch.db.worker_reads import tuned_rows
from tilewatch.db.worker_reads.tuned_rows import NewestWinner
from tilewatch.errors import ExpectedError
from tilewatch.grouping import group_by

Params = Mapping[str, Any]
Times = Mapping[tuple[int, int], float]
"""The median times in microseconds, by the ids of sweep and config."""


class NothingTuned(ExpectedError):
    """Raised if no tuned config passes the filter, or several repositories' configs do. The message is a sentence."""


def write_tables(
    database_url: str,
    path: Path,
    link: Callable[[int], str],
    *,
    repository: str | None = None,
    kernel: str | None = None,
    gpu_model: str | None = None,
    every_repository: bool = False,
) -> list[Mapping[str, Any]]:
    """Writes tuned tables to a file and returns the tables. Raises NothingTuned if no repository or several match."""
    with session(database_url) as opened:
        found = tuned_rows.list_newest_winners(opened, repository=repository, kernel=kernel, gpu_model=gpu_model)
        winners = found if every_repository else _of_one_repository(found, repository)
        config_ids = {winner.config_id for winner in winners}
        times = tuned_rows.read_trial_times(opened, [winner.sweep_id for winner in winners], config_ids)
        configs = tuned_rows.read_configs(opened, {tied for winner in winners for tied in winner.tie})
    tables = make_tables(winners, times, configs, link)
    content = {"format": tuned.FORMAT, "made_by": f"tilewatch {find_release()}", "tables": tables}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return tables


def make_tables(
    winners: Sequence[NewestWinner], times: Times, configs: Mapping[int, Params], link: Callable[[int], str]
) -> list[Mapping[str, Any]]:
    """Returns a table for each repository, kernel and GPU model, with the best configs of the newest source code."""
    return [
        {
            "kernel": newest.kernel,
            "gpu": newest.gpu_name,
            "gpus": sorted({winner.gpu_name for winner in rows}),  # drivers have several names for one GPU model
            "gpu_model": newest.gpu_model,
            "arch": newest.arch,
            "repository": newest.repository,
            "commit": newest.sha,
            "source_sha256": newest.source_sha256,
            "toolchain": newest.toolchain,
            "rows": [make_row(winner, rows, times, configs, link, newest.toolchain) for winner in rows],
        }
        for newest, rows in _group_by_table(winners)
    ]


def list_winners(database_url: str, **wanted: str | None) -> list[NewestWinner]:
    """Lists the winners of one repository that pass the filters. Raises NothingTuned if there are none."""
    with session(database_url) as opened:
        found = tuned_rows.list_newest_winners(opened, **wanted)
    winners = _of_one_repository(found, wanted["repository"])
    return [winner for _, rows in _group_by_table(winners) for winner in rows]


def _group_by_table(winners: Iterable[NewestWinner]) -> Iterator[tuple[NewestWinner, list[NewestWinner]]]:
    """Yields (newest winner, all winners with the same commit or source code) for each table."""
    groups = group_by(winners, lambda winner: (winner.repository, winner.kernel, winner.gpu_model))
    for newest, *others in groups.values():
        rows = [each for each in others if newest.sha == each.sha or newest.source_sha256 == each.source_sha256]
        yield newest, sorted((newest, *rows), key=lambda winner: winner.problem)


def make_row(
    winner: NewestWinner,
    rows: Iterable[NewestWinner],
    times: Times,
    configs: Mapping[int, Params],
    link: Callable[[int], str],
    toolchain: object,
) -> dict[str, Any]:
    """Returns a table's row for one problem. `rows` are all winners in the same table."""
    regret = find_carried_regret(winner, rows, times)
    return {
        "problem": winner.problem,
        "config": winner.config,
        "time_us": round(winner.time_us, 3),
        "ties": [configs[tied] for tied in winner.tie if tied != winner.config_id],
        "carried_regret": None if regret is None else round(regret, 4),
        "evidence": link(winner.run_id),
        **({} if winner.toolchain == toolchain else {"toolchain": winner.toolchain}),
        **({} if winner.certificate is None else {"certificate": winner.certificate}),
    }


def find_carried_regret(winner: NewestWinner, rows: Iterable[NewestWinner], times: Times) -> float | None:
    """Returns the slowdown of a problem (0.1 is 10 %) with the most similar problem's config; None if unknown."""
    own = tuned.split_problem(winner.problem)
    near = [
        (distance, row)
        for row in rows
        if row is not winner and (distance := tuned.measure_distance(own, tuned.split_problem(row.problem))) is not None
    ]
    if not near:
        return None
    carried = min(near, key=lambda each: each[0])[1].config_id
    if carried == winner.config_id or carried in winner.tie:
        return 0.0
    best, taken = (times.get((winner.sweep_id, config_id)) for config_id in (winner.config_id, carried))
    # In the sweep's few samples that config may have been faster than the winner of the careful timing.
    return None if best is None or taken is None else max(0.0, taken / best - 1)


def _of_one_repository(winners: Sequence[NewestWinner], named: str | None) -> Sequence[NewestWinner]:
    """Returns the winners of one repository. Raises NothingTuned if several would be mixed."""
    kept = [winner for winner in winners if named is not None or not is_branch(winner.repository)]
    found = sorted({winner.repository for winner in kept})
    if not kept:
        raise NothingTuned("nothing to export: no GPU has measured such a sweep")
    if len(found) > 1:
        raise NothingTuned(f"several repositories have such sweeps; name one of them: {', '.join(found)}")
    return kept
