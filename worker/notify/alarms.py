"""Decides which alarms should be open, from the results of the last nights. It only computes."""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewatch.baselines import PACKAGES
from tilewatch.configs import config_text
from tilewatch.db.lifecycle.alarms import digest
from tilewatch.db.models import Repository
from tilewatch.db.page_reads.alarms import AlarmRow
from tilewatch.db.page_reads.gpu_health import QuarantineRow
from tilewatch.db.page_reads.submissions import SubmissionRow
from tilewatch.db.worker_reads.fallen_configs import FallenConfig, SweepPair
from tilewatch.db.worker_reads.repositories import Rewrite
from tilewatch.db.worker_reads.run_pairs import RunPair
from tilewatch.grouping import group_by
from tilewatch.kernels.children.sandbox import Level
from tilewatch.nightlies import NightlyTimes, is_late, missing_night
from tilewatch.text import count_text, short_sha

EVENT_STAYS_OPEN = dt.timedelta(days=7)
"""The time for which an alarm about an event stays open, because an event has no end."""

FAILURE_STAYS_OPEN = dt.timedelta(days=30)
"""The time for which an alarm about broken configs stays open. After that they count as normally broken."""

CONFIRMED = ("regression", "improvement")
"""The verdicts which say that replays confirmed a change."""
LOSS_THAT_MATTERS = 0.02
"""The least relative loss that raises an alarm. A smaller loss is a tie, because sweeps take few samples per config."""

NOT_CONFINED, BASELINE_CHANGED = "not_confined", "baseline_changed"
REPORTED_AGAIN = (NOT_CONFINED, BASELINE_CHANGED)
"""The kinds of alarm that stay one alarm, however many workers or repositories report the same."""

LISTED = 5


@dataclass(frozen=True)
class OpenAlarm:
    kind: str
    key: str
    subject: str
    detail: str
    kernel: str | None = None
    gpu_model: str | None = None


@dataclass(frozen=True)
class Changes:
    """The alarms to open, and the keys of the alarms to close."""

    to_open: tuple[OpenAlarm, ...]
    to_close: tuple[str, ...]


def changes(current: Iterable[OpenAlarm], stored: Iterable[AlarmRow], now: dt.datetime) -> Changes:
    """Returns the alarms to open and the keys to close, so that only the `current` alarms are open afterwards."""
    open_keys = {alarm.key for alarm in stored}
    by_key = {_find_key(alarm, open_keys, now): alarm for alarm in current}
    return Changes(
        tuple(replace(alarm, key=key) for key, alarm in sorted(by_key.items()) if key not in open_keys),
        tuple(sorted(open_keys - by_key.keys())),
    )


def _find_key(alarm: OpenAlarm, open_keys: Collection[str], now: dt.datetime) -> str:
    if alarm.kind not in REPORTED_AGAIN or alarm.key in open_keys:
        return alarm.key
    return next((key for key in open_keys if key.startswith(f"{alarm.key}/")), f"{alarm.key}/since/{now.isoformat()}")


def find_late_nightlies(
    repository: str, nights: Sequence[SubmissionRow], last: dt.date | None, now: dt.datetime, times: NightlyTimes
) -> list[OpenAlarm]:
    """Returns alarms about missing or late nightlies. `last` is the day of the newest nightly."""
    alarms: list[OpenAlarm] = []
    if missing := missing_night(last, now, times):
        alarms.append(
            OpenAlarm(
                "nightly_missing",
                f"nightly_missing/{last}/{digest(repository)}",
                f"no nightly of {repository} since that of {last}",
                f"The nightly of {missing} was not submitted. Is beat running, and can the judge's worker read the "
                f"repository? `tilewatch submit nightly --repository {repository}` submits it by hand.",
            )
        )
    own = [night for night in nights if night.repository == repository]
    for night in own:
        if night.night == last and is_late(night.state, night.requested_at, now, times):
            alarms.append(
                OpenAlarm(
                    "nightly_late",
                    f"nightly_late/{night.id}",
                    f"the nightly of {night.night} of {repository} for {night.gpu_name}: {night.state}",
                    f"It was submitted more than {times.nightly_limit_h:g} hours ago: "
                    f"{night.settled_trials} of {night.trials} configs are compiled, "
                    f"{night.runs} sweeps measured, {night.failed_jobs} jobs failed. "
                    "`tilewatch status` shows what it waits for.",
                    gpu_model=night.gpu_model,
                )
            )
    return alarms


def find_failed_fetches(rows: Sequence[Repository]) -> list[OpenAlarm]:
    """Returns an alarm for each repository whose last fetch failed."""
    return [
        OpenAlarm(
            "fetch_failed",
            f"fetch_failed/{digest(row.name)}/{row.failing_since.isoformat()}",
            row.name,
            f"{row.failure}\nNightlies measure the commit that was fetched last, and there are none while the branch "
            f"'{row.branch}' is gone. `git ls-remote {row.url}` must answer the user of the judge's worker without a "
            "question; `tilewatch submit nightly` fetches again.",
        )
        for row in rows
        if row.failing_since is not None
    ]


def find_rewrites(rewrites: Sequence[Rewrite]) -> list[OpenAlarm]:
    """Returns an alarm for each rewritten branch that lost measured commits."""
    return [
        OpenAlarm(
            "history_rewritten",
            f"history_rewritten/{digest(each.repository)}/{each.found_at.isoformat()}",
            each.repository,
            f"{count_text(each.commits, 'measured commit')} left the followed branch, as the fetch of "
            f"{each.found_at:%Y-%m-%d %H:%M} UTC found: somebody pushed with force. Their numbers stay, before those "
            "of the commits that replaced them, and the trend marks where. Nothing needs to be done if it was meant.",
        )
        for each in rewrites
    ]


def find_quarantined_gpus(ill: Sequence[QuarantineRow]) -> list[OpenAlarm]:
    """Returns an alarm for each GPU in quarantine."""
    return [
        OpenAlarm(
            "gpu_quarantined",
            f"gpu_quarantined/{gpu.gpu_uuid}/{gpu.began_at.isoformat()}",
            f"{gpu.gpu_model} {gpu.gpu_uuid} on {gpu.host}",
            f"{gpu.reason}\nIt gets no sweeps until its canaries are good again; see docs/operate/operations.md.",
            gpu_model=gpu.gpu_model,
        )
        for gpu in ill
        if gpu.ended_at is None
    ]


def find_not_confined(confinements: Iterable[tuple[str, str]]) -> list[OpenAlarm]:
    """Returns an alarm for each host that runs code of commits without the full sandbox."""
    less = {host: level for host, level in confinements if level != Level.FULL}
    return [
        OpenAlarm(
            NOT_CONFINED,
            f"not_confined/{digest(host)}",
            host,
            f"A commit's code is kept from {level} there; it should be kept from {Level.FULL.value}. That takes "
            "Linux 5.13 with Landlock and seccomp, and TILEWATCH_SANDBOX not `off`; see docs/operate/security.md.",
        )
        for host, level in less.items()
    ]


def find_root_on_gpus(needs: Iterable[tuple[str, str]]) -> list[OpenAlarm]:
    """Returns an alarm for each host that runs code of commits as root on a GPU."""
    return [
        OpenAlarm(
            NOT_CONFINED,
            f"not_confined/as_root/{digest(host)}",
            host,
            f"A commit's host code runs on a GPU there as root, not as a user of its own: {why}. Run the worker as "
            "an ordinary user, or mend this and start it again; see docs/operate/security.md.",
        )
        for host, why in needs
    ]


def find_broken_configs(pairs: Sequence[SweepPair], fallen: Sequence[FallenConfig]) -> list[OpenAlarm]:
    """Returns alarms about configs that stopped compiling or became wrong."""
    by_sweep = {pair.after_id: pair for pair in pairs}
    found = [(by_sweep[each.after_id], each) for each in fallen]
    groups = group_by(found, lambda each: (each[1].kind, each[0].kernel, each[0].gpu_model, each[0].submission_id))
    return [_config_alarm(kind, group) for (kind, *_), group in groups.items()]


def split_key(key: str, after: int) -> list[str]:
    """Returns the parts of an alarm's key: the kind, the kernel, and the last `after` parts."""
    kind, _, rest = key.partition("/")
    return [kind, *rest.rsplit("/", after)]


def sweep_of_key(key: str) -> tuple[str, str, int] | None:
    """Returns the kernel, GPU model and submission of an alarm about broken configs; None for other alarms."""
    kind, *rest = split_key(key, 2)
    if kind not in ("stopped_compiling", "became_wrong") or len(rest) != 3:
        return None
    return rest[0], rest[1], int(rest[2])


def lost_its_tie(run: RunPair) -> bool:
    """Returns whether the previous night's best config is now clearly slower than tonight's best config."""
    return run.old_winner_loss is not None and run.old_winner_loss >= LOSS_THAT_MATTERS


def list_explained_ties(runs: Sequence[RunPair]) -> set[str]:
    """Returns the keys of alarms from `find_lost_ties` that confirmed changes explain."""
    groups = _grouped([run for run in runs if lost_its_tie(run)])
    return {
        f"tie_lost/{kernel}/{gpu}/{submission}"
        for (kernel, gpu, submission), group in groups.items()
        if all(run.verdict in CONFIRMED for run in group)
    }


def find_lost_ties(runs: Sequence[RunPair]) -> list[OpenAlarm]:
    """Returns alarms about configs that were as fast as the best config and are slower now."""
    # A confirmed change has its own message, and its revert would raise an alarm too.
    lost = [run for run in runs if lost_its_tie(run) and run.verdict not in CONFIRMED]
    return [
        _alarm_since(
            "tie_lost",
            group[0],
            "A config that was the best, or tied with it, is slower now:",
            [
                f"{run.problem}: {config_text(run.old_winner or {})} is {run.old_winner_loss:+.1%} now, best is "
                f"{config_text(run.winner)}"
                for run in group
            ],
        )
        for group in _grouped(lost).values()
    ]


def find_lost_lines(runs: Sequence[RunPair]) -> list[OpenAlarm]:
    """Returns alarms about kernels whose best config breaks a checklist rule that the previous best config kept."""
    lost = {id(run): lines for run in runs if (lines := _list_lost_lines(run))}
    return [
        _alarm_since(
            "line_lost",
            group[0],
            "The winner keeps to less of the optimisation guide than the winner before:",
            [f"{run.problem}: {line}" for run in group for line in lost[id(run)]],
        )
        for group in _grouped([run for run in runs if id(run) in lost]).values()
    ]


def _list_lost_lines(run: RunPair) -> list[str]:
    had = {line["item"] for line in run.old_checklist or () if line["answer"] == "yes"}
    return [
        f"{line['item']}: no ({line['evidence']})"
        for line in run.checklist or ()
        if line["answer"] == "no" and line["item"] in had
    ]


def find_regret(runs: Sequence[RunPair], table_limit: float, stored: Sequence[AlarmRow]) -> list[OpenAlarm]:
    """Returns an alarm for each kernel whose tuned-table or tile-table config is slower than the best config."""
    open_keys = {_regret_key(alarm.key): alarm.key for alarm in stored if alarm.kind == "regret"}
    behind = [run for run in runs if _is_behind(run, table_limit, open_keys)]
    alarms: list[OpenAlarm] = []
    for (repository, kernel, gpu), group in group_by(
        behind, lambda run: (digest(run.repository), run.kernel, run.gpu_model)
    ).items():
        lines = [
            f"{run.problem}: {'the tile table' if run.ships is None else config_text(run.ships)} is {run.regret:+.1%}, "
            f"best is {config_text(run.winner)}"
            for run in group
        ]
        alarms.append(
            OpenAlarm(
                "regret",
                open_keys.get(
                    (repository, kernel, gpu), f"regret/{kernel}/{gpu}/{group[0].submission_id}/{repository}"
                ),
                f"{kernel} of {group[0].repository} on {gpu}",
                _listing("What ships is slower than the best config found:", lines),
                kernel,
                gpu,
            )
        )
    return alarms


def _is_behind(run: RunPair, table_limit: float, open_keys: Mapping[tuple[str, ...], str]) -> bool:
    if run.regret is None or run.ships is not None:
        return run.regret is not None and run.regret > LOSS_THAT_MATTERS
    is_open = (digest(run.repository), run.kernel, run.gpu_model) in open_keys
    was_within = run.old_table_regret is not None and run.old_table_regret <= table_limit
    return run.regret > table_limit and (is_open or was_within)


def find_changed_baselines(runs: Sequence[RunPair]) -> list[OpenAlarm]:
    """Returns an alarm for each new version of a baseline's package on a node."""
    versions = (
        (run, package, (run.old_toolchain or {}).get(package), run.toolchain.get(package))
        for run in runs
        for package in PACKAGES
    )
    moves = group_by((each for each in versions if None not in each), lambda each: (each[0].host, *each[1:]))
    alarms: list[OpenAlarm] = []
    for (host, package, old, new), group in moves.items():
        # Not new if more series had the version before, as when a problem is measured again after weeks.
        if old == new or len(group) < len(moves.get((host, package, new, new), ())):
            continue
        model = group[0][0].gpu_model
        alarms.append(
            OpenAlarm(
                BASELINE_CHANGED,
                f"{BASELINE_CHANGED}/{host}/{package}/{old}/{new}",
                f"{PACKAGES[package]} on {host} ({model})",
                f"{package} went from {old} to {new}, so ratios change where the baseline's speed did. Regressions "
                "are judged by our own time too.",
                gpu_model=model,
            )
        )
    return alarms


def keep(stored: Iterable[AlarmRow]) -> list[OpenAlarm]:
    """Converts stored alarms to OpenAlarm objects, so that the alarms stay open."""
    return [OpenAlarm(alarm.kind, alarm.key, alarm.subject, alarm.detail) for alarm in stored]


def _config_alarm(kind: str, group: Sequence[tuple[SweepPair, FallenConfig]]) -> OpenAlarm:
    lines = [f"{each.problem} {config_text(fell.params)}: {fell.failure or 'no reason'}" for each, fell in group]
    what = "does not compile any more" if kind == "stopped_compiling" else "gives wrong results now"
    several = what.replace("does not", "do not").replace("gives", "give")
    head = f"1 config {what}:" if len(group) == 1 else f"{len(group)} configs {several}:"
    return _alarm_since(kind, group[0][0], head, lines)


def _alarm_since(kind: str, first: RunPair | SweepPair, head: str, lines: Sequence[str]) -> OpenAlarm:
    """Returns an alarm about a kernel on a GPU model, open since the submission of `first`."""
    kernel, gpu = first.kernel, first.gpu_model
    subject = f"{kernel} of {first.repository} on {gpu} since {short_sha(first.sha)} ({first.made_at:%Y-%m-%d})"
    return OpenAlarm(kind, f"{kind}/{kernel}/{gpu}/{first.submission_id}", subject, _listing(head, lines), kernel, gpu)


def _regret_key(key: str) -> tuple[str, ...]:
    """Returns (repository, kernel, GPU model) from the key of an alarm about a slow table config."""
    _, kernel, gpu, _, *repository = split_key(key, 3)
    return (*repository, kernel, gpu)


def _grouped(runs: Iterable[RunPair]) -> dict[tuple[str, str, int], list[RunPair]]:
    return group_by(runs, lambda run: (run.kernel, run.gpu_model, run.submission_id))


def _listing(head: str, lines: Sequence[str]) -> str:
    more = [f"  and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return "\n".join([head, *(f"  {' '.join(line.split())}" for line in lines[:LISTED]), *more])
