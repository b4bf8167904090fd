"""Opens an alarm for a newer version of the tile compiler on the package index, with the commands that compare it.

Only where TILEWATCH_WATCH_RELEASES=1 asks for it: no index is asked otherwise.
"""

import datetime as dt
from collections.abc import Sequence

from tilewatch.db.lifecycle import alarms as life
from tilewatch.db.session import session
from tilewatch.kernels.toolchains.releases import Release
from tilewatch.worker.notify import outbox
from tilewatch.worker.notify.alarms import OpenAlarm
from tilewatch.worker.notify.outbox import Outbox

KIND = "new_toolchain"


def open_alarms(out: Outbox, releases: Sequence[Release], now: dt.datetime) -> list[str]:
    """Opens an alarm for each release, once for ever; returns the keys of the new ones."""
    opened_keys = []
    with session(out.database_url) as opened:
        life.take_turns(opened)
        for alarm in map(make_alarm, releases):
            alarm_id, new = life.open_once(
                opened, key=alarm.key, kind=alarm.kind, subject=alarm.subject, detail=alarm.detail
            )
            if new:
                outbox.write_alarm(opened, out, alarm_id, alarm, now)
                opened_keys.append(alarm.key)
    return opened_keys


def make_alarm(release: Release) -> OpenAlarm:
    return OpenAlarm(
        KIND,
        f"{KIND}/{release.package}/{release.version}",
        f"{release.package} {release.version}; installed is {release.installed}",
        "Is it safe to take? On a compile worker, and on a GPU worker to re-tune:\n"
        f"tilewatch toolchain add {release.toolchain} {release.package}=={release.version}\n"
        f"tilewatch submit toolchain installed {release.toolchain}",
    )
