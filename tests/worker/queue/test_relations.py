"""Times that must hold a relation to another: each alone may change."""

from tilewatch.db.lifecycle.jobs import RENEWAL_S
from tilewatch.db.lifecycle.messages import MOST_ATTEMPTS
from tilewatch.db.lifecycle.waiting import FIRST_WAIT_S
from tilewatch.db.lifecycle.waiting import LONGEST_WAIT_S as LONGEST_PUT_OFF_S
from tilewatch.db.query_parts import WORKER_ALIVE_S
from tilewatch.worker.process.health_checks import SILENT_S, STUCK_S
from tilewatch.worker.process.heartbeat import HEARTBEAT_S
from tilewatch.worker.process.progress import END_S, STILL_S
from tilewatch.worker.queue.dispatch import RESEND_AFTER_S
from tilewatch.worker.queue.lease import LEASE_S, RENEW_S
from tilewatch.worker.queue.outage import LONGEST_WAIT_S


def test_a_lease_outlives_several_renewals_that_fail() -> None:
    """Postgres may be restarted meanwhile, which takes up to half of it."""
    assert 3 * RENEW_S < LEASE_S / 2
    assert LONGEST_WAIT_S < LEASE_S


def test_who_waits_for_postgres_renews_its_lease_before_it_is_another_s() -> None:
    assert RENEW_S + LONGEST_WAIT_S < RENEWAL_S <= LEASE_S


def test_an_outage_of_a_day_uses_up_no_retry() -> None:
    """Jobs are put off without end."""
    waits_s = [min(FIRST_WAIT_S * 2**number, LONGEST_PUT_OFF_S) for number in range(MOST_ATTEMPTS - 1)]
    assert sum(waits_s) > 24 * 3600


def test_a_worker_that_misses_a_heartbeat_is_alive() -> None:
    assert 3 * HEARTBEAT_S <= min(WORKER_ALIVE_S, SILENT_S) < STUCK_S


def test_a_process_is_a_trouble_before_it_is_ended() -> None:
    assert 3 * HEARTBEAT_S <= STILL_S < END_S


def test_a_message_is_not_sent_again_while_its_job_is_held() -> None:
    assert LEASE_S < RESEND_AFTER_S
