"""The way out: changes of regressions become messages, messages are carried, and what came of each is written down.

Thin: what is said is tell.py's, to whom telling.py's, how carriers.py's, and the life of a message
db/lifecycle/messages.py's. Any number of these may run at once, on any machine; one message has one sender.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import structlog
from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import messages, regressions
from tilewatch.db.lifecycle.messages import ClaimedMessage
from tilewatch.db.queries import alarms, queue
from tilewatch.db.queries import messages as message_queries
from tilewatch.db.queries import regressions as regression_queries
from tilewatch.db.queries.messages import RegressionStory
from tilewatch.db.session import session
from tilewatch.worker.notify import routing, wording
from tilewatch.worker.notify.alarms import Standing
from tilewatch.worker.notify.forge import Forge
from tilewatch.worker.notify.routing import LOG, BadTelling, Channel, Telling
from tilewatch.worker.notify.senders import Log, Note, Outcome, Sender, Service, Webhook
from tilewatch.worker.settings import Settings

log = structlog.get_logger()

LEASE_S = 120.0
"""Longer than any carrier takes for one message."""

FORGE_ONLY = ("resolved", "expected")
"""What a person did is news to the commit's page and not to the people: one of them did it."""


@dataclass(frozen=True)
class Outbox:
    """Everything that telling needs to know of its surroundings."""

    database_url: str
    telling: Telling
    carriers: Mapping[str, Sender]
    dashboard_url: str

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Raises BadTelling for a file that makes no sense, or a forge without a token."""
        known = routing.load(settings.tell_file)
        token = settings.forge_token.get_secret_value() if settings.forge_token else None
        carriers: dict[str, Sender] = {LOG: Log()}
        carriers |= {name: _carrier(name, channel, token) for name, channel in known.channels.items()}
        return cls(settings.connection().database_url, known, carriers, settings.dashboard_url.rstrip("/"))


def tell_all(outbox: Outbox, now: dt.datetime) -> int:
    """Write down what there is to say and send what is due; how many messages were taken."""
    with session(outbox.database_url) as opened:
        messages.take_turns(opened)
        write_changes(opened, outbox, now)
        write_digest(opened, outbox, now)
    return send_due(outbox)


def write_changes(opened: Session, outbox: Outbox, now: dt.datetime) -> None:
    for change in messages.list_unreported_changes(opened):
        story = message_queries.find_story(opened, change.regression_id)
        if story is None or not story.series:
            continue
        story = _with_owner(opened, outbox, story)
        text = wording.of_regression(story, change.kind, outbox.dashboard_url)
        for channel in _channels(outbox, story, change.kind):
            messages.write(
                opened,
                key=messages.event_key(change.event_id, channel),
                kind=change.kind,
                channel=channel,
                subject=text.subject,
                body=text.body,
                regression_id=change.regression_id,
                not_before=routing.quiet_until(outbox.telling, channel, now),
            )


def write_alarm(opened: Session, outbox: Outbox, alarm_id: int, standing: Standing, now: dt.datetime) -> None:
    """In the transaction that opens the alarm. What is about one kernel or one GPU model goes where that goes."""
    text = wording.of_alarm(standing.kind, standing.subject, standing.detail, outbox.dashboard_url)
    gpus = (standing.gpu_model,) if standing.gpu_model else ()
    for channel in routing.recipients(outbox.telling, "alarm", standing.kernel, gpus):
        if not _is_forge(outbox, channel):
            messages.write(
                opened,
                key=f"alarm {alarm_id} to {channel}",
                kind=standing.kind,
                channel=channel,
                subject=text.subject,
                body=text.body,
                alarm_id=alarm_id,
                not_before=routing.quiet_until(outbox.telling, channel, now),
            )


def write_digest(opened: Session, outbox: Outbox, now: dt.datetime) -> None:
    """Once a day: the key holds the day."""
    day = routing.digest_due(outbox.telling, now)
    if day is None or outbox.telling.digest is None:
        return
    wanted = [name for name in outbox.telling.digest.to if not _is_forge(outbox, name)]
    keys = {f"digest {day} to {name}": name for name in wanted}
    missing = messages.list_unwritten_keys(opened, list(keys))
    if not missing:
        return
    text = wording.of_day(_day(opened, now), outbox.dashboard_url)
    for key in missing:
        messages.write(opened, key=key, kind="digest", channel=keys[key], subject=text.subject, body=text.body)


def send_due(outbox: Outbox) -> int:
    """Until nothing is due. A channel that did not take one message is not asked again in this round."""
    repeatable = [name for name, carrier in outbox.carriers.items() if carrier.repeatable]
    silent: list[str] = []
    taken = 0
    while True:
        with session(outbox.database_url) as opened:
            message = messages.claim(opened, repeatable, LEASE_S, without=silent)
        if message is None:
            return taken
        outcome = _carried(outbox, message)
        with session(outbox.database_url) as opened:
            _write_down(opened, message, outcome)
        taken += outcome.trouble is None
        if outcome.again:
            silent.append(message.channel)


def check(outbox: Outbox) -> dict[str, Outcome]:
    """One message through every channel; a forge is only asked whether we may write there."""
    note = Note("check", "check", "Tilewatch can reach you here", f"Dashboard: {outbox.dashboard_url}")
    return {
        name: carrier.probe() if isinstance(carrier, Forge) else carrier.carry(note)
        for name, carrier in outbox.carriers.items()
    }


def _channels(outbox: Outbox, story: RegressionStory, kind: str) -> list[str]:
    """A forge hears of what a commit brought, and of nothing that a toolchain, a node or a rival did to it."""
    regression = story.regression
    topic: routing.Topic = "regression" if regression.direction == "regression" else "improvement"
    on_commit = topic == "regression" and regression.category in wording.BY_A_COMMIT
    wanted = routing.recipients(outbox.telling, topic, regression.kernel, regression.gpu_models)
    return [name for name in wanted if (on_commit if _is_forge(outbox, name) else kind not in FORGE_ONLY)]


def _with_owner(opened: Session, outbox: Outbox, story: RegressionStory) -> RegressionStory:
    """A regression that nobody has taken goes to whom its route names."""
    regression = story.regression
    owner = routing.owner(outbox.telling, regression.kernel, regression.gpu_models)
    if regression.owner or not owner:
        return story
    regressions.assign(opened, regression.id, regressions.ITSELF, owner)
    return replace(story, regression=replace(regression, owner=owner))


def _is_forge(outbox: Outbox, channel: str) -> bool:
    return isinstance(outbox.carriers.get(channel), Forge)


def _carried(outbox: Outbox, message: ClaimedMessage) -> Outcome:
    carrier = outbox.carriers.get(message.channel)
    if carrier is None:
        return Outcome.never(f"there is no channel {message.channel!r} any more")
    number, link = message.regression_id, outbox.dashboard_url
    if number is not None:
        link = wording.regression_link(outbox.dashboard_url, number)
    note = Note(
        message.key,
        message.kind,
        message.subject,
        message.body,
        attempt=message.attempts,
        sha=message.sha,
        kernel=message.kernel,
        link=link,
    )
    try:
        return carrier.carry(note)
    except Exception as error:  # the edge of a message: one that breaks its carrier holds up no other
        log.exception("a carrier broke", channel=message.channel)
        said = f"the channel's carrier broke ({type(error).__name__})"
        return Outcome.later(said) if carrier.repeatable else Outcome.never(f"{said}; it may have arrived")


def _write_down(opened: Session, message: ClaimedMessage, outcome: Outcome) -> None:
    if outcome.trouble is None:
        messages.mark_sent(opened, message.id)
        log.info("told", message=message.id, kind=message.kind, channel=message.channel)
        return
    log.warning("not told", message=message.id, channel=message.channel, reason=outcome.trouble, again=outcome.again)
    if outcome.again:
        messages.put_off(opened, message.id, outcome.trouble, outcome.wait_s)
    else:
        messages.fail(opened, message.id, outcome.trouble)


def _day(opened: Session, now: dt.datetime) -> wording.Day:
    since = now - dt.timedelta(days=1)
    known = regression_queries.list_regressions(opened)
    slower = [row for row in known if row.direction == "regression"]
    return wording.Day(
        opened=[row for row in slower if row.opened_at >= since],
        ended=[row for row in slower if row.state in ("resolved", "expected") and row.changed_at >= since],
        still_open=[row for row in slower if row.state in regressions.OPEN],
        improvements=[row for row in known if row.direction == "improvement" and row.opened_at >= since],
        alarms=alarms.list_alarms(opened),
        nights=queue.list_last_nights(opened),
        untold=message_queries.list_messages(opened, states=("failed",), since=since),
    )


def _carrier(name: str, channel: Channel, token: str | None) -> Sender:
    if channel.apprise:
        return Service(channel.apprise)
    if channel.webhook:
        return Webhook(channel.webhook)
    assert channel.forge is not None
    if token is None:
        raise BadTelling(f"channels.{name} is a forge and TILEWATCH_FORGE_TOKEN is not set")
    return Forge(channel.forge, channel.api, token)
