"""A newer tile compiler on pip's index: found by pip itself, an alarm once, with commands that work."""

import datetime as dt
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.kernels.fixtures.small_wheels import write_wheel
from tilewatch.db.models import Alarm, Message
from tilewatch.db.session import session
from tilewatch.kernels.toolchains.packages import read_wanted
from tilewatch.kernels.toolchains.releases import Release, ask_newest, find_newer
from tilewatch.kernels.toolchains.toolchain import is_name
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.notify.new_toolchains import open_alarms
from tilewatch.worker.notify.outbox import Outbox
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.senders import Log
from tilewatch.worker.notify.update_alarms import check_alarms

TILEIRAS = "nvidia-cuda-tileiras"
RELEASE = Release(TILEIRAS, "13.5.37", "13.4.92")
NOW = dt.datetime.now(dt.UTC)


def test_pip_says_which_version_is_the_newest_on_the_index_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("13.5.37", "13.10.1", "13.4.92"):
        write_wheel(tmp_path, TILEIRAS, version, {})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert ask_newest(("cuda-tile", TILEIRAS)) == {TILEIRAS: "13.10.1"}


@pytest.mark.parametrize(
    ("installed", "newest", "found"),
    [
        ("13.4.92", "13.5.37", [RELEASE]),
        ("13.9.1", "13.10.1", [Release(TILEIRAS, "13.10.1", "13.9.1")]),
        ("13.4.92", "13.4.92", []),
        ("13.5.37", "13.4.92", []),
        ("13.4.92", "no version", []),
        (None, "13.5.37", []),
    ],
)
def test_what_is_newer_than_the_installed_one(installed: str | None, newest: str, found: list[Release]) -> None:
    here = {} if installed is None else {TILEIRAS: installed}
    assert list(find_newer(here, {TILEIRAS: newest})) == found


def test_a_release_is_told_once_and_stays_open_for_a_week(database_url: str) -> None:
    out = Outbox(database_url, NotifySettings(), {"log": Log()}, "http://here")
    assert open_alarms(out, [RELEASE], NOW) == [f"new_toolchain/{TILEIRAS}/13.5.37"]
    assert open_alarms(out, [RELEASE], NOW) == []
    times = NightlyTimes(nightly_at=dt.time(3, 0), nightly_limit_h=8)
    assert check_alarms(out, (), times, 0.1, NOW).to_close == ()
    with session(database_url) as opened:
        alarm = opened.scalars(select(Alarm)).one()
        assert len(opened.scalars(select(Message)).all()) == 1
    _, add, submit = alarm.detail.splitlines()
    name, package = add.removeprefix("tilewatch toolchain add ").split()
    assert is_name(name)
    assert read_wanted([package]) == {TILEIRAS: "13.5.37"}
    assert submit == f"tilewatch submit toolchain installed {name}"
