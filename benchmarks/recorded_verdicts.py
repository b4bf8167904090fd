"""Judges all recordings again and lists the verdicts that are other than those on record.

    python -m benchmarks.recorded_verdicts [--write] [--report-only]

The recordings are imported into an empty database and judged with the replays in them. VERDICTS has one line for each
run: when it began, its GPU model, commit, kernel, problem and verdict. A change of the judge shows here what it would
have said of real GPUs; `--write` puts today's verdicts on record, once each difference has been looked at. No GPU.
"""

import argparse
import sys
from collections.abc import Iterator

from sqlalchemy import select

from benchmarks import bounds
from benchmarks.bounds import ROOT, Figure
from benchmarks.judged_recordings import open_judged
from tilewatch.db.models import TOTAL, Commit, Run, Sweep, Verdict
from tilewatch.db.session import session
from tilewatch.text import short_sha

VERDICTS = ROOT / "benchmarks" / "recorded_verdicts.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put today's verdicts on record")
    bounds.add_options(parser)
    options = parser.parse_args()
    today = judge_recordings()
    if options.write:
        VERDICTS.write_text("".join(f"{run} {verdict}\n" for run, (verdict, _) in sorted(today.items())))
    sys.exit(bounds.report(_compare(today), report_only=options.report_only, write=options.write))


def judge_recordings() -> dict[str, tuple[str, str]]:
    """The verdict and its reason of each recorded run, by its description."""
    with open_judged() as database_url:
        return dict(_read(database_url))


def _read(database_url: str) -> Iterator[tuple[str, tuple[str, str]]]:
    described = (Run.started_at, Sweep.gpu_model, Commit.sha, Sweep.kernel, Sweep.problem)
    query = (
        select(*described, Verdict.verdict, Verdict.reason)
        .join(Sweep, Sweep.id == Run.sweep_id)
        .join(Commit, Commit.id == Sweep.commit_id)
        .join(Verdict, Verdict.run_id == Run.id)
        .where(Sweep.kernel != TOTAL)
    )
    with session(database_url) as opened:
        for began, gpu_model, sha, kernel, problem, verdict, reason in opened.execute(query):
            run = f"{began:%Y-%m-%dT%H:%M:%S} {gpu_model} {short_sha(sha)} {kernel} {problem}"
            yield run, (verdict, reason)


def _compare(today: dict[str, tuple[str, str]]) -> Iterator[Figure]:
    lines = VERDICTS.read_text().splitlines()
    recorded = dict(line.rsplit(" ", 1) for line in lines)
    for run in sorted(recorded.keys() | today.keys()):
        verdict, reason = today.get(run, ("not judged", "it is in no recording"))
        if verdict != recorded.get(run):
            print(f"{run}: {recorded.get(run, 'not on record')} -> {verdict} ({reason})")
    same = sum(today[run][0] == recorded.get(run) for run in today)
    yield Figure("recorded runs that were judged", str(len(today)))
    yield bounds.exactly("verdicts other than those on record", max(len(recorded), len(today)) - same, 0)


if __name__ == "__main__":
    main()
