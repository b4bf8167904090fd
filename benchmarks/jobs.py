"""Measures the queue under chaos (killed workers and servers), and the time that a job takes besides its own work.

    python -m benchmarks.jobs chaos [--seed 1] [--jobs 300] [--kill-every 2] [--report-only]
    python -m benchmarks.jobs overhead [--jobs 20] [--report-only]

Servers, Celery workers and the compiler are real; only the GPU is simulated (worker/gpu/simulated.py).

`chaos` runs a nightly of many sweeps with 50 trials each while alarms are opened. Meanwhile it kills one of four
workers at random every few seconds, stops one for longer than a lease, empties Redis once, and restarts Redis and
Postgres twice. Then it counts what is lost, doubled or stuck. It also counts what was really done to the fleet: a run
without a kill, a stop, a restart or a flush proves nothing and misses its bounds. tests/end_to_end/test_chaos.py plants
faults that it must notice (benchmarks/chaos_app.py).

`overhead` submits one sweep after the other to workers that are not disturbed. It takes the time from submit to
verdict, less that of the run itself."""

import argparse
import contextlib
import datetime as dt
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil
import redis
from sqlalchemy import func, select, update
from sqlalchemy.exc import OperationalError

from benchmarks import bounds, chaos_app
from benchmarks.bounds import Figure
from tilewatch.db import migrate
from tilewatch.db.lifecycle import repositories
from tilewatch.db.lifecycle.jobs import MAX_ATTEMPTS
from tilewatch.db.models import Alarm, Job, Message, Run, Submission, Sweep, Trial, Verdict
from tilewatch.db.server.embedded import Embedded, Servers
from tilewatch.db.server.free_ports import find_free_ports
from tilewatch.db.session import engine, session
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.queue.lease import LEASE_S
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly, submit_sweep

ROOT = Path(__file__).resolve().parent.parent
TICK_S = 5.0
"""Seconds between two ticks of Celery beat. In operation it is a minute; here it is less, so that the run is not mostly
waiting."""

RESTARTS = 2
LEASES_STOPPED, MOST_LEASES_STOPPED = 1.5, 20.0
SETTLING_S = 0.3
"""Seconds in which Postgres does what a worker asked of it before it was stopped."""
MESSAGES_LIMIT_S = 60.0
LETTING_GO_LIMIT_S = 60.0
STUCK_LEASES = 12
"""Number of leases after which a fleet that measures nothing counts as stuck: its open jobs will never end."""
LET_GO = ("lost to another worker", "done, but lost meanwhile")
"""Texts that worker/run_job.py logs when a worker finds that its job has become another worker's."""
LIMIT_S = 1500.0
OPEN = ("waiting", "queued", "running")

LIBRARY = """
import cuda.tile as ct

from tilewatch.kernels.contract import Array, Kernel, Problem, Space


@ct.kernel
def shift(x, y, width: ct.Constant[int], step: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, index=(i,), tile=ct.load(x, index=(i,), shape=(width,)) + step)


def parse(text):
    return Problem(text, {"n": 1024})


KERNELS = (
    Kernel(
        name="shift",
        entry=shift,
        problems=tuple(parse(f"p{number:04}") for number in range(PROBLEMS)),
        parse=parse,
        space=lambda arch: Space((("width", (64, 128, 256, 512, 1024)), ("step", tuple(range(STEPS))))),
        arrays=lambda problem: (Array("x", (1024,), "float32"), Array("y", (1024,), "float32", output=True)),
        constants=lambda problem, config: (config["width"], config["step"]),
        grid=lambda problem, config, sm_count: (1024 // config["width"], 1, 1),
        reference=lambda inputs, xp: {"y": inputs["x"]},
        tolerance=lambda problem: 1e-6,
        flops=lambda problem: 1024,
        bytes=lambda problem: 8192,
        baselines=(),
    ),
)
"""


@dataclass(frozen=True)
class Stage:
    """Servers and a watched repository in a new folder."""

    own: Embedded
    servers: Servers
    settings: Settings
    logs: Path
    variables: Mapping[str, str]
    """Environment variables of the workers."""


@dataclass(frozen=True)
class Chaos:
    """The amount of work, and what is done to the fleet. The defaults are those of `make figures ONLY=jobs-chaos`."""

    sweeps: int = 300
    trials: int = 50
    """Number of trials per sweep, a multiple of five."""

    trial_s: float = 0.03
    """Simulated seconds of a trial. With 0.004 s all 300 jobs ended in 56 s, before the lease of the stopped worker
    ended and before a server was stopped (2026-11-28)."""

    workers: int = 4
    kill_every_s: float = 2.0
    busy_kills: int | None = None
    """Number of workers to kill, each while it has a job. With None, any worker is killed, until all jobs are done."""

    stops: int = 1
    """Number of workers to stop (SIGSTOP) while they have a job; they continue when its lease is over."""

    lease_s: float = LEASE_S
    alarms: int = 3
    faults: tuple[str, ...] = ()
    """Names of faults in chaos_app.FAULTS. They are planted into the workers and into this process."""

    limit_s: float = LIMIT_S
    waits: bool = True
    """If False, postponed jobs are due at once, and messages count as lost at once."""


@dataclass(frozen=True)
class Stopped:
    """A stopped worker, its job, and the time of the stop by time.monotonic()."""

    worker: str
    job_id: int
    at: float


@dataclass
class Harm:
    """Counts of the harm that took effect on the fleet, which may be less than what was ordered."""

    kills: int = 0
    restarts: int = 0
    stops: int = 0
    flushes: int = 0
    messages_lost: int = 0


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("chaos", "overhead"))
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--jobs", type=int)
    asked.add_argument("--kill-every", type=float, default=2.0, metavar="SECONDS")
    bounds.add_options(asked)
    options = asked.parse_args()
    if options.what == "chaos":
        figures = chaos(options.seed, Chaos(sweeps=options.jobs or Chaos.sweeps, kill_every_s=options.kill_every))
    else:
        figures = overhead(options.jobs or 20)
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def chaos(seed: int, wanted: Chaos) -> Iterator[Figure]:
    """Yields figures of the harm done to the fleet, and figures of what was lost, doubled or stuck."""
    sweeps, trials = wanted.sweeps, wanted.trials
    chance = random.Random(seed)  # noqa: S311 - a seed that repeats the chaos
    harm = Harm()
    with stage(sweeps, wanted.trial_s, trials, _variables(wanted)) as here:
        submit_nightly(here.settings, gpus=("sim",))
        with workers(here, {"compile@chaos": ("compile", "2")}):
            until(here, lambda: not count(here, Job, Job.kind == "compile", Job.state.in_(OPEN)))
        began = time.monotonic()
        with workers(here, {"tell@chaos": ("tell", "1")}):
            _break_fetches(here, wanted.alarms)
            _torment(here, chance, wanted, harm)
            told = _wait_for_messages(here, wanted.alarms)
        let_go = _count_let_go(here)
        took_s = time.monotonic() - began
        states, per_sweep, attempts = _states(here), _runs_per_sweep(here), _attempts(here)
        ended = count(here, Trial, Trial.status.not_in(("waiting", "compiled")))
        verdicts = count(here, Verdict)
    yield Figure(f"seed {seed}, {sweeps} jobs of {trials} trials on {wanted.workers} workers", f"{took_s:.0f} s")
    yield bounds.measure("workers killed", harm.kills, wanted=wanted.busy_kills or 1, cases=sweeps)
    yield bounds.measure("workers stopped past a lease", harm.stops, wanted=wanted.stops, cases=sweeps)
    yield bounds.measure("lost jobs let go of", let_go, wanted=harm.stops, cases=sweeps)
    yield bounds.measure("restarts of both servers", harm.restarts, cases=sweeps)
    yield bounds.measure("flushes of Redis", harm.flushes, cases=sweeps)
    yield Figure("keys in it when it was emptied", str(harm.messages_lost))
    again = sum((attempt - 1) * number for attempt, number in attempts.items() if attempt > 1)
    # A server that is away for as long as a short lease costs each worker its job.
    most = harm.kills + harm.stops + (wanted.workers * harm.restarts if wanted.lease_s < LEASE_S else 0)
    yield bounds.measure("jobs taken again", again, wanted=most, cases=sweeps)
    yield Figure("jobs by state", ", ".join(f"{number} {state}" for state, number in states.items()))
    yield bounds.measure("jobs that are not done", states.total() - states["done"], cases=sweeps)
    yield bounds.measure("trials on record", ended, wanted=sweeps * trials, cases=sweeps * trials)
    yield bounds.measure("sweeps without exactly one run", sum(runs != 1 for runs in per_sweep), cases=sweeps)
    yield bounds.measure("verdicts", verdicts, wanted=sweeps, cases=sweeps)
    yield bounds.measure("alarms with exactly one message", told.count(1), wanted=wanted.alarms, cases=sweeps)


def _torment(here: Stage, chance: random.Random, wanted: Chaos, harm: Harm) -> None:
    """Kills workers, restarts servers and empties Redis until every job has ended. Counts in `harm` what took
    effect."""
    names = [f"gpu{number}@chaos" for number in range(wanted.workers)]
    with contextlib.ExitStack() as stack:
        running = {name: start(here, name, "gpu.sim,judge", "1") for name in names}
        stack.callback(lambda: [end(process) for process in running.values()])
        tick = kill = worked = time.monotonic()
        deadline = tick + wanted.limit_s
        stopped: Stopped | None = None
        while time.monotonic() < min(deadline, worked + STUCK_LEASES * wanted.lease_s):
            now = time.monotonic()
            worked = now if _list_busy(here) else worked
            if stopped is not None and _may_go_on(here, stopped, wanted.lease_s):
                harm.stops += _signal(running[stopped.worker], signal.SIGCONT)
                _wait_for_letting_go(here, harm.stops)
                stopped = None
            elif stopped is None and harm.stops < wanted.stops and (busy := _list_busy(here)):
                job_id, worker = chance.choice(busy)
                stopped = _stop_at_work(here, running[worker], Stopped(worker, job_id, now))
            if (
                stopped is None
                and now - kill >= wanted.kill_every_s
                and not _has_last_attempts(here)
                and (victim := _choose(here, chance, names, wanted, harm))
            ):
                harm.kills += end(running[victim])
                running[victim] = start(here, victim, "gpu.sim,judge", "1")
                kill = now
            measured = count(here, Run)  # verdicts come only when the whole night is measured
            if stopped is not None or _has_last_attempts(here):
                pass
            elif harm.restarts < RESTARTS and measured >= wanted.sweeps * (harm.restarts + 1) // (RESTARTS + 2):
                harm.restarts += _restart(here, pause_s=chance.uniform(1.0, 4.0))
            elif not harm.flushes and measured >= wanted.sweeps // 2:
                harm.messages_lost = _empty_redis(here)
                harm.flushes += 1
            if now - tick >= (TICK_S if wanted.waits else 1.0):
                if not wanted.waits:
                    _end_waits(here)
                send_again(here)
                tick = now
            if stopped is None and not count(here, Job, Job.state.in_(OPEN)):
                return
            time.sleep(0.1)


def _choose(here: Stage, chance: random.Random, names: list[str], wanted: Chaos, harm: Harm) -> str | None:
    """Returns the name of the worker to kill now, or None to kill none."""
    if wanted.busy_kills is None:
        return chance.choice(names)
    if harm.kills == wanted.busy_kills:
        return None
    busy = _list_busy(here)
    return chance.choice(busy)[1] if busy else None


def _has_last_attempts(here: Stage) -> bool:
    """Returns True if a job is on its last attempt: more harm would end it as poisoned."""
    return count(here, Job, Job.state.in_(OPEN), Job.attempt >= MAX_ATTEMPTS) > 0


def _list_busy(here: Stage) -> list[tuple[int, str]]:
    """Returns the ids of the jobs that are being measured, each with the name of its worker. Leaves out those of killed
    processes: a worker of the same name that was started since has no such job to let go of (CI, 2026-11-29)."""
    with session(here.servers.database_url) as opened:
        held = opened.execute(select(Job.id, Job.owner).where(Job.kind == "measure", Job.state == "running")).all()
    owners = ((job_id, *owner.split("#")) for job_id, owner in held if owner)
    return sorted((job_id, worker) for job_id, worker, pid in owners if _is_alive(int(pid)))


def _is_alive(process_id: int) -> bool:
    try:
        return bool(psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _stop_at_work(here: Stage, process: subprocess.Popen[bytes], wanted: Stopped) -> Stopped | None:
    """Stops a worker, and returns `wanted` if the worker still has its job. Otherwise lets the worker continue and
    returns None: a job that ends meanwhile is never taken by another worker (CI, 2026-11-29). A transaction that the
    stopped worker has begun with its job keeps the job's row locked."""
    _signal(process, signal.SIGSTOP)
    time.sleep(SETTLING_S)
    with contextlib.suppress(OperationalError), session(here.servers.database_url) as opened:
        job = select(Job).where(Job.id == wanted.job_id).with_for_update(nowait=True)
        if _is_owned_by(opened.scalars(job).one(), wanted.worker):
            return wanted
    _signal(process, signal.SIGCONT)
    return None


def _is_owned_by(job: Job, worker: str) -> bool:
    return job.state == "running" and (job.owner or "").startswith(f"{worker}#")


def _may_go_on(here: Stage, stopped: Stopped, lease_s: float) -> bool:
    """Returns True if the lease of the stopped worker's job is long over, and the job is another worker's or no
    worker's."""
    stopped_s = time.monotonic() - stopped.at
    if stopped_s < LEASES_STOPPED * lease_s:
        return False
    with session(here.servers.database_url) as opened:
        job = opened.scalars(select(Job).where(Job.id == stopped.job_id)).one()
    is_taken = job.state == "running" and not _is_owned_by(job, stopped.worker)
    return is_taken or job.state not in OPEN or stopped_s > MOST_LEASES_STOPPED * lease_s


def _signal(process: subprocess.Popen[bytes], kind: signal.Signals) -> bool:
    """Sends a signal to a process. Returns False if the process had already ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, kind)
    return process.poll() is None


def _wait_for_letting_go(here: Stage, stops: int) -> None:
    """Waits until each stopped worker has logged that its job is another worker's, or until a time limit.

    The caller does no other harm meanwhile. On 2026-11-28 Postgres was stopped at that moment in CI: the worker
    postponed its job and logged nothing."""
    deadline = time.monotonic() + LETTING_GO_LIMIT_S
    while _count_let_go(here) < stops and time.monotonic() < deadline:
        time.sleep(0.1)


def _count_let_go(here: Stage) -> int:
    """Returns how often a worker logged that its job had become another worker's."""
    logs = "".join(each.read_text(errors="replace") for each in here.logs.glob("gpu*.log"))
    return sum(logs.count(words) for words in LET_GO)


def _variables(wanted: Chaos) -> dict[str, str]:
    """Returns the environment variables that benchmarks/chaos_app.py reads. This process sends jobs again too, so the
    same faults are planted into it."""
    chaos_app.plant(wanted.faults)
    return {
        **({chaos_app.LEASE: str(wanted.lease_s)} if wanted.lease_s != LEASE_S else {}),
        **({chaos_app.FAULT: ",".join(wanted.faults)} if wanted.faults else {}),
    }


def _break_fetches(here: Stage, number: int) -> None:
    """Adds repositories that cannot be fetched. Each of them causes an alarm, and the alarm a message."""
    with session(here.servers.database_url) as opened:
        for each in range(number):
            repositories.add(opened, f"broken{each}", f"https://example.org/broken{each}", "main")
            repositories.write_fetch_failure(opened, f"broken{each}", "no answer")


def _wait_for_messages(here: Stage, number: int) -> list[int]:
    """Updates alarms as Celery beat does. Returns the number of messages of each alarm about a fetch. An alarm and its
    messages are written in one transaction."""
    of_alarms = select(func.count(Message.id)).select_from(Alarm).outerjoin(Message, Message.alarm_id == Alarm.id)
    query = of_alarms.where(Alarm.kind == "fetch_failed").group_by(Alarm.id)
    found: list[int] = []
    deadline = time.monotonic() + MESSAGES_LIMIT_S
    while len(found) < number and time.monotonic() < deadline:
        dispatch.sender(here.servers.broker_url).send_task("worker.watch", queue=dispatch.NOTIFY_QUEUE)
        time.sleep(1.0)
        with session(here.servers.database_url) as opened:
            found = list(opened.scalars(query))
    return found


def _end_waits(here: Stage) -> None:
    """Ends the wait of postponed jobs, and of jobs whose message may be lost, as a minute of waiting would."""
    with contextlib.suppress(OperationalError), session(here.servers.database_url) as opened:
        long_ago = func.now() - dt.timedelta(seconds=2 * dispatch.RESEND_AFTER_S)
        opened.execute(update(Job).where(Job.state == "queued").values(not_before=None, sent_at=long_ago))


def _restart(here: Stage, pause_s: float) -> bool:
    """Stops both servers and starts them again. Returns True if Postgres is a new process."""
    before = _started_at(here)
    here.own.stop()
    time.sleep(pause_s)
    here.own.start()
    return _started_at(here) > before


def _started_at(here: Stage) -> dt.datetime:
    with session(here.servers.database_url) as opened:
        started_at: dt.datetime = opened.execute(select(func.pg_postmaster_start_time())).scalar_one()
        return started_at


def _empty_redis(here: Stage) -> int:
    """Empties Redis. Returns the number of keys that were removed."""
    with redis.Redis.from_url(here.servers.broker_url) as client:
        keys = int(client.dbsize())
        client.flushall()
        return keys


def overhead(sweeps: int) -> Iterator[Figure]:
    with (
        stage(sweeps, trial_s=0.0) as here,
        workers(here, {"compile@calm": ("compile", "1"), "gpu0@calm": ("gpu.sim", "1"), "judge@calm": ("judge", "1")}),
    ):
        outside_s = []
        for number in range(-2, sweeps):  # the first ones compile, and warm the processes
            submit_sweep(here.settings, "shift", f"p{max(number, 0):04}", gpus=("sim",))
            until(here, lambda: not count(here, Job, Job.state.in_(OPEN)))
            if number >= 0:
                outside_s.append(_outside_s(here))
    quartiles = statistics.quantiles(outside_s, n=4)
    what = f"submit to verdict, less the run: median of {sweeps}"
    yield bounds.measure(what, 1e3 * quartiles[1], cases=len(outside_s))
    yield Figure("its quartiles", f"{1e3 * quartiles[0]:.0f} and {1e3 * quartiles[2]:.0f} ms")


def _outside_s(here: Stage) -> float:
    """Returns the seconds of the newest submission from its row to its verdict, without the time of its run."""
    with session(here.servers.database_url) as opened:
        row = opened.execute(
            select(Submission.requested_at, Run.started_at, Run.finished_at, Verdict.judged_at)
            .join(Sweep, Sweep.submission_id == Submission.id)
            .join(Run, Run.sweep_id == Sweep.id)
            .join(Verdict, Verdict.run_id == Run.id)
            .order_by(Submission.id.desc())
            .limit(1)
        ).one()
    inside: dt.timedelta = row.finished_at - row.started_at
    outside: dt.timedelta = row.judged_at - row.requested_at - inside
    return outside.total_seconds()


@contextlib.contextmanager
def stage(
    problems: int, trial_s: float, trials: int = Chaos.trials, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="tilewatch-jobs-"))
    folder.chmod(0o755)  # started by root, the servers run as nobody
    postgres_port, broker_port = find_free_ports(2)
    own = Embedded(folder / "servers", postgres_port=postgres_port, broker_port=broker_port)
    try:
        with own as servers:
            migrate.upgrade(servers.database_url)
            yield Stage(
                own,
                servers,
                Settings(
                    home=folder / "home",
                    database_url=servers.database_url,
                    broker_url=servers.broker_url,
                    repository=_watched(folder / "watched", problems, trials),
                    library="library",
                    sim_trial_s=trial_s,
                ),
                folder,
                variables,
            )
            engine(servers.database_url).dispose()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watched(folder: Path, problems: int, trials: int) -> Path:
    (folder / "library").mkdir(parents=True)
    source = LIBRARY.replace("PROBLEMS", str(problems)).replace("STEPS", str(trials // 5))
    (folder / "library" / "shift.py").write_text(source)
    who = ("-c", "user.name=Benchmark", "-c", "user.email=benchmark@example.org", "-c", "commit.gpgsign=false")
    for step in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Shift numbers")):
        subprocess.run(("git", *who, *step), cwd=folder, check=True)
    return folder


@contextlib.contextmanager
def workers(here: Stage, wanted: dict[str, tuple[str, str]]) -> Iterator[None]:
    running = [start(here, name, queues, processes) for name, (queues, processes) in wanted.items()]
    try:
        yield
    finally:
        for process in running:
            end(process)


def start(here: Stage, name: str, queues: str, processes: str) -> subprocess.Popen[bytes]:
    variables = {
        "TILEWATCH_HOME": str(here.settings.home),
        "TILEWATCH_DATABASE_URL": here.servers.database_url,
        "TILEWATCH_BROKER_URL": here.servers.broker_url,
        "TILEWATCH_REPOSITORY": str(here.settings.repository),
        "TILEWATCH_LIBRARY": here.settings.library,
        "TILEWATCH_SIM_TRIAL_S": str(here.settings.sim_trial_s),
        **here.variables,
    }
    calm = ("--without-mingle", "--without-gossip", "--loglevel", "INFO")
    command = (sys.executable, "-m", "celery", "-A", "benchmarks.chaos_app", "worker", *calm)
    with (here.logs / f"{name}.log").open("ab") as out:
        return subprocess.Popen(
            [*command, "-Q", queues, "-n", name, "-c", processes],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> bool:
    """Kills the whole process group at once, like a lost machine. Returns False if the process had ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def send_again(here: Stage) -> None:
    """Sends open jobs again, as the tick of Celery beat does. If a server is down, the next tick tries again."""
    with contextlib.suppress(OperationalError, BrokerUnreachable, redis.RedisError):
        lost = reconcile(here.servers.database_url, here.servers.broker_url)
        dispatch.send(dispatch.sender(here.servers.broker_url), here.servers.database_url, lost)


def until(here: Stage, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"not done in {LIMIT_S:.0f} s; jobs by state: {dict(_states(here))}")
        time.sleep(0.02)


def count(here: Stage, table: type, *which: object) -> int:
    with session(here.servers.database_url) as opened:
        return opened.execute(select(func.count()).select_from(table).where(*which)).scalar_one()  # type: ignore[arg-type]


def _states(here: Stage) -> Counter[str]:
    with session(here.servers.database_url) as opened:
        return Counter(opened.scalars(select(Job.state)))


def _attempts(here: Stage) -> Counter[int]:
    with session(here.servers.database_url) as opened:
        return Counter(opened.scalars(select(Job.attempt)))


def _runs_per_sweep(here: Stage) -> list[int]:
    with session(here.servers.database_url) as opened:
        query = select(func.count(Run.id)).select_from(Sweep).outerjoin(Run, Run.sweep_id == Sweep.id)
        return list(opened.scalars(query.group_by(Sweep.id)))


if __name__ == "__main__":
    main()
