"""What people should know that is no regression of a time. Pure: facts of the last nights in, standing alarms out.

An alarm opens when it begins to stand and closes by itself when it does not any more. Its key holds since when it
stands (a submission, a night), so that the same trouble a second time is a second alarm. One alarm tells of all configs
and problems that one submission moved: a compiler that changed everything is one message and not sixty.
"""

import datetime as dt
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tilewatch.db.queries.alarms import AlarmRow
from tilewatch.db.queries.quarantine import QuarantineRow
from tilewatch.db.queries.queue import SubmissionRow
from tilewatch.db.step_queries.fallen_configs import FallenConfig, SweepPair
from tilewatch.db.step_queries.run_pairs import RunPair
from tilewatch.text import short_sha

FINE = ("measured", "static facts only")
"""States in which a nightly is over and well."""

NEWS_STANDS = dt.timedelta(days=7)
"""How long something that happened once, and is no trouble that ends, stays among the open alarms."""

FAILURE_STANDS = dt.timedelta(days=30)
"""What nobody mended in so long is how it is now."""

LOSS_THAT_MATTERS = 0.02
"""A last winner that lost by less was as good as tied: sweeps take few samples of each config."""

BASELINE_PACKAGES = {"sgl-deep-gemm": "DeepGEMM", "torch": "torch, and cuBLASLt with it"}

Key = TypeVar("Key")

LISTED = 5


@dataclass(frozen=True)
class Standing:
    kind: str
    key: str
    subject: str
    detail: str
    kernel: str | None = None
    gpu_model: str | None = None


@dataclass(frozen=True)
class Changes:
    """Alarms to open, and keys of those to close."""

    to_open: tuple[Standing, ...]
    to_close: tuple[str, ...]


def changes(standing: Iterable[Standing], open_: Iterable[AlarmRow]) -> Changes:
    by_key = {alarm.key: alarm for alarm in standing}
    known = {alarm.key for alarm in open_}
    return Changes(
        tuple(alarm for key, alarm in sorted(by_key.items()) if key not in known),
        tuple(sorted(known - by_key.keys())),
    )


def of_nightlies(
    nights: Sequence[SubmissionRow], last: dt.date | None, due: dt.date, limit: dt.timedelta, now: dt.datetime
) -> list[Standing]:
    """`due` is the newest night that should have been submitted by now, `last` the newest that was; before the first
    nightly nothing is missing."""
    found = []
    if last is not None and last < due:
        found.append(
            Standing(
                "nightly_missing",
                f"nightly_missing/{last}",
                f"no nightly since that of {last}",
                f"The nightly of {due} was not submitted. Is beat running, and can the judge's worker read the "
                "repository? `tilewatch submit nightly` submits it by hand.",
            )
        )
    for night in nights:
        if night.night == last and night.state not in FINE and now - night.requested_at > limit:
            hours = limit.total_seconds() / 3600
            found.append(
                Standing(
                    "nightly_late",
                    f"nightly_late/{night.id}",
                    f"the nightly of {night.night} for {night.gpu_name}: {night.state}",
                    f"It was submitted more than {hours:g} hours ago: {night.settled_trials} of {night.trials} configs "
                    f"are compiled, {night.runs} sweeps measured, {night.failed_jobs} jobs failed. "
                    "`tilewatch status` says what it waits for.",
                    gpu_model=night.gpu_model,
                )
            )
    return found


def of_quarantines(ill: Sequence[QuarantineRow]) -> list[Standing]:
    """Of GPUs that are in quarantine now; a GPU that falls ill again is another alarm."""
    return [
        Standing(
            "gpu_quarantined",
            f"gpu_quarantined/{gpu.gpu_uuid}/{gpu.began_at.isoformat()}",
            f"{gpu.gpu_model} {gpu.gpu_uuid} on {gpu.host}",
            f"{gpu.reason}\nIt takes no sweeps until a canary runs clean; docs/operations.md says what to look at.",
            gpu_model=gpu.gpu_model,
        )
        for gpu in ill
        if gpu.ended_at is None
    ]


def of_configs(pairs: Sequence[SweepPair], fallen: Sequence[FallenConfig]) -> list[Standing]:
    """One for each kernel, GPU model, submission and kind."""
    by_sweep = {pair.after_id: pair for pair in pairs}
    groups: dict[tuple[str, str, str, int], list[tuple[SweepPair, FallenConfig]]] = defaultdict(list)
    for each in fallen:
        pair = by_sweep[each.after_id]
        groups[each.kind, pair.kernel, pair.gpu_model, pair.submission_id].append((pair, each))
    return [_of_config_group(key, group) for key, group in groups.items()]


def stands_since(key: str) -> tuple[str, str, int] | None:
    """The kernel, GPU model and submission of a `stopped_compiling` or `became_wrong` alarm, from its key."""
    kind, *rest = key.split("/")
    if kind not in ("stopped_compiling", "became_wrong") or len(rest) != 3:
        return None
    return rest[0], rest[1], int(rest[2])


def of_winners(runs: Sequence[RunPair]) -> list[Standing]:
    """Winners that are none any more, told once per kernel, GPU model and submission."""
    lost = [run for run in runs if run.old_winner_loss is not None and run.old_winner_loss >= LOSS_THAT_MATTERS]
    found = []
    for (kernel, gpu, submission), group in _grouped(lost).items():
        lines = [
            f"{run.problem}: {_config(run.old_winner or {})} is {run.old_winner_loss:+.1%} now, best is "
            f"{_config(run.winner)}"
            for run in group
        ]
        found.append(
            Standing(
                "tie_lost",
                f"tie_lost/{kernel}/{gpu}/{submission}",
                f"{kernel} on {gpu} since {_since(group[0].sha, group[0].made_at)}",
                _listing("A config that was the best, or as good, is beaten:", lines),
                kernel,
                gpu,
            )
        )
    return found


def of_regret(runs: Sequence[RunPair], limit: float, open_: Sequence[AlarmRow]) -> list[Standing]:
    """The config that ships, held against the best found. It stands as long as any problem is above the limit."""
    known = {_of_regret(alarm.key): alarm.key for alarm in open_ if alarm.kind == "regret"}
    behind = [run for run in runs if run.regret is not None and run.regret > limit]
    found = []
    for (repository, kernel, gpu), group in _grouped_by(
        behind, lambda run: (_digest(run.repository), run.kernel, run.gpu_model)
    ).items():
        lines = [f"{run.problem}: {run.regret:+.1%}, best is {_config(run.winner)}" for run in group]
        found.append(
            Standing(
                "regret",
                known.get((repository, kernel, gpu), f"regret/{kernel}/{gpu}/{group[0].submission_id}/{repository}"),
                f"{kernel} on {gpu}",
                _listing(f"The config it ships with is more than {limit:.0%} slower than the best found:", lines),
                kernel,
                gpu,
            )
        )
    return found


def of_baselines(runs: Sequence[RunPair]) -> list[Standing]:
    """A rival's package that changed on a node: ratios before and after are not of the same rival."""
    found: dict[str, Standing] = {}
    for run in runs:
        for package, name in BASELINE_PACKAGES.items():
            old, new = (run.old_toolchain or {}).get(package), run.toolchain.get(package)
            if old is None or new is None or old == new:
                continue
            key = f"baseline_changed/{run.host}/{package}/{old}/{new}/{run.submission_id}"
            found[key] = Standing(
                "baseline_changed",
                key,
                f"{name} on {run.host} ({run.gpu_model})",
                f"{package} went from {old} to {new}, so ratios jump where the rival's speed did. Regressions are "
                "judged by our own time beside the ratio.",
                gpu_model=run.gpu_model,
            )
    return list(found.values())


def still(open_: Iterable[AlarmRow], kinds: Sequence[str], since: dt.datetime) -> list[Standing]:
    """Open alarms of these kinds that are younger than that, as they stand."""
    return [
        Standing(alarm.kind, alarm.key, alarm.subject, alarm.detail)
        for alarm in open_
        if alarm.kind in kinds and alarm.opened_at >= since
    ]


def _of_config_group(key: tuple[str, str, str, int], group: Sequence[tuple[SweepPair, FallenConfig]]) -> Standing:
    kind, kernel, gpu, submission = key
    pair = group[0][0]
    lines = [f"{each.problem} {_config(fell.params)}: {fell.failure or 'no reason'}" for each, fell in group]
    what = "does not compile any more" if kind == "stopped_compiling" else "gives wrong results now"
    several = what.replace("does not", "do not").replace("gives", "give")
    head = f"1 config {what}:" if len(group) == 1 else f"{len(group)} configs {several}:"
    subject = f"{kernel} on {gpu} since {_since(pair.sha, pair.made_at)}"
    return Standing(kind, f"{kind}/{kernel}/{gpu}/{submission}", subject, _listing(head, lines), kernel, gpu)


def _of_regret(key: str) -> tuple[str, ...]:
    """The repository, kernel and GPU model of such an alarm, without its submission."""
    _, kernel, gpu, _, *repository = key.split("/")
    return (*repository, kernel, gpu)


def _digest(repository: str) -> str:
    """A repository's name may hold what parts a key."""
    return hashlib.sha256(repository.encode()).hexdigest()[:8]


def _grouped(runs: Iterable[RunPair]) -> dict[tuple[str, str, int], list[RunPair]]:
    return _grouped_by(runs, lambda run: (run.kernel, run.gpu_model, run.submission_id))


def _grouped_by(runs: Iterable[RunPair], key: Callable[[RunPair], Key]) -> dict[Key, list[RunPair]]:
    groups: dict[Key, list[RunPair]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return groups


def _listing(head: str, lines: Sequence[str]) -> str:
    more = [f"  and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return "\n".join([head, *(f"  {' '.join(line.split())}" for line in lines[:LISTED]), *more])


def _since(sha: str, at: dt.datetime) -> str:
    return f"{short_sha(sha)} ({at:%Y-%m-%d})"


def _config(params: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items())
