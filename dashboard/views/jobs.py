"""What the queue does now, how the GPUs are, and how to step in: submit, cancel, retry, backfill."""

import streamlit as st

from dashboard import data
from dashboard.panels import acting, asking, gpus, queue
from dashboard.trouble import told

SUBMISSIONS = 20


def page(url: str) -> None:
    st.title("Jobs & workers", anchor=False)
    if data.job_counts(url).empty and data.workers(url).empty:
        st.info("No job was submitted and no worker has said that it is here.")
        st.code("make up                    # starts workers and submits the first nightly\ntilewatch submit nightly")
    acting.say_what_was_done()
    who = acting.actor()
    if who is not None:
        asking.form(url, who)
    now(url, who)
    gpus.health(url)


@st.fragment(run_every=data.LIVE_EVERY_S)
def now(url: str, who: str | None) -> None:
    """The live part: asks again by itself and leaves selections and open traces alone."""
    with told():
        if data.job_counts(url).empty and data.workers(url).empty:
            return
        queue.counts(url)
        queue.unserved(data.queues(url))
        gpus.ill(data.quarantines(url))
        queue.unfinished(url, data.jobs(url, "running"), "Running", who)
        queue.failed(url, data.jobs(url, "failed", "poison"), who)
        queue.unfinished(url, data.jobs(url, "queued", "waiting"), "Next", who)
        queue.submissions(url, data.submissions(url, SUBMISSIONS), who)
        left, right = st.columns(2, gap="medium")
        with left:
            queue.queues(data.queues(url))
        with right:
            queue.workers(data.workers(url))
        asking.asked(url)


page(data.database_url())
