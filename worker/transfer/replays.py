"""Replays that travel with the runs that they explain: rows of a recording out of the database and back into one.

A commit of a replay may have no run of its own, so a row carries both of its commits whole.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from tilewatch.db import record
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.models import Commit, Config, Replay

Row = Mapping[str, Any]

ALIKE = ("kernel", "problem", "gpu_model", "axis", "failure", "host", "gpu_uuid", "telemetry", "gpu_s")
"""Columns that are in the file as they are in the table."""

OF_A_SIDE = ("content_key", "code_sha256", "toolchain")


def rows(
    session: Session,
    *,
    repository: str | None = None,
    kernel: str | None = None,
    gpu_model: str | None = None,
    since: dt.date | None = None,
) -> Iterator[dict[str, Any]]:
    """Replays that were held here; one that came with a recording is not passed on."""
    good, bad = aliased(Commit), aliased(Commit)
    good_config, bad_config = aliased(Config), aliased(Config)
    query = (
        select(Replay, good, bad, good_config.params, bad_config.params)
        .join(good, good.id == Replay.good_commit_id)
        .join(bad, bad.id == Replay.bad_commit_id)
        .outerjoin(good_config, good_config.id == Replay.good_config_id)
        .outerjoin(bad_config, bad_config.id == Replay.bad_config_id)
        .where(Replay.origin == "measured")
        .order_by(Replay.id)
    )
    if repository is not None:
        query = query.where(good.repository == repository)
    if kernel is not None:
        query = query.where(Replay.kernel == kernel)
    if gpu_model is not None:
        query = query.where(Replay.gpu_model == gpu_model)
    if since is not None:
        query = query.where(Replay.at >= since)
    for replay, good_commit, bad_commit, good_params, bad_params in session.execute(query):
        yield {
            "row": "replay",
            "key": replay.key,
            **{name: getattr(replay, name) for name in ALIKE},
            "good": _side(replay, "good", good_commit, good_params),
            "bad": _side(replay, "bad", bad_commit, bad_params),
            "good_us": replay.good_us,
            "bad_us": replay.bad_us,
            "at": replay.at.isoformat(),
        }


def write(session: Session, told: Sequence[Row], recording_id: int) -> None:
    """Put a recording's replays on record; one that is known by its key stays as it is."""
    for row in told:
        columns: dict[str, Any] = {name: row[name] for name in ALIKE if name != "failure"}
        for name in ("good", "bad"):
            side = row[name]
            commit = side["commit"]
            columns |= {f"{name}_{each}": side[each] for each in OF_A_SIDE}
            columns[f"{name}_commit_id"] = record.add_commit(
                session, **{**commit, "committed_at": dt.datetime.fromisoformat(commit["committed_at"])}
            )
            params = side["config"]
            ids = record.add_configs(session, [params]) if params is not None else {}
            columns[f"{name}_config_id"] = next(iter(ids.values()), None)
        columns |= {"origin": "recorded", "recording_id": recording_id, "at": dt.datetime.fromisoformat(row["at"])}
        times = {"good_us": row["good_us"], "bad_us": row["bad_us"], "failure": row["failure"]}
        suspicions.write_replay(session, row["key"], {**columns, "suspicion_id": None}, **times)


def _side(replay: Replay, name: str, commit: Commit, params: Mapping[str, int] | None) -> dict[str, Any]:
    return {
        "commit": {
            "repository": commit.repository,
            "sha": commit.sha,
            "position": commit.position,
            "committed_at": commit.committed_at.isoformat(),
            "subject": commit.subject,
        },
        "config": params,
        **{each: getattr(replay, f"{name}_{each}") for each in OF_A_SIDE},
    }
