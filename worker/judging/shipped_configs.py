"""Queues replays of configs in a repository's tuned table that were slower than the best config tonight."""

import logging
from pathlib import Path

from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle.jobs import Priority, UnsentJob
from tilewatch.db.worker_reads import judging, winners
from tilewatch.db.worker_reads.winners import Winner
from tilewatch.errors import ExpectedError
from tilewatch.tuned import WrongTable
from tilewatch.worker.judging.compiler_cause import LAUNCHES
from tilewatch.worker.judging.night_context import OpenNight
from tilewatch.worker.queue.replay_job import BuildQuestion, BuildSide
from tilewatch.worker.transfer import stale_tables
from tilewatch.worker.transfer.stale_tables import ShippedEntry

logger = logging.getLogger(__name__)


def ask_about_shipped(night: OpenNight, clone: Path) -> list[UnsentJob]:
    """Queues a replay of each config in the tuned table that may be slow. Returns the jobs to send."""
    session, scope = night.session, night.scope
    try:
        tables = stale_tables.read_tables(clone, scope.sha)
    except (ExpectedError, WrongTable) as error:
        logger.warning("the tuned table of %s cannot be read: %s", scope.repository, error)
        return []
    if tables is None:
        return []
    _, states = stale_tables.compare(session, scope.repository, tables, night.policy, gpu_model=scope.gpu_model)
    suspected = {
        each.winner.run_id: (state.key[0], each)
        for state in states
        for each in state.unknown
        if each.winner.sha == scope.sha
    }
    won = winners.read_winners_of_runs(session, list(suspected))
    questions = [_make_question(night, *suspected[run_id], best) for run_id, best in won.items()]
    queued: list[UnsentJob] = []
    for each in questions:
        if judging.find_replay(session, each.key) is None:  # one that failed is not repeated every night
            queued += night.queue(each, Priority.CONFIRM)
    return queued


def _make_question(night: OpenNight, kernel: str, entry: ShippedEntry, best: Winner) -> BuildQuestion:
    """Returns a request for a replay that compares the tuned table's config with the best config."""
    scope = night.scope
    config_id = fact_writes.add_configs(night.session, [entry.base])[config_sha256(entry.base)]
    base = BuildSide(scope.commit_id, scope.sha, config_id, entry.base, measured=True, code=None)
    is_stored = night.store.outcome(best.content_key) is not None
    head = BuildSide.of_winner(best, scope.commit_id, scope.sha, compiled=is_stored)
    ends = f"{best.content_key}:shipped:{config_id}"
    return BuildQuestion.of(scope, (kernel, entry.problem), ends, (base, head), axis="config", launches=LAUNCHES)
