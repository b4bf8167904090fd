"""Counts what Compare would claim falsely: differences between two recordings of code that did not change.

    python -m benchmarks.claims

Imports recordings/ into a database of its own and judges them, then compares every two commits of a repository on
which a series was measured, as the page does. A series whose code is the same on both sides must be neither faster,
slower, not judged yet nor not confirmed. That is one rule on machine code and one on intervals, so the intervals are
counted alone too, as if no code were known: of kernels with the same code, and of the baselines beside them, whose code
only another package would change. The bound of each is 1 in 100.
"""

import argparse
import datetime as dt
import itertools
import sys
from collections.abc import Iterator

import pandas as pd
from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmarks import bounds
from benchmarks.bounds import Figure
from benchmarks.judged_recordings import open_judged
from tilewatch.dashboard.frames import changes, findings
from tilewatch.dashboard.frames.frames import to_frame
from tilewatch.db.models import Measurement
from tilewatch.db.page_reads import series, snapshots
from tilewatch.db.session import session

MOST_FALSE_PERCENT = 1.0
EVER = dt.datetime.min.replace(tzinfo=dt.UTC)
KERNELS_OF_ONE_CODE = ("tile_table",)
"""Baselines that are a config of the kernel under watch: their code changes with it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bounds.add_options(parser)
    options = parser.parse_args()
    with open_judged() as database_url, session(database_url) as opened:
        pairs = pd.concat([_pairs(opened, name) for name in series.list_repositories(opened)])
        rivals = pd.concat([_rivals(opened, name) for name in series.list_repositories(opened)])
    sys.exit(bounds.report(_figures(pairs, rivals), report_only=options.report_only, write=options.write))


def _figures(pairs: pd.DataFrame, rivals: pd.DataFrame) -> Iterator[Figure]:
    same = pairs[findings.has_same_code(pairs)]
    yield _share("claimed by Compare, of {} kernels with the same code", same["finding"].isin(findings.DIFFERENT))
    yield _share("claimed by intervals alone, of {} kernels with the same code", same["apart"])
    yield _share("claimed by intervals alone, of {} baselines of the same packages", rivals["apart"])
    changed = pairs[~findings.has_same_code(pairs)]
    large = changed[changed["change"].abs() >= 0.02]
    yield Figure(f"apart, of {len(changed)} kernels with other code", str(int(changed["apart"].sum())))
    yield Figure(f"of {len(large)} of them that differ by 2 % or more", str(int(large["apart"].sum())))
    identical = same[
        (same["code_sha256"] == same["code_sha256_before"]) & (same["gpu_uuid"] != same["gpu_uuid_before"])
    ]
    of_time = identical["median_us_before"] / identical["median_us"] - 1
    on_two = f"deviation of {len(identical)} kernels with identical machine code on two GPUs"
    yield Figure(f"{on_two}, in the ratio", f"{identical['change'].std():.2%}")
    yield Figure(f"{on_two}, in the time", f"{of_time.std():.2%}")


def _pairs(opened: Session, repository: str) -> pd.DataFrame:
    """Every two commits of a repository, the earlier one first."""
    judged = to_frame(snapshots.JudgedChangeRow, snapshots.list_judged_changes(opened, repository, EVER))
    commits = reversed(snapshots.list_commits(opened, repository))
    sides = [
        to_frame(snapshots.SnapshotRow, snapshots.list_points_at_commit(opened, repository, commit.sha))
        for commit in commits
    ]
    found = [
        findings.add_findings(changes.pair_snapshots(before, after), judged)
        for before, after in itertools.combinations(sides, 2)
    ]
    compared = pd.concat(found)
    return compared[compared["change"].notna()]


def _rivals(opened: Session, repository: str) -> pd.DataFrame:
    """Every two runs of each baseline that has a ratio to another one, by that ratio."""
    sides: dict[int, list[pd.DataFrame]] = {}
    for commit in reversed(snapshots.list_commits(opened, repository)):
        for row in snapshots.list_points_at_commit(opened, repository, commit.sha):
            query = select(Measurement).where(Measurement.run_id == row.run_id, Measurement.role == "baseline")
            for rival in opened.scalars(query):
                if rival.ratio is None or rival.implementation in (rival.baseline, *KERNELS_OF_ONE_CODE):
                    continue
                own = {name: getattr(rival, name) for name in ("median_us", "low_us", "high_us", "ratio", "baseline")}
                own |= {"ratio_low": rival.ratio_low, "ratio_high": rival.ratio_high, "noise": None}
                frame = pd.DataFrame([{**vars(row), **own, "implementation": rival.implementation}])
                sides.setdefault(commit.position, []).append(frame)
    frames = [pd.concat(each) for _, each in sorted(sides.items())]
    on = (*changes.SERIES, "origin", "implementation", "toolchain_sha256")
    found = [changes.pair_snapshots(*two, on) for two in itertools.combinations(frames, 2)]
    compared = pd.concat(found) if found else pd.DataFrame({"change": [], "apart": []})
    return compared[compared["change"].notna()]


def _share(what: str, claimed: pd.Series) -> Figure:
    what = what.format(len(claimed))
    if claimed.empty:
        return bounds.not_measured(what, "nothing to compare")
    return bounds.at_most(what, 100 * float(claimed.mean()), MOST_FALSE_PERCENT, " %", 1)


if __name__ == "__main__":
    main()
