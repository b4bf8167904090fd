"""Shows the queue and the health of the GPUs, with buttons to submit, cancel and retry."""

import streamlit as st

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.panels import gpu_health, queue, run_action, submit_form
from tilewatch.dashboard.widgets import page_head
from tilewatch.dashboard.widgets.errors import show_errors

SUBMISSIONS = 20

ABOUT = (
    "What runs, what waits and for which worker, what failed and why, and whether the GPUs are healthy. It "
    "updates by itself."
)


def page(url: str) -> None:
    page_head.show("Jobs & workers", ABOUT)
    if _has_nothing(url):
        st.info("There is no job, and no worker has started.")
        st.code("make up  # starts workers and submits the first nightly\ntilewatch submit nightly", wrap_lines=True)
    run_action.show_outcome()
    show_state(url)
    gpu_health.show_health(url)
    who = run_action.find_actor()
    if who is not None:
        submit_form.show_form(url, who)
    show_queue(url, who)
    with show_errors():
        gpu_health.show_gpu_time(url)


@st.fragment(run_every=reads.LIVE_EVERY_S)
def show_state(url: str) -> None:
    """Shows the numbers of jobs by state, and warnings. Updates itself."""
    with show_errors():
        if _has_nothing(url):
            return
        queue.show_counts(url)
        queue.warn_of_queues_without_worker(reads.queues(url))
        gpu_health.show_quarantined(reads.quarantines(url))
        queue.warn_of_ended(reads.alarms(url))


@st.fragment(run_every=reads.LIVE_EVERY_S)
def show_queue(url: str, who: str | None) -> None:
    """Shows the jobs, submissions and workers. Updates itself and keeps selections."""
    with show_errors():
        if _has_nothing(url):
            return
        queue.show_unfinished(url, reads.jobs(url, ("running",)), "Running", who)
        queue.show_failed(url, reads.jobs(url, ("failed", "poison")), who)
        queue.show_unfinished(url, reads.next_jobs(url), "Next", who)
        queue.show_submissions(url, reads.submissions(url, SUBMISSIONS), reads.workers(url), who)
        left, right = st.columns(2, gap="medium")
        with left:
            queue.show_queues(reads.queues(url))
        with right:
            queue.show_workers(reads.workers(url))
            queue.show_environments(reads.environments(url))
        submit_form.show_actions(url)


def _has_nothing(url: str) -> bool:
    """Returns whether there are no jobs and no worker has started."""
    return bool(reads.job_counts(url).empty and reads.workers(url).empty)


page(reads.database_url())
