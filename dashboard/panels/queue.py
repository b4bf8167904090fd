"""Shows jobs with their remaining time or failure, and buttons to cancel or retry them."""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st
from sqlalchemy.orm import Session

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import run_action
from tilewatch.dashboard.text import ago, moment, span_text
from tilewatch.dashboard.widgets import badges, tables
from tilewatch.db.lifecycle import actions
from tilewatch.db.lifecycle.actions import JobSelection
from tilewatch.text import plain, plain_code, short_sha

STATES = ("running", "queued", "waiting", "failed", "poison", "done", "cancelled")
COMMIT_PX = 300
"""The width in pixels of the column with a commit's subject. A wider one would push the last columns off the page."""
ENDS_PX = 200
"""The width in pixels of "about 2026-11-23 06:22 UTC". Most cells are empty, so the column would be too narrow."""


def show_counts(url: str) -> None:
    by_state = reads.job_counts(url).groupby("state")["jobs"].sum()
    with st.container(horizontal=True, gap="large"):
        for state in STATES:
            st.metric(state, f"{int(by_state.get(state, 0)):,}", width="content")


def warn_of_queues_without_worker(queues: pd.DataFrame) -> None:
    """Shows one warning about all queues whose jobs no live worker takes."""
    lines = []
    for queue in queues[queues["workers"] == 0].to_dict("records"):
        jobs = queue["waiting"] + queue["queued"]
        if not jobs:
            continue
        waiting = "1 job waits" if jobs == 1 else f"{jobs:,} jobs wait"
        gpu_model, _, gpu = queue["queue"].removeprefix("gpu.").partition("@")
        what = (
            f"a worker with a GPU of model **{plain(gpu_model)}**" if queue["queue"].startswith("gpu.") else "a worker"
        )
        what = f"the worker of GPU **{plain(gpu)}**" if gpu else what
        lines.append(f"{waiting} in queue {plain_code(queue['queue'])} for {what}")
    if len(lines) == 1:
        st.warning(f"{lines[0]}, and no such worker was seen in the last minute.")
    elif lines:
        st.warning("\n- ".join(["Jobs wait for workers of which none was seen in the last minute:\n", *lines]))


def warn_of_ended(alarms: pd.DataFrame) -> None:
    """Shows a warning for each process that recently ended by itself, with the reason."""
    for row in alarms.to_dict("records"):
        if row["kind"] == "process_ended":
            st.warning(f"{plain(row['subject'])}, {moment(row['opened_at'])}: {plain(row['detail'])}")


def show_unfinished(url: str, jobs: pd.DataFrame, title: str, who: str | None) -> None:
    if jobs.empty:
        return
    st.subheader(title, anchor=False)
    rows = jobs.to_dict("records")
    now = dt.datetime.now(dt.UTC)
    table = pd.DataFrame(
        {
            "job": jobs["id"],
            "kind": jobs["kind"],
            "state": jobs["state"],
            "subject": jobs["subject"],
            "progress": [100 * row["done_steps"] / row["total_steps"] if row["total_steps"] else 0.0 for row in rows],
            "left": [left_text(row["done_steps"], row["total_steps"], row["started_at"], now) for row in rows],
            "owner": jobs["owner"].fillna(""),
            "attempt": jobs["attempt"],
            "since": [_at(row["started_at"] if _is_set(row["started_at"]) else row["created_at"]) for row in rows],
            "trouble": jobs["trouble"].fillna(""),
        }
    )
    if title != "Running":
        table = table.drop(columns=["progress", "left", "owner"])
    if not jobs["trouble"].notna().any():
        table = table.drop(columns="trouble")
    percent = st.column_config.ProgressColumn(format="%.0f %%", min_value=0, max_value=100)
    picked = tables.pick_row(table, jobs, f"{title}-jobs", column_config={"progress": percent})
    if picked is not None:
        job_id = int(picked["id"])
        if isinstance(picked["log"], str):
            st.caption(f"The last lines of its log, a few seconds old at most, by {plain_code(picked['owner'])}")
            st.code(picked["log"], language=None)
        elif isinstance(picked["owner"], str):
            st.caption("Its log is here a few seconds after it began.")
        _offer(url, f"Cancel job {job_id}", f"cancel-{job_id}", actions.cancel, JobSelection(job_id, None), who)


def left_text(done: int, total: int, started_at: dt.datetime | None, now: dt.datetime) -> str:
    """Returns the remaining time in words; an empty text until the first step is done."""
    if not done or not total or not _is_set(started_at) or started_at is None:
        return ""
    return span_text((now - started_at).total_seconds() * (total - done) / done)


def show_failed(url: str, jobs: pd.DataFrame, who: str | None) -> None:
    if jobs.empty:
        return
    st.subheader("Failed", anchor=False)
    for job in jobs.to_dict("records"):
        with st.expander(plain(f"{job['subject']}: {job['failure']}"), key=f"failed-{job['id']}"):
            st.caption(f"{job['kind']} job {job['id']}, attempt {job['attempt']}, {_at(job['finished_at'])}")
            if job["trace"]:
                st.code(job["trace"], language=None)
            if job["log"]:
                st.caption("The last lines of its log")
                st.code(job["log"], language=None)
            elif not job["trace"]:
                st.caption(
                    "No log was kept: its worker stopped within seconds. The folder log of that worker's home has more."
                )
            if pd.isna(job["check_id"]):
                _offer(url, "Retry", f"retry-{job['id']}", actions.retry, JobSelection(int(job["id"]), None), who)
            else:
                st.caption(f"It is of check {job['check_id']:.0f}, which ended with it. Submit the check again.")


def show_submissions(url: str, newest: pd.DataFrame, workers: pd.DataFrame, who: str | None) -> None:
    """Shows a table of submissions, with buttons to cancel or retry the selected submission's jobs."""
    if newest.empty:
        return
    st.subheader("Submissions", anchor=False)
    now = dt.datetime.now(dt.UTC)
    table = pd.DataFrame(
        [
            {
                "submission": row["id"],
                "repository": row["repository"],
                "GPU": row["gpu_name"],
                "state": row["state"],
                "why": row["reason"],
                "commit": f"{short_sha(row['sha'])} {row['subject']}",
                "compiled": f"{row['settled_trials']:,} of {row['trials']:,}",
                "measured": f"{row['runs']:,} of {row['sweeps']:,}" if row["measure"] else "",
                "ends": ends_text(row, now, workers),
                "failed jobs": f"{row['failed_jobs']:,}" if row["failed_jobs"] else "",
                "submitted": moment(row["requested_at"]),
            }
            for row in newest.to_dict("records")
        ]
    )
    empty = [name for name in ("ends", "failed jobs") if not table[name].any()]
    table = table.drop(columns=[*empty, *(["repository"] if table["repository"].nunique() == 1 else [])])
    chosen = tables.pick_row(
        table.style.map(badges.word_colour, subset="state"),
        newest,
        "submissions",
        column_config={
            "ends": st.column_config.TextColumn(width=ENDS_PX),
            "commit": st.column_config.TextColumn(width=COMMIT_PX),
        },
    )
    if chosen is None:
        return
    own = JobSelection(None, int(chosen["id"]))
    with st.container(horizontal=True):
        canceller = who if chosen["open_jobs"] else None
        _offer(url, "Cancel the rest", "cancel-all", actions.cancel, own, canceller)
        retrier = who if chosen["failed_jobs"] or chosen["cancelled_jobs"] else None
        _offer(url, "Retry what failed or was cancelled", "retry-all", actions.retry, own, retrier)


Act = Callable[[Session, JobSelection, str], str]


def _offer(url: str, label: str, key: str, act: Act, jobs: JobSelection, who: str | None) -> None:
    """Shows a button that cancels or retries jobs. It is disabled if `who` is None."""
    if st.button(label, key=key, disabled=who is None) and who:
        run_action.run(url, lambda opened: act(opened, jobs, who))


def ends_text(row: Mapping[Any, Any], now: dt.datetime, workers: pd.DataFrame) -> str:
    """Returns in words when a submission's sweeps will all be done; empty if unknown."""
    done, total = (row["runs"], row["sweeps"]) if row["measure"] else (row["settled_trials"], row["trials"])
    queue = {"compiling": "compile", "measuring": f"gpu.{row['gpu_model']}"}.get(row["state"])
    taken = any(alive and queue in queues for alive, queues in zip(workers["alive"], workers["queues"], strict=True))
    if not 0 < done < total or not taken:
        return ""
    return f"about {moment(now + (now - row['requested_at']) * ((total - done) / done))}"


def show_queues(found: pd.DataFrame) -> None:
    st.subheader("Queues", anchor=False)
    if found.empty:
        st.caption("Every queue is empty.")
        return
    tables.show(found, key="queues")


def show_workers(workers: pd.DataFrame) -> None:
    st.subheader("Workers", anchor=False)
    if workers.empty:
        st.caption("No worker has started.")
        return
    table = pd.DataFrame(
        {
            "worker": workers["name"],
            "seen": [
                ("● " if up else "gone, ") + ago(s) for up, s in zip(workers["alive"], workers["silent_s"], strict=True)
            ],
            "doing": workers["doing"].fillna(""),
            "GPU": workers["gpu_model"].fillna(""),
        }
    )
    tables.show(table, key="workers")


def show_environments(environments: pd.DataFrame) -> None:
    """Shows a table of the Python environments that workers found for each repository."""
    if not environments.empty:
        st.subheader("Environments of host code", anchor=False)
        heads = {"host": "node", "environment": "recorded there by"}
        tables.show(environments.rename(columns=heads), key="environments")


def _is_set(at: dt.datetime | None) -> bool:
    return at is not None and not pd.isna(at)


def _at(at: dt.datetime | None) -> str:
    return moment(at) if at is not None and _is_set(at) else ""
