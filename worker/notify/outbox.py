"""Writes messages about regressions, alarms and daily digests, sends them, and stores the outcomes."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import structlog
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import messages, regressions
from tilewatch.db.lifecycle.actions import BY_A_COMMIT
from tilewatch.db.lifecycle.messages import ClaimedMessage, UnreportedChange
from tilewatch.db.models import OPEN_REGRESSION
from tilewatch.db.page_reads import alarms, submissions
from tilewatch.db.page_reads import messages as message_queries
from tilewatch.db.page_reads import regressions as regression_queries
from tilewatch.db.page_reads.checks import CheckStory, find_check
from tilewatch.db.page_reads.messages import RegressionStory
from tilewatch.db.query_parts import take_turns
from tilewatch.db.session import session
from tilewatch.db.worker_reads import repositories
from tilewatch.text import one_line, short_sha, without_mentions
from tilewatch.worker.comparing import check_report
from tilewatch.worker.isolation import isolate
from tilewatch.worker.notify import routing, wording
from tilewatch.worker.notify.alarms import OpenAlarm
from tilewatch.worker.notify.forge import Forge
from tilewatch.worker.notify.routing import LOG, Channel, NotifySettings
from tilewatch.worker.notify.senders import Closed, Log, OutgoingMessage, Sender, SendResult, Service, Webhook
from tilewatch.worker.notify.wording import Text
from tilewatch.worker.settings import Settings

log = structlog.get_logger()

LEASE_S = 120.0
"""The seconds for which a sender claims a message. Sending a message takes less."""

FORGE_ONLY = ("resolved", "expected")
"""The kinds of message that go only to forges. A person caused such a change, so people know of it already."""


@dataclass(frozen=True)
class Outbox:
    """The settings and senders for writing and sending messages."""

    database_url: str
    settings: NotifySettings
    senders: Mapping[str, Sender]
    dashboard_url: str

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Returns the outbox for these settings. Raises BadNotifySettings if notify.toml is wrong."""
        notify = routing.load(settings.notify_file)
        token = settings.forge_token.get_secret_value() if settings.forge_token else None
        senders: dict[str, Sender] = {LOG: Log()}
        senders |= {name: _sender_of(name, channel, token) for name, channel in notify.channels.items()}
        return cls(settings.connection().database_url, notify, senders, settings.dashboard_url.rstrip("/"))


def write_and_send(outbox: Outbox, now: dt.datetime) -> int:
    """Writes messages about all unreported changes, sends the due messages, and returns the number sent."""
    with session(outbox.database_url) as opened:
        take_turns(opened, "write messages")  # two writers at once would give one regression two owners
        write_changes(opened, outbox, now)
        forges = [name for name in outbox.senders if _is_forge(outbox, name)]
        write_checks(opened, outbox.settings, forges)
        write_digest(opened, outbox, now)
    return send_due(outbox)


def write_changes(opened: Session, outbox: Outbox, now: dt.datetime) -> None:
    for change in messages.list_unreported_changes(opened):
        with isolate(opened, change.repository, f"a change of regression {change.regression_id} cannot be reported"):
            _write_change(opened, outbox, change, now)


def _write_change(opened: Session, outbox: Outbox, change: UnreportedChange, now: dt.datetime) -> None:
    story = message_queries.find_story(opened, change.regression_id)
    if story is None or not story.series:
        return
    story = _with_owner(opened, outbox, story)
    text = wording.regression_text(story, change.kind, outbox.dashboard_url)
    for channel, sha in _list_addresses(opened, outbox, story, change.kind):
        messages.write(
            opened,
            key=messages.event_key(change.event_id, channel, sha),
            kind=change.kind,
            channel=channel,
            **vars(text),
            regression_id=change.regression_id,
            not_before=routing.quiet_until(outbox.settings, channel, now),
        )


def write_alarm(opened: Session, outbox: Outbox, alarm_id: int, alarm: OpenAlarm, now: dt.datetime) -> None:
    """Writes the messages about an alarm, one for each channel that wants it."""
    subject = wording.write_alarm(alarm.kind, alarm.subject)
    text = wording.Text(subject, f"{alarm.detail}\nDashboard: {outbox.dashboard_url}")
    gpus = (alarm.gpu_model,) if alarm.gpu_model else ()
    for channel in routing.recipients(outbox.settings, "alarm", alarm.kernel, gpus):
        if not _is_forge(outbox, channel):
            messages.write(
                opened,
                key=f"alarm {alarm_id} to {channel}",
                kind=alarm.kind,
                channel=channel,
                **vars(text),
                alarm_id=alarm_id,
                not_before=routing.quiet_until(outbox.settings, channel, now),
            )


def write_digest(opened: Session, outbox: Outbox, now: dt.datetime) -> None:
    """Writes the digest if it is due, once a day."""
    day = routing.digest_due(outbox.settings, now)
    if day is None or outbox.settings.digest is None:
        return
    wanted = [name for name in outbox.settings.digest.to if not _is_forge(outbox, name)]
    keys = {f"digest {day} to {name}": name for name in wanted}
    missing = messages.list_unwritten_keys(opened, list(keys))
    if not missing:
        return
    since = messages.find_last_digest(opened, list(keys)) or now - dt.timedelta(days=1)
    text = _write_day(opened, outbox, _day(opened, since, now))
    for key in missing:
        messages.write(opened, key=key, kind="digest", channel=keys[key], **vars(text))


def _write_day(opened: Session, outbox: Outbox, day: wording.Day) -> Text:
    """Returns the digest of a day. A repository is left out if its part cannot be written."""
    writable = []
    for repository in day.list_repositories():
        with isolate(opened, repository, "the digest cannot be written about it"):
            wording.digest_text(day.of(repository), outbox.dashboard_url)
            writable.append(repository)
    return wording.digest_text(day.of(*writable), outbox.dashboard_url)


def send_due(outbox: Outbox) -> int:
    """Sends all due messages and returns the number sent. Skips a channel after a failure."""
    repeatable = [name for name, sender in outbox.senders.items() if sender.repeatable]
    failed: list[str] = []
    sent = 0
    while True:
        with session(outbox.database_url) as opened:
            message = messages.claim(opened, repeatable, LEASE_S, without=failed)
        if message is None:
            return sent
        outcome = _send(outbox, message)
        with session(outbox.database_url) as opened:
            _store_outcome(opened, message, outcome)
        sent += outcome.trouble is None
        if outcome.again:
            failed.append(message.channel)


def send_tests(outbox: Outbox) -> dict[str, SendResult]:
    """Sends a test message to every channel and returns the results. A forge gets only a read request."""
    test = OutgoingMessage("check", "check", "Tilewatch can reach you here", f"Dashboard: {outbox.dashboard_url}")
    return {
        name: sender.probe() if isinstance(sender, Forge) else sender.send(test)
        for name, sender in outbox.senders.items()
    }


KINDS_OF_CHECKS = ("check_fine", "check_slower", "check_unsure")
"""The kinds of message about a check, indexed by the check's exit code."""


def write_checks(opened: Session, settings: NotifySettings, forges: Collection[str]) -> None:
    """Writes messages about unreported checks to the forges of their repositories."""
    if not forges:
        return
    for check_id in messages.list_unreported_checks(opened):
        story = find_check(opened, check_id)
        assert story is not None
        with isolate(opened, story.check.repository, f"check {check_id} cannot be reported"):
            _write_check(opened, settings, forges, story)


def _write_check(opened: Session, settings: NotifySettings, forges: Collection[str], story: CheckStory) -> None:
    assert story.check.exit_code is not None
    check_id, text = story.check.id, check_text(story)
    own = set(forges) - _list_foreign_forges(opened, settings, story.check.repository)
    for channel in routing.recipients(settings, "check", story.check.kernel, (story.check.gpu_model,)):
        if channel in own:
            messages.write(
                opened,
                key=f"check {check_id} to {channel}",
                kind=KINDS_OF_CHECKS[story.check.exit_code],
                channel=channel,
                **vars(text),
                check_id=check_id,
            )


def check_text(story: CheckStory) -> Text:
    """Returns the message about a check, with the lines of `tilewatch compare`."""
    check = story.check
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(each.kind for each in story.operators).items())
    what = one_line(check.failure) if check.failure is not None else counts or "no kernel to compare"
    subject = f"{check.state} on {check.gpu_name} against {short_sha(check.base_sha)}: {what}"
    lines = [*check_report.write_lines(story), f"Repeat it: {check_report.write_repeat(check)}"]
    return Text(subject, "\n".join(one_line(line) for line in lines))


def _channels(opened: Session, outbox: Outbox, story: RegressionStory, kind: str) -> list[str]:
    """Lists the channels for a message about a regression. Forges are left out unless a commit may be the cause."""
    regression = story.regression
    topic: routing.Topic = "regression" if regression.direction == "regression" else "improvement"
    on_commit = topic == "regression" and regression.category in BY_A_COMMIT
    foreign = _list_foreign_forges(opened, outbox.settings, regression.repository)
    wanted = routing.recipients(outbox.settings, topic, regression.kernel, regression.gpu_models)
    allowed = [name for name in wanted if name not in foreign]
    return [name for name in allowed if (on_commit if _is_forge(outbox, name) else kind not in FORGE_ONLY)]


def _list_addresses(
    opened: Session, outbox: Outbox, story: RegressionStory, kind: str
) -> Iterator[tuple[str, str | None]]:
    """Yields (channel, commit hash) for a message about a regression. The hash is None except for forges."""
    for channel in _channels(opened, outbox, story, kind):
        if not _is_forge(outbox, channel):
            yield channel, None
            continue
        # The end goes to the commits with a status about it, even if the first bad commit has changed.
        is_end = kind not in ("opened", "reopened")
        marked = messages.list_shas(opened, story.regression.id, channel) if is_end else []
        for sha in marked or [story.regression.bad_sha]:
            yield channel, sha


def _list_foreign_forges(opened: Session, settings: NotifySettings, repository: str) -> set[str]:
    """Returns the channels that report to the forges of other repositories."""
    places = {each.name: _find_project(each.url) for each in repositories.list_repositories(opened)}
    forges = {name: channel.forge.lower() for name, channel in settings.channels.items() if channel.forge}
    return {name for name, forge in forges.items() if forge in places.values() and forge != places.get(repository)}


def _find_project(url: str) -> str:
    """Returns OWNER/NAME of a repository's address, in small letters."""
    return "/".join(re.split("[/:]", url.rstrip("/").removesuffix(".git"))[-2:]).lower()


def _with_owner(opened: Session, outbox: Outbox, story: RegressionStory) -> RegressionStory:
    """Returns a regression with its owner. A missing owner is taken from the routes and stored."""
    regression = story.regression
    owner = routing.find_owner(outbox.settings, regression.kernel, regression.gpu_models)
    if regression.owner or not owner:
        return story
    regressions.edit(opened, regression.id, regressions.ITSELF, "owner", owner)
    return replace(story, regression=replace(regression, owner=owner))


def _is_forge(outbox: Outbox, channel: str) -> bool:
    named = outbox.settings.channels.get(channel)
    return isinstance(outbox.senders.get(channel), Forge) or (named is not None and named.forge is not None)


def _send(outbox: Outbox, message: ClaimedMessage) -> SendResult:
    sender = outbox.senders.get(message.channel)
    if sender is None:
        return SendResult.never(f"there is no channel {message.channel!r} any more")
    link = outbox.dashboard_url
    if message.regression_id is not None:
        link = wording.regression_link(outbox.dashboard_url, message.regression_id)
    elif message.check_id is not None:
        link = wording.check_link(outbox.dashboard_url, message.check_id)
    outgoing = OutgoingMessage(
        message.key,
        message.kind,
        without_mentions(message.subject),
        without_mentions(message.body),
        attempt=message.attempts,
        sha=message.sha,
        about=message.about,
        link=link,
    )
    try:
        return sender.send(outgoing)
    except Exception as error:  # a crash with one message must not stop the others
        log.exception("a sender crashed", channel=message.channel)
        trouble = f"the sender crashed ({type(error).__name__})"
        return (
            SendResult.later(trouble)
            if sender.repeatable
            else SendResult.never(f"{trouble}; the message may have arrived")
        )


def _store_outcome(opened: Session, message: ClaimedMessage, outcome: SendResult) -> None:
    if outcome.trouble is None:
        messages.mark_sent(opened, message.id)
        log.info("message sent", message=message.id, kind=message.kind, channel=message.channel)
        return
    log.warning(
        "message not sent", message=message.id, channel=message.channel, reason=outcome.trouble, again=outcome.again
    )
    if outcome.again:
        messages.put_off(opened, message.id, outcome.trouble, outcome.wait_s)
    else:
        messages.fail(opened, message.id, outcome.trouble)


def _day(opened: Session, since: dt.datetime, now: dt.datetime) -> wording.Day:
    """Returns the content of a digest. Imported regressions and planted examples are left out."""
    rows = [row for row in regression_queries.list_regressions(opened) if row.counted]
    slower = [row for row in rows if row.direction == "regression"]
    moved = {row.regression_id for row in regression_queries.find_last_moves(opened, now).values() if row.at >= since}
    ended = [row for row in slower if row.state not in OPEN_REGRESSION and row.id in moved]
    return wording.Day(
        opened=[row for row in slower if row.opened_at >= since and row not in ended],
        ended=ended,
        still_open=[row for row in slower if row.state in OPEN_REGRESSION],
        improvements=[row for row in rows if row.direction == "improvement" and row.opened_at >= since],
        alarms=alarms.list_alarms(opened),
        nights=submissions.list_last_nights(opened),
        failed_messages=message_queries.list_messages(opened, states=("failed",), since=since),
    )


def _sender_of(name: str, channel: Channel, token: str | None) -> Sender:
    variable = channel.apprise_from or channel.webhook_from
    if variable is not None:
        return Closed(f"channels.{name} takes its address from {variable}, which is not set")
    if channel.forge is not None:
        if not token:
            return Closed(f"channels.{name} is a forge and TILEWATCH_FORGE_TOKEN is not set")
        return Forge(channel.forge, channel.api, token)
    if not (channel.apprise or channel.webhook):
        return Closed(f"channels.{name} has an empty address")
    return Service(channel.apprise) if channel.apprise else Webhook(channel.webhook or "")
