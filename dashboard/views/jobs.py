"""What the queue does now, how the GPUs are, and how to step in: submit, cancel, retry, backfill."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import gpu_health, queue, run_action, submit_form
from tilewatch.dashboard.widgets.errors import told

SUBMISSIONS = 20


def page(url: str) -> None:
    st.title("Jobs & workers", anchor=False)
    if reads.job_counts(url).empty and reads.workers(url).empty:
        st.info("No job was submitted and no worker has said that it is here.")
        st.code("make up                    # starts workers and submits the first nightly\ntilewatch submit nightly")
    run_action.say_what_was_done()
    who = run_action.actor()
    if who is not None:
        submit_form.form(url, who)
    now(url, who)
    gpu_health.health(url)


@st.fragment(run_every=reads.LIVE_EVERY_S)
def now(url: str, who: str | None) -> None:
    """The live part: asks again by itself and leaves selections and open traces alone."""
    with told():
        if reads.job_counts(url).empty and reads.workers(url).empty:
            return
        queue.counts(url)
        queue.unserved(reads.queues(url))
        gpu_health.ill(reads.quarantines(url))
        queue.unfinished(url, reads.jobs(url, "running"), "Running", who)
        queue.failed(url, reads.jobs(url, "failed", "poison"), who)
        queue.unfinished(url, reads.jobs(url, "queued", "waiting"), "Next", who)
        queue.submissions(url, reads.submissions(url, SUBMISSIONS), who)
        left, right = st.columns(2, gap="medium")
        with left:
            queue.queues(reads.queues(url))
        with right:
            queue.workers(reads.workers(url))
        submit_form.asked(url)


page(reads.database_url())
