"""Measures queue, leases and heartbeats with a thousand workers, half of them with a GPU of their own.

    python -m benchmarks.scale [--workers 1000] [--gpus 500] [--work-s 30] [--steady-s 90] [--pgbouncer PROGRAM]
        [--report-only]

Postgres with fsync and Valkey are real; all traffic is on the loopback device. Here a worker is threads of a few
processes instead of a process of its own. It takes real messages, runs `run_job` with its lease, writes its heartbeat
and looks after its simulated GPU, with as many connections as two processes have. Only the step of a job is simulated:
it waits.

In the first part jobs come as fast as four fifths of the workers can take them, while the queue is full of other jobs.
In the second part, the rush, many jobs that take no time come at once. With --pgbouncer the workers reach Postgres
through it."""

import argparse
import contextlib
import itertools
import logging
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis
import structlog
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.pgbouncer import open_pool
from tilewatch.db import migrate
from tilewatch.db.lifecycle import jobs
from tilewatch.db.lifecycle.jobs import UnsentJob
from tilewatch.db.server import embedded
from tilewatch.db.server.embedded import Embedded, Servers
from tilewatch.db.session import session
from tilewatch.worker import run_job
from tilewatch.worker.context import Context, Simulation
from tilewatch.worker.gpu.quarantine import GpuWatch
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.process.heartbeat import HEARTBEAT_S, Heartbeat
from tilewatch.worker.process.identity import Identity
from tilewatch.worker.queue import dispatch, task_message
from tilewatch.worker.queue.lease import LEASE_S
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.settings import Settings

PROCESSES = max(4, (os.cpu_count() or 1) // 2)
"""Number of processes that hold the simulated workers. The other half of the cores is for the servers."""

RUSH = 2
"""Number of jobs per worker in the rush."""

LOAD = 0.8
SILENT_S = 4 * HEARTBEAT_S
LIMIT_S = 900.0

CLAIM = jobs.claim
"""The function that claims a job. A worker's first claim is not timed: it opens the connection, and SQLAlchemy compiles
each statement once per process."""

CONNECTIONS = text("select count(*) from pg_stat_activity where datname = current_database()")
STATES = text("select state, count(*), max(attempt) from jobs group by state")
SILENT = text("select count(*) from workers where seen_at < clock_timestamp() - make_interval(secs => :silent_s)")


@dataclass(frozen=True)
class Fleet:
    workers: int
    gpus: int
    work_s: float
    steady_s: float


@dataclass(frozen=True)
class Stage:
    servers: Servers
    workers_url: str
    context: Context
    fleet: Fleet


@dataclass
class Times:
    """Seconds of each claim, of each renewal, and of each job without its own work. Also counts how often a job could
    not reach Postgres."""

    claims_s: list[float]
    renewals_s: list[float]
    outside_s: list[float]
    unreached: list[int]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--workers", type=int, default=1000)
    asked.add_argument("--gpus", type=int, default=500)
    asked.add_argument("--work-s", type=float, default=30.0)
    asked.add_argument("--steady-s", type=float, default=90.0)
    asked.add_argument("--pgbouncer", help="the program; 1.21 or newer")
    bounds.add_options(asked)
    options = asked.parse_args()
    fleet = Fleet(options.workers, options.gpus, options.work_s, options.steady_s)
    sys.exit(bounds.report(measure(fleet, options.pgbouncer), report_only=options.report_only, write=options.write))


def measure(fleet: Fleet, pgbouncer: str | None) -> Iterator[Figure]:
    embedded.POSTGRES_SETTINGS["max_connections"] = str(50 + 4 * fleet.workers)  # the bound is asked afterwards
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with stage(fleet, pgbouncer) as here, started(here) as gather, sampled(here) as connections:
        began = time.monotonic()
        until(here, lambda: count_workers(here) == fleet.workers, "workers with a heartbeat")
        yield Figure("workers, those with a GPU", f"{fleet.workers}, {fleet.gpus}")
        yield Figure("all of them have written a heartbeat after", f"{time.monotonic() - began:.0f} s")
        yield Figure("connections to Postgres while nothing is queued, the most", str(max(connections)))
        yield from steady(here)
        rush_s = rush(here)
        times = gather()
        yield from figures(here, times, connections)
        number = RUSH * fleet.workers
        yield Figure(f"{number} jobs at once that take no time", f"{number / rush_s:.0f} jobs a second")


def steady(here: Stage) -> Iterator[Figure]:
    """Sends messages at an even pace and yields the figures of that part. In the middle of it the queries of the
    clock's tick are timed."""
    fleet = here.fleet
    rate = LOAD * fleet.workers / fleet.work_s
    queued = add_jobs(here, "steady", int(rate * fleet.steady_s), fleet.work_s)
    sender = dispatch.sender(here.servers.broker_url)
    began = time.monotonic()
    reconciled_ms = []
    for number, job in enumerate(queued):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        dispatch.send(sender, here.servers.database_url, [job])
        if number in (len(queued) // 3, 2 * len(queued) // 3):
            asked = time.perf_counter()
            reconcile(here.servers.database_url, here.servers.broker_url)
            reconciled_ms.append(1e3 * (time.perf_counter() - asked))
    late_s = time.monotonic() - began - fleet.steady_s
    with session(here.servers.database_url) as opened:
        silent = opened.execute(SILENT, {"silent_s": SILENT_S}).scalar_one()
    yield Figure(
        f"{len(queued)} jobs of {fleet.work_s:g} s on average, sent at {rate:.0f} a second: sent late by",
        f"{late_s:.1f} s",
    )
    yield Figure("the reconciler's tick meanwhile, the slowest", f"{max(reconciled_ms):.0f} ms")
    yield bounds.measure(f"workers without a heartbeat for {SILENT_S} s", silent, cases=fleet.workers)
    until(here, lambda: not count_open(here), "jobs that are not done")


def rush(here: Stage) -> float:
    """Returns the seconds from the first message to the end of the last job."""
    queued = add_jobs(here, "rush", RUSH * here.fleet.workers, 0.0)
    began = time.monotonic()
    dispatch.send(dispatch.sender(here.servers.broker_url), here.servers.database_url, queued)
    until(here, lambda: not count_open(here), "jobs that are not done")
    return time.monotonic() - began


def figures(here: Stage, times: Times, connections: Sequence[int]) -> Iterator[Figure]:
    """Yields the figures of the steady part. The rush has no bounds."""
    with session(here.servers.database_url) as opened:
        states = opened.execute(STATES).all()
    yield bounds.measure(
        "states of all jobs",
        ", ".join(sorted(state for state, _, _ in states)),
        wanted="done",
        cases=len(times.outside_s),
    )
    yield bounds.measure("attempts of a job, the most", max(most for _, _, most in states), cases=len(times.outside_s))
    yield bounds.measure(
        "times that a worker did not reach Postgres for a job", len(times.unreached), cases=len(times.outside_s)
    )
    yield bounds.measure("a claim, p95", 1e3 * p95(times.claims_s), cases=len(times.claims_s))
    yield bounds.measure("a job without its own work, p95", 1e3 * p95(times.outside_s), cases=len(times.outside_s))
    yield Figure(f"{len(times.renewals_s)} renewals of leases: p95", f"{1e3 * p95(times.renewals_s):.0f} ms")
    yield bounds.measure("connections to Postgres, the most", max(connections), cases=here.fleet.workers)


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def add_jobs(here: Stage, name: str, number: int, work_s: float) -> list[UnsentJob]:
    """Adds `number` jobs to the queues of the workers, in turn, and returns them. Each job takes between half and one
    and a half times `work_s`."""
    chance = random.Random(1)  # noqa: S311 - made-up work
    queues = itertools.cycle(sorted(queue_of(here.fleet, worker) for worker in range(here.fleet.workers)))
    added = []
    with session(here.servers.database_url) as opened:
        for each, queue in zip(range(number), queues, strict=False):
            payload = {"work_s": work_s * chance.uniform(0.5, 1.5)}
            key = f"{name} {each}"
            job_id, _ = jobs.add(opened, key=key, kind="judge", queue=queue, subject="wait", payload=payload)
            added.append(UnsentJob(job_id, queue))
        # Marked as sent, so that the reconciler does not send messages that this program will send.
        opened.execute(text("update jobs set sent_at = clock_timestamp() + interval '1 hour' where sent_at is null"))
    chance.shuffle(added)
    return added


def queue_of(fleet: Fleet, worker: int) -> str:
    return "gpu.sim" if worker < fleet.gpus else "compile"


def count_workers(here: Stage) -> int:
    with session(here.servers.database_url) as opened:
        return int(opened.execute(text("select count(*) from workers")).scalar_one())


def count_open(here: Stage) -> int:
    with session(here.servers.database_url) as opened:
        return int(opened.execute(text("select count(*) from jobs where state <> 'done'")).scalar_one())


def until(here: Stage, done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not as expected after {LIMIT_S:.0f} s, {count_workers(here)} workers")
        time.sleep(0.2)


@contextlib.contextmanager
def stage(fleet: Fleet, pgbouncer: str | None) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="tilewatch-scale-"))
    folder.chmod(0o755)  # started by root, the servers run as nobody
    try:
        with Embedded(folder / "servers") as servers:
            migrate.upgrade(servers.database_url)
            settings = Settings(home=folder / "home", database_url=servers.database_url, broker_url=servers.broker_url)
            context, url = Context.of(settings), servers.database_url
            with open_pool(pgbouncer, url, folder / "pool") if pgbouncer else contextlib.nullcontext(url) as pooled_url:
                yield Stage(servers, pooled_url, context, fleet)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def sampled(here: Stage) -> Iterator[list[int]]:
    """Yields a list that gets the number of database connections four times a second, our own included."""
    found: list[int] = [0]
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.25):
            with session(here.servers.database_url) as opened:
                found.append(int(opened.execute(CONNECTIONS).scalar_one()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def started(here: Stage) -> Iterator[Callable[[], Times]]:
    """Starts the workers. Yields a function that ends them and returns their times."""
    forked = multiprocessing.get_context("fork")
    over, answers = forked.Event(), forked.Queue()
    parts = [range(number, here.fleet.workers, PROCESSES) for number in range(PROCESSES)]
    processes = [forked.Process(target=work, args=(here, part, over, answers), daemon=True) for part in parts]
    for process in processes:
        process.start()

    def gather() -> Times:
        over.set()
        gathered = [answers.get(timeout=LIMIT_S) for _ in processes]
        return Times(*(list(itertools.chain(*part)) for part in zip(*gathered, strict=True)))

    try:
        yield gather
    finally:
        over.set()
        for process in processes:
            process.join(timeout=60)
            if process.is_alive():
                process.kill()


def work(here: Stage, part: Sequence[int], over: Any, answers: Any) -> None:
    """Runs the workers of one process until `over` is set."""
    times = Times([], [], [], [])
    jobs.claim = timed(jobs.claim, times.claims_s)
    jobs.renew = timed(jobs.renew, times.renewals_s)
    run_job._step_of = lambda _: wait
    threads = []
    for number in part:
        # One after another: many that connect at once to a busy server exceed its time limit for connecting, wait for
        # their next heartbeat, and then all connect at once again.
        beaten = threading.Event()
        threads.append(threading.Thread(target=live, args=(here, number, over, times, beaten), daemon=True))
        threads[-1].start()
        beaten.wait(4 * HEARTBEAT_S)
        time.sleep(HEARTBEAT_S / len(part))  # otherwise all would beat in the same moment
    for thread in threads:
        thread.join()
    answers.put((times.claims_s, times.renewals_s, times.outside_s, times.unreached))


def live(here: Stage, number: int, over: Any, times: Times, beaten: threading.Event) -> None:
    """Runs one worker until `over` is set. It has two simulated processes: the one that does jobs, and its parent. Each
    has its own database connections, because each has its own name in its database URL."""
    url, url_of_jobs = (f"{here.workers_url}?application_name={name}{number}" for name in ("worker", "jobs"))
    context = replace(here.context, database_url=url_of_jobs, simulation=Simulation(number, 0.0, node=f"node{number}"))
    backend, queue = SimulatedGpu(context.simulation), queue_of(here.fleet, number)
    kind, gpu = ("gpu", backend.own_gpu()) if queue == "gpu.sim" else ("compile", None)
    who = Identity(f"{kind}@node{number}", kind, f"node{number}", {"harness": "1"}, gpu, (queue,))
    with session(url_of_jobs) as opened:
        CLAIM(opened, 0, who.owner(), LEASE_S, who.queues)
    heartbeat = Heartbeat(url, who, beaten.set, refuses=lambda: migrate.require_head(url))
    heartbeat.start()
    if gpu is not None:
        GpuWatch(url, gpu, who.host, backend.probe(gpu), lambda _: None, 600.0).start()
    with redis.Redis.from_url(here.servers.broker_url) as client:
        while not over.is_set():
            popped = client.brpop([queue], timeout=3)
            if popped is None:
                continue
            job_id = task_message.read(popped[1]).job_id
            assert job_id is not None
            began = time.monotonic()
            _slept.seconds = 0.0
            try:
                run_job.run(job_id, who.owner(), context, who.queues)
            except OperationalError:  # a worker drops the message, and the reconciler sends another after a minute
                times.unreached.append(job_id)
                client.lpush(queue, popped[1])
            if _slept.seconds:
                times.outside_s.append(time.monotonic() - began - _slept.seconds)


_slept = threading.local()


def wait(job: jobs.ClaimedJob, _context: Context, _lease: Any) -> list[UnsentJob]:
    """Takes the place of a job's step: it only waits, and needs no server."""
    _slept.seconds = job.payload["work_s"]
    time.sleep(_slept.seconds)
    return []


def timed(act: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Returns `act` as a function that adds the time of each call to `seconds`, except for claims of the rush."""

    def timing(*arguments: Any, **named: Any) -> Any:
        began = time.monotonic()
        done = act(*arguments, **named)
        if not isinstance(done, jobs.ClaimedJob) or done.payload["work_s"]:
            seconds.append(time.monotonic() - began)
        return done

    return timing


if __name__ == "__main__":
    main()
