"""Measures the answers of the HTTP API over a simulated fleet in a real Postgres, while several programs ask at once.

    python -m benchmarks.api [--nights 385] [--home FOLDER] [--programs 4] [--answers 40]

385 nights are 10 million trials, 3.4 GB; 38 are one million. The server is `tilewatch api` as it runs for everybody.
Each program asks everything in an order of its own; a time is from the request to the last byte. Only the slowest
operation has a bound: it is what "any answer" means.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import requests

from benchmarks import bounds, fleet
from benchmarks.bounds import Figure
from benchmarks.filled import Filled, open_filled
from tilewatch.db.server.free_ports import find_free_port

START_LIMIT_S = 60


@dataclass(frozen=True)
class Question:
    """A request to the API. Each `{...}` in its path stands for a number, and each call uses another number."""

    name: str
    path: str
    parameters: Mapping[str, object]
    numbers: range = range(1)


@dataclass(frozen=True)
class Answered:
    name: str
    took_s: float
    sent_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=385)
    parser.add_argument("--home", type=Path, help="keep the filled servers in this folder, and use what is there")
    parser.add_argument("--programs", type=int, default=4, help="so many ask at once")
    parser.add_argument("--answers", type=int, default=40, help="of each operation, for each program")
    bounds.add_options(parser)
    options = parser.parse_args()
    sys.exit(bounds.report(_measure(options), report_only=options.report_only, write=options.write))


def _measure(options: argparse.Namespace) -> Iterator[Figure]:
    with open_filled(options.nights, options.home) as filled, _serve(filled) as address:
        yield filled.size
        questions = _list_questions(address)
        for question in questions:  # once each, so that the database has planned the queries
            _ask(address, question, random.Random(0))  # noqa: S311 - which run is asked for, no secret
        with ThreadPoolExecutor(options.programs) as programs:
            asked = [programs.submit(_ask_all, address, questions, options.answers, i) for i in range(options.programs)]
            answered = [one for each in asked for one in each.result()]
    worst_s = 0.0
    for question in questions:
        took_s = [one.took_s for one in answered if one.name == question.name]
        kilobytes = median(one.sent_bytes for one in answered if one.name == question.name) / 1000
        p95_s = quantiles(took_s, n=20)[-1]
        worst_s = max(worst_s, p95_s)
        yield Figure(
            f"{question.name}, {kilobytes:,.0f} kB", f"{1000 * median(took_s):.0f} ms, p95 {1000 * p95_s:.0f} ms"
        )
    yield Figure(f"answers, {options.programs} programs at once", f"{len(answered):,}")
    yield bounds.measure("the slowest operation, p95", worst_s, cases=options.programs * options.answers)


def _list_questions(address: str) -> list[Question]:
    series = requests.get(f"{address}/v1/series", timeout=START_LIMIT_S).json()
    about = {name: series[0][name] for name in ("repository", "kernel", "problem", "gpu_model")}
    newest = requests.get(f"{address}/v1/verdicts", {"repository": fleet.REPOSITORY}, timeout=START_LIMIT_S).json()
    last_run = newest[0]["run_id"]
    ours = {"repository": fleet.REPOSITORY}
    wide = {**about, "kernel": fleet.WIDE_KERNEL, "problem": fleet.WIDE_PROBLEM}
    wide_sweep = requests.get(f"{address}/v1/sweeps", wide, timeout=START_LIMIT_S).json()[0]["id"]
    runs = range(1, last_run + 1)
    return [
        Question("repositories", "/repositories", {}),
        Question("series", "/series", {}),
        Question("points of a series", "/points", {**about, "limit": 100_000}),
        Question("points with static facts", "/points", {**about, "limit": 100_000, "static_facts": True}),
        Question("sweeps of a series", "/sweeps", {**about, "limit": 1000}),
        Question("a sweep with its trials", "/sweeps/{number}", {}, runs),
        Question("a sweep of 500 configs", "/sweeps/{number}", {}, range(wide_sweep, wide_sweep + 1)),
        Question("the newest verdicts", "/verdicts", {**ours, "limit": 1000}),
        Question("the newest regressions of verdicts", "/verdicts", {**ours, "verdict": "regression", "limit": 1000}),
        Question("verdicts of a series", "/verdicts", {**about, "limit": 1000}),
        Question("verdicts of one GPU model", "/verdicts", {**ours, "gpu_model": about["gpu_model"], "limit": 1000}),
        Question("verdicts of a kernel that is not there", "/verdicts", {**ours, "kernel": "none"}),
        Question("verdicts of a repository that is not there", "/verdicts", {"repository": "none"}),
        Question("minimum detectable change", "/detectable-change", about),
        Question("evidence of a run", "/runs/{number}/evidence", {}, runs),
        Question("regressions", "/regressions", {"limit": 1000}),
        Question("a regression", "/regressions/{number}", {}, range(1, 20)),
        Question("actions", "/actions", {}),
    ]


def _ask_all(address: str, questions: list[Question], answers: int, number: int) -> list[Answered]:
    own = random.Random(number)  # noqa: S311 - who asks what when, no secret
    order = questions * answers
    own.shuffle(order)
    return [_ask(address, question, own) for question in order]


def _ask(address: str, question: Question, own: random.Random) -> Answered:
    path = question.path.format(number=own.choice(question.numbers))
    started = time.perf_counter()
    answer = requests.get(f"{address}/v1{path}", question.parameters, timeout=START_LIMIT_S)  # type: ignore[arg-type]
    took_s = time.perf_counter() - started
    if answer.status_code != 200:
        raise RuntimeError(f"{question.name}: {answer.status_code} {answer.text}")
    return Answered(question.name, took_s, len(answer.content))


@contextlib.contextmanager
def _serve(filled: Filled) -> Iterator[str]:
    """Runs `tilewatch api` on a free port, and yields its address once it answers."""
    port = find_free_port()
    environment = {
        **os.environ,
        "TILEWATCH_HOME": str(filled.home),
        "TILEWATCH_DATABASE_URL": filled.database_url,
        "TILEWATCH_BROKER_URL": "redis://nobody",
        "TILEWATCH_API_PORT": str(port),
    }
    command = [sys.executable, "-m", "tilewatch.worker.cli.main", "api"]
    server = subprocess.Popen(command, env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not _answers(address):
            if server.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError("the server did not answer")
            time.sleep(0.1)
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _answers(address: str) -> bool:
    try:
        return requests.get(f"{address}/healthz", timeout=5).ok
    except requests.ConnectionError:
        return False


if __name__ == "__main__":
    main()
