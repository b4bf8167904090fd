"""Exports and imports the replays of a recording. A row contains both commits, as a commit may have no run."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import suspicions
from tilewatch.db.models import Commit, Replay
from tilewatch.db.worker_reads.export import ReplayExport, find_known_replays
from tilewatch.worker.transfer.recorded_commits import RecordedCommits, write_commit

Row = Mapping[str, Any]

ALIKE = ("kernel", "problem", "gpu_model", "axis", "failure", "host", "gpu_uuid", "telemetry", "gpu_s")
"""The columns of the table of replays that a recording's rows have under the same name and with the same content."""

OF_A_SIDE = ("content_key", "code_sha256", "toolchain")


def replay_rows(exported: Iterable[ReplayExport]) -> Iterator[dict[str, Any]]:
    """Yields a row for each replay."""
    for each in exported:
        replay = each.replay
        yield {
            "row": "replay",
            "key": replay.key,
            **{name: getattr(replay, name) for name in ALIKE},
            "counters": replay.counters,
            "good": _side(replay, "good", each.good_commit, each.good_params),
            "bad": _side(replay, "bad", each.bad_commit, each.bad_params),
            "good_us": replay.good_us,
            "bad_us": replay.bad_us,
            "at": replay.at.isoformat(),
        }


def write_replays(session: Session, rows: Sequence[Row], commits: RecordedCommits, recording_id: int) -> None:
    """Writes the replays of a recording that are not stored yet."""
    known = find_known_replays(session, [row["key"] for row in rows])
    sides = [row[name] for row in rows for name in ("good", "bad")]
    config_ids = fact_writes.add_configs(session, [side["config"] for side in sides if side["config"] is not None])
    for row in rows:
        at = dt.datetime.fromisoformat(row["at"])
        if (row["key"], at) in known:  # it was measured here, or an older release imported it
            continue
        columns: dict[str, Any] = {name: row[name] for name in ALIKE if name != "failure"}
        for name in ("good", "bad"):
            side = row[name]
            columns |= {f"{name}_{each}": side[each] for each in OF_A_SIDE}
            columns[f"{name}_commit_id"] = commits.add(side["commit"])
            params = side["config"]
            columns[f"{name}_config_id"] = config_ids[config_sha256(params)] if params is not None else None
        columns["counters"] = row.get("counters")
        columns |= {"origin": "recorded", "recording_id": recording_id, "at": at}
        times = {"good_us": row["good_us"], "bad_us": row["bad_us"], "failure": row["failure"]}
        key = f"{row['key']}:{at.astimezone(dt.UTC).isoformat()}"
        suspicions.write_replay(session, key, {**columns, "suspicion_id": None}, **times)


def _side(replay: Replay, name: str, commit: Commit, params: Mapping[str, int] | None) -> dict[str, Any]:
    return {
        "commit": write_commit(commit),
        "config": params,
        **{each: getattr(replay, f"{name}_{each}") for each in OF_A_SIDE},
    }
