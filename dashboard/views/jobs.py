"""What the queue does now: jobs, workers, and what waits for a worker that is not there."""

import datetime as dt

import pandas as pd
import streamlit as st

from dashboard import data
from dashboard.trouble import told
from dashboard.wording import ago, moment

STATES = ("running", "queued", "waiting", "failed", "poison", "done", "cancelled")


@st.fragment(run_every=data.LIVE_EVERY_S)
def page(url: str) -> None:
    with told():
        st.title("Jobs & workers", anchor=False)
        counts = data.job_counts(url)
        if counts.empty and data.workers(url).empty:
            st.info("No job was submitted and no worker has said that it is here.")
            st.code(
                "make up                    # starts workers and submits the first nightly\ntilewatch submit nightly"
            )
            return
        _counts(counts)
        _unserved(data.queues(url))
        _ill(data.quarantines(url))
        _unfinished(data.jobs(url, "running"), "Running")
        _failed(data.jobs(url, "failed", "poison"))
        _unfinished(data.jobs(url, "queued", "waiting"), "Next")
        left, right = st.columns(2, gap="medium")
        with left:
            _queues(data.queues(url))
        with right:
            _workers(data.workers(url))


def _counts(counts: pd.DataFrame) -> None:
    by_state = counts.groupby("state")["jobs"].sum()
    for column, state in zip(st.columns(len(STATES)), STATES, strict=True):
        column.metric(state, f"{int(by_state.get(state, 0)):,}")


def _unserved(queues: pd.DataFrame) -> None:
    for _, queue in queues[queues["workers"] == 0].iterrows():
        jobs = queue["waiting"] + queue["queued"]
        if not jobs:
            continue
        many = "1 job waits" if jobs == 1 else f"{jobs:,} jobs wait"
        gpu_model = queue["queue"].removeprefix("gpu.")
        what = f"a worker with a GPU of model **{gpu_model}**" if gpu_model != queue["queue"] else "a worker"
        st.warning(f"{many} in queue `{queue['queue']}` for {what}, and none has been seen for a minute.")


def _ill(quarantines: pd.DataFrame) -> None:
    for _, row in quarantines[quarantines["ended_at"].isna()].iterrows():
        canary = (
            "" if pd.isna(row["canary_at"]) else f" Its last canary, {_at(row['canary_at'])}: {row['canary_said']}."
        )
        st.error(
            f"GPU `{row['gpu_uuid']}` ({row['gpu_model']}) of {row['host']} takes no sweeps since "
            f"{_at(row['began_at'])}: {row['reason']}.{canary}"
        )


def _unfinished(jobs: pd.DataFrame, title: str) -> None:
    if jobs.empty:
        return
    st.subheader(title, anchor=False)
    table = pd.DataFrame(
        {
            "job": jobs["id"],
            "kind": jobs["kind"],
            "state": jobs["state"],
            "subject": jobs["subject"],
            "progress": [
                _percent(done, total) for done, total in zip(jobs["done_steps"], jobs["total_steps"], strict=True)
            ],
            "owner": jobs["owner"].fillna(""),
            "attempt": jobs["attempt"],
            "since": [_at(at) for at in jobs["started_at"].where(jobs["started_at"].notna(), jobs["created_at"])],
        }
    )
    if title != "Running":
        table = table.drop(columns=["progress", "owner"])
    st.dataframe(
        table,
        hide_index=True,
        key=title,
        column_config={"progress": st.column_config.ProgressColumn(format="%.0f %%", min_value=0, max_value=100)},
    )


def _percent(done: int, total: int) -> float:
    return 100 * done / total if total else 0.0


def _at(at: dt.datetime | None) -> str:
    return "" if at is None or pd.isna(at) else moment(at)


def _failed(jobs: pd.DataFrame) -> None:
    if jobs.empty:
        return
    st.subheader("Failed", anchor=False)
    for _, job in jobs.iterrows():
        with st.expander(f"{job['subject']}: {job['failure']}", key=f"failed-{job['id']}"):
            st.caption(f"{job['kind']} job {job['id']}, attempt {job['attempt']}, {_at(job['finished_at'])}")
            st.code(job["trace"] or "No trace was kept.", language=None)


def _queues(queues: pd.DataFrame) -> None:
    st.subheader("Queues", anchor=False)
    if queues.empty:
        st.caption("Every queue is empty.")
        return
    st.dataframe(queues, hide_index=True, key="queues")


def _workers(workers: pd.DataFrame) -> None:
    st.subheader("Workers", anchor=False)
    if workers.empty:
        st.caption("No worker has said that it is here.")
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
    st.dataframe(table, hide_index=True, key="workers")


page(data.database_url())
