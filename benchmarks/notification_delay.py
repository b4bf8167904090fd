"""Measures the delay from a confirmed regression to its message, and the time of one check for alarms.

    python -m benchmarks.notification_delay [--nights 60] [--regressions 20] [--report-only]

It uses real servers with fsync, a real Celery worker as `tilewatch up` starts it, and a web server in this process as
the message service. Each figure is printed with its bound. Three are measured: the time from the commit of the
transaction that opens a regression to the arrival of its message, with an empty and with a full queue of the judge; how
eight judges at once raise the regressions of a night; and the time of one look for alarms over a simulated fleet."""

import argparse
import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from statistics import median

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from benchmarks import bounds, fleet
from benchmarks.bounds import Figure
from tilewatch.db import migrate
from tilewatch.db.lifecycle.regression_causes import Cause, ChangedSeries, open_or_join
from tilewatch.db.models import Commit, Regression, RegressionSeries, Run, Sweep
from tilewatch.db.server.embedded import Embedded, Servers
from tilewatch.db.session import session
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.notify.outbox import Outbox
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.senders import Log
from tilewatch.worker.notify.update_alarms import update_alarms
from tilewatch.worker.process.http_server import SmallHandler, SmallServer
from tilewatch.worker.queue import dispatch, task_message

ROOT = Path(__file__).resolve().parent.parent
JUDGES = 8
STALE_MESSAGES = 2_000
"""Number of messages ahead of the others in the judge's queue, for jobs that do not exist."""

START_LIMIT_S = 60.0
ARRIVAL_LIMIT_S = 60.0
PROBLEMS, KERNELS = 10, 6
"""Number of series per regression, and number of regressions that eight judges find at once."""

AFTER_THE_LAST_NIGHT = dt.datetime(2026, 11, 20, 6, tzinfo=dt.UTC)


class MessageService:
    """A web server that receives messages and remembers when a message about each kernel arrived."""

    def __init__(self) -> None:
        self.arrived: dict[str, float] = {}
        self.keys: list[str] = []
        service = self

        class Arriving(SmallHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.keys.append(body["key"])
                kernel = body["subject"].removeprefix("simulated: ").split()[0]
                service.arrived.setdefault(kernel, time.monotonic())
                self.answer(HTTPStatus.OK, "application/json", b"{}")

        self.server = SmallServer(("127.0.0.1", 0), Arriving)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait_for(self, kernel: str) -> float:
        deadline = time.monotonic() + ARRIVAL_LIMIT_S
        while kernel not in self.arrived:
            if time.monotonic() > deadline:
                raise SystemExit(f"the message about {kernel} did not come in {ARRIVAL_LIMIT_S:.0f} s")
            time.sleep(0.001)
        return self.arrived[kernel]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nights", type=int, default=60)
    asked.add_argument("--regressions", type=int, default=20)
    bounds.add_options(asked)
    options = asked.parse_args()
    sys.exit(
        bounds.report(
            _measure(options.nights, options.regressions), report_only=options.report_only, write=options.write
        )
    )


def _measure(nights: int, regressions: int) -> Iterator[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="tilewatch-bench-", dir="/var/tmp"))
    folder.chmod(0o755)  # the embedded Postgres runs as nobody when this is run by root
    try:
        with Embedded(folder / "servers") as servers:
            migrate.upgrade(servers.database_url)
            with session(servers.database_url) as opened:
                fleet.fill(opened, fleet.Fleet(nights=nights))
            yield from _measure_alarms(servers, nights)
            service = MessageService()
            with _worker(servers, folder, service):
                for stale in (0, STALE_MESSAGES):
                    yield from _measure_delay(servers, service, regressions, stale)
            yield from _measure_judges(servers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure_delay(servers: Servers, service: MessageService, regressions: int, stale: int) -> Iterator[Figure]:
    """Yields figures of the time from the commit of the transaction that opens a regression to the arrival of its
    message. Regressions are opened one after another."""
    celery, took_s = dispatch.sender(servers.broker_url), []
    for _ in range(stale):
        celery.send_task(task_message.RUN, (2**62,), queue=dispatch.JUDGE)
    for number in range(regressions):
        kernel = f"kernel_{stale}_{number}"
        with session(servers.database_url) as opened:
            open_or_join(opened, _cause(opened, kernel), _moved(opened, "1x1x1"))
        confirmed = time.monotonic()
        dispatch.wake_outbox(celery, servers.database_url)
        took_s.append(service.wait_for(kernel) - confirmed)
    doubled = len(service.keys) - len(set(service.keys))
    what = f"confirmed to message, {stale:,} messages to judge before it"
    yield Figure(f"{what}: median of {regressions}", f"{median(took_s):.3f} s")
    yield bounds.measure(f"{what}: the longest", max(took_s), cases=regressions)
    yield bounds.measure("messages that arrived twice", doubled, cases=len(service.keys))


def _measure_judges(servers: Servers) -> Iterator[Figure]:
    """Yields figures of eight judges that find the same regressions of one night at the same time."""
    start = threading.Barrier(JUDGES + 1)

    def judge(number: int) -> None:
        with session(servers.database_url) as opened:
            moved = [_moved(opened, f"{problem}x1x1") for problem in range(PROBLEMS)]
            causes = [_cause(opened, f"of all judges {kernel}") for kernel in range(KERNELS)]
        start.wait()
        for step in range(KERNELS * PROBLEMS):
            kernel, problem = divmod((step + 7 * number) % (KERNELS * PROBLEMS), PROBLEMS)
            with session(servers.database_url) as opened:
                open_or_join(opened, causes[kernel], moved[problem])

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(JUDGES)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - began
    with session(servers.database_url) as opened:
        of_all = Regression.kernel.startswith("of all judges")
        raised = opened.scalar(select(func.count(Regression.id)).where(of_all))
        series = opened.scalar(select(func.count(RegressionSeries.id)).join(Regression).where(of_all))
    what = f"{JUDGES} judges at once on {KERNELS} regressions of {PROBLEMS} series"
    yield bounds.measure(f"{what}: raised", raised, wanted=KERNELS, cases=JUDGES)
    yield bounds.measure(f"{what}: their series", series, wanted=KERNELS * PROBLEMS, cases=JUDGES)
    yield Figure(f"{what}: time", f"{took_s:.2f} s")


def _measure_alarms(servers: Servers, nights: int) -> Iterator[Figure]:
    out = Outbox(servers.database_url, NotifySettings(), {"log": Log()}, "http://localhost")
    times, took_s = NightlyTimes(nightly_at=dt.time(3, 0), nightly_limit_h=8), []
    for _ in range(5):
        began = time.monotonic()
        update_alarms(out, [], times, 0.1, AFTER_THE_LAST_NIGHT)
        took_s.append(time.monotonic() - began)
    with session(servers.database_url) as opened:
        keys = select(Sweep.repository, Sweep.kernel, Sweep.problem, Sweep.gpu_model).distinct().subquery()
        series = opened.scalar(select(func.count()).select_from(keys))
    what = f"a check for alarms over {series} series of {nights} nights"
    yield Figure(f"{what}: median, the longest of {len(took_s)}", f"{median(took_s):.2f}, {max(took_s):.2f} s")


def _cause(opened: Session, kernel: str) -> Cause:
    good, bad = opened.scalars(select(Commit.id).order_by(Commit.position.desc()).limit(2)).all()[::-1]
    return Cause("regression", "code", "a made change", (), "made", kernel, good, bad)


def _moved(opened: Session, problem: str) -> ChangedSeries:
    run_id = opened.scalars(select(Run.id).limit(1)).one()
    return ChangedSeries(problem, "h200", run_id, None, None, 0.05, 0.04, 0.06)


@contextlib.contextmanager
def _worker(servers: Servers, folder: Path, service: MessageService) -> Iterator[None]:
    home = folder / "home"
    home.mkdir()
    address = f"http://127.0.0.1:{service.server.server_port}"
    (home / "notify.toml").write_text(f"[channels.chat]\nwebhook = '{address}'\n[[routes]]\nto = ['chat']\n")
    variables = {
        "TILEWATCH_HOME": str(home),
        "TILEWATCH_DATABASE_URL": servers.database_url,
        "TILEWATCH_BROKER_URL": servers.broker_url,
    }
    command = (sys.executable, "-m", "celery", "-A", "tilewatch.worker.app", "worker", "--loglevel", "INFO")
    with (folder / "judge.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--without-mingle", "--without-gossip", "-Q", "judge,tell", "-n", "judge@bench", "-c", "1"],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while b"ready" not in (folder / "judge.log").read_bytes():
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"the judge's worker did not start: {(folder / 'judge.log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    main()
