"""Writes a message to the forges about each ended check, passed or failed, so that a merge can depend on it."""

from collections import Counter
from collections.abc import Collection

from sqlalchemy.orm import Session

from tilewatch.db.lifecycle import messages
from tilewatch.db.page_reads.checks import CheckStory, find_check
from tilewatch.text import one_line, short_sha
from tilewatch.worker.comparing import check_report
from tilewatch.worker.isolation import isolate
from tilewatch.worker.notify import routing
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.wording import Text

KINDS = ("check_fine", "check_slower", "check_unsure")
"""The kinds of message about a check, in the order of the check's exit codes."""


def write_checks(opened: Session, settings: NotifySettings, forges: Collection[str]) -> None:
    """Writes a message about each check that has none yet, to the forges with a route for checks in notify.toml."""
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
    for channel in routing.recipients(settings, "check", story.check.kernel, (story.check.gpu_model,)):
        if channel in forges:
            messages.write(
                opened,
                key=f"check {check_id} to {channel}",
                kind=KINDS[story.check.exit_code],
                channel=channel,
                subject=text.subject,
                body=text.body,
                check_id=check_id,
            )


def check_text(story: CheckStory) -> Text:
    """Returns the message about a check. The subject has the state of the check and the number of its operators in each
    state; the body has the lines of `tilewatch compare`."""
    check = story.check
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(each.kind for each in story.operators).items())
    what = one_line(check.failure) if check.failure is not None else counts or "no kernel to compare"
    subject = f"{check.state} on {check.gpu_name} against {short_sha(check.base_sha)}: {what}"
    lines = [*check_report.write_lines(story), f"Repeat it: {check_report.write_repeat(check)}"]
    return Text(subject, "\n".join(one_line(line) for line in lines))
