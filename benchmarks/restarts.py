"""Kills each process of `tilewatch up` twice by SIGKILL under load, and counts what is lost or doubled.

    python -m benchmarks.restarts [--rounds 2] [--report-only]

Nightlies of the demo's repository are submitted while processes are killed. `up` itself is started again 2 s after its
end, as the systemd unit of docs/operate/nodes.md does. A process is back when another process id answers in its
place."""

import argparse
import contextlib
import datetime as dt
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import redis

from benchmarks import bounds
from benchmarks.bounds import ROOT, Figure
from tilewatch import processes
from tilewatch.db.server.free_ports import find_free_ports
from tilewatch.worker.local import demo_repository, port

LIMIT_S = 300.0
RESTART_S = 2.0
KILLED = {
    "Postgres": "/postgres ",
    "Valkey": "valkey-server",
    "dashboard": "streamlit run",
    "API": "main api",
    "compile worker": "-Q compile",
    "judge": "-Q judge",
    "message worker": "-Q tell",
    "beat": "app beat",
    "up": "main up",
}
"""Processes to kill, by name, each with words by which its command is found."""

DOUBLED = "select count(*) from (select 1 from jobs group by key having count(*) > 1) as each"
UNSETTLED = "select count(*) from trials where status = 'waiting'"
SWEEPS = "select count(*), count(distinct (submission_id, kernel, problem, arch)) from sweeps"


@dataclass
class Instance:
    """A running `tilewatch up` with the repository that it watches."""

    home: Path
    environment: dict[str, str]
    addresses: dict[str, str]
    """Address that answers whether a process is well, by the name of the process."""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self.home.parent / "up.log").open("ab")
        self.process = processes.start(
            [sys.executable, "-m", "tilewatch.worker.cli.main", "up"],
            environment=self.environment,
            log=log,
            folder=ROOT,
        )

    def read(self, name: str) -> str:
        return str(json.loads((self.home / "connection.json").read_text())[name])

    def ask(self, question: str) -> list[tuple[int, ...]]:
        with psycopg.connect(self.read("database_url")) as connection:
            return connection.execute(question.encode()).fetchall()

    def run(self, *arguments: str) -> bool:
        command = [sys.executable, "-m", "tilewatch.worker.cli.main", *arguments]
        return not subprocess.run(command, env=self.environment, cwd=ROOT, capture_output=True, check=False).returncode

    def find(self, words: str) -> int | None:
        """Returns the process id of a process that leads its process group and has these words in its command; None if
        there is none now."""
        assert self.process is not None
        above = psutil.Process(self.process.pid)
        with contextlib.suppress(psutil.Error):
            for each in [above, *above.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    if words in " ".join(each.cmdline()) and os.getpgid(each.pid) == each.pid:
                        return each.pid
        return None

    def answers(self, name: str) -> bool:
        try:
            match name:
                case "Postgres":
                    return self.ask("select 1") == [(1,)]
                case "Valkey":
                    return bool(redis.Redis.from_url(self.read("broker_url")).ping())
                case "dashboard":
                    return port.healthy(int(self.environment["TILEWATCH_PORT"]))
                case "beat":
                    return True
                case "up":
                    return all(map(self.answers, itertools.islice(KILLED, 4)))
            with urllib.request.urlopen(self.addresses[name], timeout=2) as answer:  # noqa: S310 - our own address
                return bool(answer.status == 200)
        except (OSError, psycopg.Error, redis.RedisError):
            return False


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=2)
    bounds.add_options(asked)
    options = asked.parse_args()
    sys.exit(bounds.report(measure(options.rounds), report_only=options.report_only, write=options.write))


def measure(rounds: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="tilewatch-restarts-") as folder:
        Path(folder).chmod(0o755)  # root's servers run as nobody
        commits = demo_repository.make_repository(Path(folder, "watched"), dt.datetime.now(dt.UTC).date())
        instance = make_instance(Path(folder))
        instance.start()
        try:
            _await(lambda: all(map(instance.answers, KILLED)))
            waiting = [commit.sha for commit in commits]
            slowest: dict[str, float] = {}
            for name in [name for _ in range(rounds) for name in KILLED]:
                _submit(instance, waiting)
                back_s = _kill(instance, name)
                print(f"{name}: back after {back_s:.1f} s", file=sys.stderr, flush=True)
                slowest[name] = max(slowest.get(name, 0.0), back_s)
            while waiting:
                _submit(instance, waiting)
            _await(lambda: instance.ask("select count(*) from jobs where state in ('queued', 'running')") == [(0,)])
            for name, back_s in slowest.items():
                yield bounds.measure(f"back after kill -9: {name}", back_s, cases=rounds)
            yield from count(instance, len(commits))
        finally:
            assert instance.process is not None
            processes.stop([instance.process], (signal.SIGTERM, LIMIT_S))


def count(instance: Instance, commits: int) -> Iterator[Figure]:
    (submitted,), (doubled,), (waiting,) = (
        instance.ask(each)[0]
        for each in ("select count(*) from submissions where reason = 'nightly'", DOUBLED, UNSETTLED)
    )
    yield bounds.measure("nightlies on record", submitted, cases=commits, wanted=commits)
    yield bounds.measure("restarts: jobs done twice", doubled, cases=commits)
    yield bounds.measure("restarts: trials without an outcome", waiting, cases=commits)
    states = instance.ask("select state, count(*) from jobs group by state order by state")
    yield Figure("jobs by state", ", ".join(f"{number} {state}" for state, number in states))
    failed = sum(number for state, number in states if str(state) in ("failed", "poison"))
    yield bounds.measure("restarts: jobs that failed", failed, cases=commits)
    sweeps, distinct = instance.ask(SWEEPS)[0]
    yield bounds.measure("restarts: sweeps twice", sweeps - distinct, cases=commits)


def make_instance(folder: Path) -> Instance:
    dashboard, api, compiles, judges, tells = find_free_ports(5)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TILEWATCH_")} | {
        "TILEWATCH_HOME": str(folder / "home"),
        "TILEWATCH_REPOSITORY": str(folder / "watched"),
        "TILEWATCH_LIBRARY": demo_repository.LIBRARY,
        "TILEWATCH_WATCH": "h200",
        "TILEWATCH_PORT": str(dashboard),
        "TILEWATCH_API_PORT": str(api),
        "TILEWATCH_COMPILE_HEALTH_PORT": str(compiles),
        "TILEWATCH_JUDGE_HEALTH_PORT": str(judges),
        "TILEWATCH_TELL_HEALTH_PORT": str(tells),
    }
    health = {"compile worker": compiles, "judge": judges, "message worker": tells}
    addresses = {name: f"http://127.0.0.1:{number}/livez" for name, number in health.items()}
    return Instance(folder / "home", environment, {**addresses, "API": f"http://127.0.0.1:{api}/healthz"})


def _submit(instance: Instance, waiting: list[str]) -> None:
    """Submits a nightly of the next commit, unless a server is away."""
    if waiting and instance.run("submit", "nightly", "--commit", waiting[0]):
        del waiting[0]


def _kill(instance: Instance, name: str) -> float:
    """Kills a process and returns the seconds until it answers again."""
    _await(lambda: instance.find(KILLED[name]) is not None and instance.answers(name))
    killed = instance.find(KILLED[name])
    assert killed is not None
    began = time.monotonic()
    os.kill(killed, signal.SIGKILL)
    if name == "up":
        assert instance.process is not None
        instance.process.wait()
        time.sleep(RESTART_S)
        instance.start()
    _await(lambda: instance.find(KILLED[name]) not in (None, killed) and instance.answers(name))
    return time.monotonic() - began


def _await(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {LIMIT_S:.0f} s")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
