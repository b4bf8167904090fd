"""Submits 20 checks at once to a fleet with one GPU, in the middle of a nightly, and reports who gets the GPU.

    python -m benchmarks.checks [--checks 20] [--launch-s 1.0] [--report-only]

Servers, Celery workers and the compiler are real; only the GPU is simulated (worker/gpu/simulated.py), with a second
per trial or launch. No time is scaled: the checks need the GPU for 12 minutes, which is longer than they may keep it
from the nightly. Each check must be answered, in the order of submission, and the nightly must end whole."""

import argparse
import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import select

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.jobs import LIBRARY, OPEN, TICK_S, Stage, count, send_again, stage, until, workers
from tilewatch.db.models import Check, CheckOperator, Job, Run, Sweep, Verdict
from tilewatch.db.session import session
from tilewatch.worker.submitting.submit import submit_nightly
from tilewatch.worker.submitting.submit_check import CheckAsked, submit_check

SWEEPS = 6
"""Number of sweeps of the nightly. Each has 50 trials and takes the GPU for 50 s."""

PROBLEMS = 3
"""Number of operators in a check."""

LIMIT_S = 3600.0
FILE = "scale.py"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--checks", type=int, default=20)
    asked.add_argument("--launch-s", type=float, default=1.0)
    bounds.add_options(asked)
    options = asked.parse_args()
    figures = run_checks(options.checks, options.launch_s)
    sys.exit(bounds.report(figures, report_only=options.report_only, write=options.write))


def run_checks(checks: int, launch_s: float) -> Iterator[Figure]:
    with stage(SWEEPS, launch_s) as here:
        base, *heads = _commit_heads(here.settings.repository, checks)
        submit_nightly(here.settings, commit=base, gpus=("sim",))
        with workers(here, {"compile@checks": ("compile", "2")}):
            until(here, lambda: not count(here, Job, Job.kind == "compile", Job.state.in_(OPEN)))
        fleet = {"compile@checks": ("compile", "1"), "gpu0@checks": ("gpu.sim", "1"), "judge@checks": ("judge", "1")}
        with workers(here, fleet):
            until(here, lambda: count(here, Run) > 0)
            began = time.monotonic()
            for head in heads:
                submit_check(here.settings, "benchmark", CheckAsked(base, head, gpus=("sim",)))
            _wait(here)
            took_s = time.monotonic() - began
        yield Figure(f"{checks} checks of {PROBLEMS} operators beside a nightly, one GPU", f"{took_s:.0f} s")
        yield from _figures(here, checks)


def _wait(here: Stage) -> None:
    """Runs the beat process's tick until no job is open."""
    deadline = time.monotonic() + LIMIT_S
    while count(here, Job, Job.state.in_(OPEN)):
        if time.monotonic() > deadline:
            raise SystemExit(f"not done in {LIMIT_S:.0f} s")
        send_again(here)
        time.sleep(TICK_S)


def _figures(here: Stage, checks: int) -> Iterator[Figure]:
    with session(here.servers.database_url) as opened:
        answered = list(opened.scalars(select(Check).where(Check.ended_at.is_not(None)).order_by(Check.id)))
        operators = list(opened.scalars(select(CheckOperator)))
        measured = select(Job.started_at, Job.finished_at).where(Job.kind == "measure", Job.state == "done")
        spans = [
            (start.timestamp(), end.timestamp()) for start, end in opened.execute(measured.order_by(Job.started_at))
        ]
        runs = Counter(opened.scalars(select(Sweep.id).join(Run, Run.sweep_id == Sweep.id)))
    asked_at = min(check.requested_at for check in answered).timestamp()
    ended_at = max(check.ended_at.timestamp() for check in answered if check.ended_at)
    waited_s = [(check.ended_at - check.requested_at).total_seconds() for check in answered if check.ended_at]
    sweeps = SWEEPS + PROBLEMS
    yield bounds.measure("checks that were answered", len(answered), wanted=checks, cases=checks)
    yield bounds.measure(
        "operators that could not be compared", sum(each.kind == "failed" for each in operators), cases=checks
    )
    yield bounds.measure("checks that ended before an earlier one", _count_overtaken(waited_s), cases=checks)
    yield Figure("from submit to answer: first, median, last check", _describe(waited_s))
    yield bounds.measure(
        "sweeps of the nightly with exactly one run", sum(n == 1 for n in runs.values()), wanted=sweeps, cases=checks
    )
    yield bounds.measure("sweeps of the nightly with a verdict", count(here, Verdict), wanted=sweeps, cases=checks)
    # A run in which the checks need less of the GPU than they may keep proves nothing.
    yield bounds.measure("the GPU's time for the checks", sum(each.gpu_s for each in operators), cases=checks)
    between = sum(asked_at < start < ended_at for start, _ in spans)
    yield bounds.measure("sweeps of the nightly before the last check ended", between, cases=checks)
    away_s = _list_gaps_s(spans, asked_at)
    yield bounds.measure("longest time without a sweep of the nightly", max(away_s), cases=checks)


def _count_overtaken(waited_s: Sequence[float]) -> int:
    """Returns the number of checks that waited longer than one submitted after them. All were submitted at once."""
    return sum(later < earlier for earlier, later in itertools.pairwise(waited_s))


def _list_gaps_s(spans: Sequence[tuple[float, float]], since: float) -> list[float]:
    """Returns the seconds between sweeps of the nightly after `since`, when the first check was submitted. `spans` are
    in order."""
    return [later[0] - max(earlier[1], since) for earlier, later in itertools.pairwise(spans) if later[0] > since]


def _describe(waited_s: Sequence[float]) -> str:
    return ", ".join(f"{each:.0f} s" for each in (waited_s[0], sorted(waited_s)[len(waited_s) // 2], waited_s[-1]))


def _commit_heads(folder: Path, heads: int) -> list[str]:
    """Commits a second kernel in a file of its own, and then one commit per head that changes its code. Returns the
    commits, the base first."""
    source = LIBRARY.replace("shift", "scale").replace("PROBLEMS", str(PROBLEMS)).replace("STEPS", "2")
    shas = []
    for number in range(heads + 1):
        changed = source.replace("+ step", f"+ step + {number}") if number else source
        (folder / "library" / FILE).write_text(changed)
        _git(folder, "add", ".")
        _git(folder, "commit", "--quiet", "--message", f"Add {number}" if number else "Scale numbers")
        shas.append(_git(folder, "rev-parse", "HEAD").strip())
    return shas


def _git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Benchmark", "-c", "user.email=benchmark@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(("git", *who, *arguments), cwd=folder, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
