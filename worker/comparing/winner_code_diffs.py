"""Compares the machine code of a new run's winner with the previous run's winner and with the second best config."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.page_reads import evidence
from tilewatch.db.session import DATABASE_IS_AWAY, session
from tilewatch.db.worker_reads import winners
from tilewatch.kernels.code_diff.code_diff import CodeDiff
from tilewatch.kernels.comparing.code_sentences import CubinDiff, Pair, diff_cubins
from tilewatch.kernels.compiling.store import CubinStore, StoreError

logger = logging.getLogger(__name__)

CHANGES_KEPT, INSTRUCTIONS_KEPT = 20, 200
"""The largest numbers of changed lines and of instructions that are stored. A kernel may have thousands."""
RUNS_AT_ONCE = 100


@dataclass(frozen=True)
class Compared:
    """The numbers of runs and of pairs of cubins that were compared."""

    runs: int
    pairs: int


def compare_new_winners(database_url: str, store_url: str, budget_s: float) -> Compared:
    """Compares winners that have no code diff yet, the newest run first, for about `budget_s` seconds."""
    until = time.monotonic() + budget_s
    with session(database_url) as opened:
        run_ids = winners.list_runs_to_compare(opened, RUNS_AT_ONCE)
    runs = pairs = 0
    store = CubinStore(store_url)
    for run_id in run_ids:
        if time.monotonic() > until:
            break
        try:
            with session(database_url) as opened:
                pairs += _try_to_compare(opened, store, run_id)
                fact_writes.mark_compared(opened, run_id)
        except StoreError as error:
            logger.warning("the store is away, so code is compared later: %s", error)
            break
        runs += 1
    return Compared(runs, pairs)


def _try_to_compare(opened: Session, store: CubinStore, run_id: int) -> int:
    """Compares the winner of a run with other cubins. Returns the number of comparisons; 0 after an error."""
    try:
        with opened.begin_nested():
            return _compare(opened, store, run_id)
    except (*DATABASE_IS_AWAY, StoreError):
        raise
    except Exception:  # the edge of a run
        logger.exception("the code of run %s cannot be compared", run_id)
        return 0


def _compare(opened: Session, store: CubinStore, run_id: int) -> int:
    missing = _list_missing(opened, run_id)
    for base_key, head_key in missing:
        try:
            diff = diff_cubins(store, base_key, head_key)
        except StoreError:  # a cubin that was made on another machine, or that was removed
            store.require_access(writes=False)
            continue
        fact_writes.write_code_diff(opened, (base_key, head_key), diff.sentence, *_tabulate(diff))
    return len(missing)


def _list_missing(opened: Session, run_id: int) -> Sequence[Pair]:
    """Lists pairs (other cubin, winner's cubin) of a run that must still be compared."""
    before_id = evidence.find_run_before(opened, run_id)
    found = winners.read_winners_of_runs(opened, [run_id] if before_id is None else [run_id, before_id])
    winner = found.get(run_id)
    if winner is None:
        return []
    head = evidence.find_cubin(opened, winner.sweep_id, winner.config_id)
    before = found.get(before_id) if before_id is not None else None
    next_best = evidence.find_next_best(opened, winner.sweep_id, winner.config_id)
    others = [
        evidence.find_cubin(opened, before.sweep_id, before.config_id) if before is not None else None,
        evidence.find_cubin(opened, winner.sweep_id, next_best) if next_best is not None else None,
    ]
    return [
        (other.content_key, winner.content_key)
        for other in others
        if other is not None
        and other.content_key is not None
        and other.code_sha256 != winner.code_sha256
        and evidence.find_code_diff(opened, other, head) is None
    ]


def _tabulate(diff: CubinDiff) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns two lists of rows to store: changed source lines, and instructions whose counts differ."""
    changes = [row for launch in diff.launches for row in _list_changes(launch)]
    instructions = [row for launch in diff.launches for row in _list_instructions(launch)]
    return changes[:CHANGES_KEPT], instructions[:INSTRUCTIONS_KEPT]


def _list_changes(diff: CodeDiff) -> list[dict[str, Any]]:
    return [
        {"line": str(each.line), "edits": list(each.edits), "is_cause": each.is_cause, "loop_depth": each.loop_depth}
        for each in diff.changes
    ]


def _list_instructions(diff: CodeDiff) -> list[dict[str, Any]]:
    return [
        {
            "line": "" if row.line is None else str(row.line),
            "loop_depth": row.loop_depth,
            "kind": row.kind,
            "text": row.text,
            "base": row.base,
            "head": row.head,
        }
        for row in diff.rows
    ]
